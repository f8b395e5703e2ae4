"""Texts, truth, and bytes: values whose JSON hardly depends on how their column was declared."""

from __future__ import annotations

import re
from binascii import b2a_base64, unhexlify
from collections.abc import Callable
from json.encoder import encode_basestring
from struct import Struct
from typing import Final

Converter = Callable[[bytes], bytes]
"""From the text of a value that is not null to its JSON."""

NULL: Final = b"null"
_TRUTH: Final = {b"t": b"true", b"f": b"false", b"true": b"true", b"false": b"false"}
_ESCAPED_BYTE: Final = re.compile(rb"\\(\\|[0-3][0-7]{2})")
_NINE: Final = ord("9")
_POINT: Final = Struct("<BIdd")
_LITTLE_ENDIAN: Final = 1
_WKB_POINT: Final = 1
_EWKB_HAS_SRID: Final = 0x20000000


def as_is(value: bytes) -> bytes:
    """What is JSON already: whole numbers, and vectors."""
    return value


def text(value: bytes) -> bytes:
    """A JSON string. Bytes that are not UTF-8 are written out as \\xff: the database takes them for text."""
    try:
        return encode_basestring(value.decode()).encode()
    except UnicodeDecodeError:
        return encode_basestring(value.decode(errors="backslashreplace")).encode()


def plain(value: bytes) -> bytes:
    """A JSON string of characters that need no escape, such as those of numbers, times and UUIDs."""
    return b'"%b"' % value


def truth(value: bytes) -> bytes:
    """A boolean."""
    return _TRUTH[value]


def floating(value: bytes) -> bytes:
    """A number; NaN and the infinities, which JSON does not have, as strings."""
    return value if value[-1] <= _NINE else b'"%b"' % value


def binary(value: bytes) -> bytes:
    """`bytea` as base64."""
    return base64_string(bytes_of(value))


def bytes_of(value: bytes) -> bytes:
    """What a `bytea` holds, in either way in which the server may write it."""
    if value.startswith(b"\\x"):
        return unhexlify(value[2:])
    return _ESCAPED_BYTE.sub(lambda found: b"\\" if found[1] == b"\\" else bytes([int(found[1], 8)]), value)


def base64_string(value: bytes) -> bytes:
    """A JSON string of base64."""
    return b'"%b"' % b2a_base64(value, newline=False)


def bit(value: bytes) -> bytes:
    """`bit(1)` as a boolean."""
    return b"true" if value == b"1" else b"false"


def bits(value: bytes) -> bytes:
    """Several bits as base64 of their bytes, the last bit first, without leading zeros."""
    number = int(value or b"0", 2)
    return base64_string(number.to_bytes((number.bit_length() + 7) // 8, "little"))


def point(value: bytes) -> bytes:
    """`(1,2)` as an object of x, y and the point as well-known binary."""
    x, y = value.strip(b"()").split(b",")
    wkb = base64_string(_POINT.pack(_LITTLE_ENDIAN, _WKB_POINT, float(x), float(y)))
    return b'{"x":%b,"y":%b,"wkb":%b,"srid":null}' % (floating(x), floating(y), wkb)


def geometry(value: bytes) -> bytes:
    """PostGIS' hexadecimal EWKB as an object of these bytes and the number of their reference system."""
    ewkb = unhexlify(value)
    order = "little" if ewkb[0] == _LITTLE_ENDIAN else "big"
    kind = int.from_bytes(ewkb[1:5], order)  # type: ignore[arg-type]
    srid = b"%d" % int.from_bytes(ewkb[5:9], order) if kind & _EWKB_HAS_SRID else NULL  # type: ignore[arg-type]
    return b'{"wkb":%b,"srid":%b}' % (base64_string(ewkb), srid)
