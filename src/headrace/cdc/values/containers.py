"""Values that hold others: arrays and `hstore`."""

from __future__ import annotations

import re
from json import dumps
from typing import Final

from headrace.cdc.values.scalars import NULL, Converter, text

_BOUNDS_END: Final = b"]="
_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)
_PAIR: Final = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)(?:, |$)', re.DOTALL)
_ESCAPE_IN_PAIR: Final = re.compile(r"\\(.)", re.DOTALL)


def array(element: Converter, delimiter: str = ",") -> Converter:
    """`{1,NULL,3}` as a JSON array, arrays of several dimensions as arrays of arrays."""
    separator = delimiter.encode()
    between = re.escape(separator)
    token = re.compile(rb'([{}])|"((?:[^"\\]|\\.)*)"|([^{}"' + between + rb"]+)|" + between, re.DOTALL)

    def convert(value: bytes) -> bytes:
        if value[0] == 91:  # [1:3]={...}: where an array begins is not told
            value = value[value.index(_BOUNDS_END) + 2 :]
        if b'"' not in value and value.count(b"{") == 1:
            return _flat(value, element, separator)
        return b"".join([_converted(found, element) for found in token.finditer(value)])

    return convert


def _flat(value: bytes, element: Converter, separator: bytes) -> bytes:
    inner = value[1:-1]
    if not inner:
        return b"[]"
    items = [NULL if item == b"NULL" else element(item) for item in inner.split(separator)]
    return b"[%b]" % b",".join(items)


def _converted(found: re.Match[bytes], element: Converter) -> bytes:
    brace, quoted, bare = found.groups()
    if brace is not None:
        return b"[" if brace == b"{" else b"]"
    if quoted is not None:
        return element(_ESCAPE.sub(rb"\1", quoted))
    if bare is None:
        return b","
    return NULL if bare == b"NULL" else element(bare)


def hstore(value: bytes) -> bytes:
    """`"a"=>"1", "b"=>NULL` as a string of JSON, as Debezium writes it."""
    pairs: dict[str, str | None] = {}
    position, written = 0, value.decode()
    while position < len(written):
        found = _PAIR.match(written, position)
        if found is None:
            raise ValueError(f"{value!r} is no hstore")
        key, held = (_unescaped(part) for part in found.groups())
        assert key is not None, "a pair has a key"
        pairs[key] = held
        position = found.end()
    return text(dumps(pairs, ensure_ascii=False, separators=(",", ":")).encode())


def _unescaped(part: str | None) -> str | None:
    return None if part is None else _ESCAPE_IN_PAIR.sub(r"\1", part)
