"""The properties of a message, as they stand in a content header.

    flags    two octets; the highest bit is for the first property
    values   of those properties whose bit is set, in this order: content type, content encoding, headers,
             delivery mode, priority, correlation id, reply to, expiration, message id, timestamp, type,
             user id, application id, cluster id

The broker keeps these bytes as they came, and reads no more of them than it needs. Many messages have the
same properties to the bit, so what was read is remembered by the bytes.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from headrace.queue.fields import check_table, join, read_table, split
from headrace.queue.refusals import precondition_failed, syntax_error

FLAGS: Final = Struct(">H")
LONG: Final = Struct(">I")
KINDS: Final = "sstoossssTssss"
"""By property: a short string, a table, an octet or a timestamp."""
HEADERS: Final = 2
DELIVERY_MODE: Final = 3
PRIORITY: Final = 4
EXPIRATION: Final = 7
USER_ID: Final = 11
PERSISTENT: Final = b"\x02"
REMEMBERED_MAX: Final = 1024
REMEMBERED_BYTES_MAX: Final = 512
EXPIRATION_MS_MAX: Final = 2**32 - 1


class Facts(NamedTuple):
    """What the broker wants to know of a message's properties."""

    is_persistent: bool
    priority: int
    expiration_ms: int | None
    user_id: str | None
    headers: bytes
    """The table with its length; empty where there is none."""


_remembered: dict[bytes, Facts] = {}


def facts_of(properties: bytes) -> Facts:
    """Read what the broker has to know. Raises QueueRefused."""
    facts = _remembered.get(properties)
    if facts is None:
        facts = _read_facts(properties)
        if len(properties) <= REMEMBERED_BYTES_MAX:
            if len(_remembered) >= REMEMBERED_MAX:
                _remembered.clear()
            _remembered[properties] = facts
    return facts


def headers_of(properties: bytes) -> dict[str, object]:
    """The message's headers."""
    table = facts_of(properties).headers
    return read_table(table) if table else {}


def with_headers(
    properties: bytes, changes: dict[bytes, bytes | None], *, keeps_expiration: bool = True
) -> bytes:
    """The same properties with some headers set, to values with their types, or removed (None)."""
    values = _split(properties)
    fields = split(values[HEADERS]) if HEADERS in values else []
    kept = [(name, value) for name, value in fields if name not in changes]
    added = [(name, value) for name, value in changes.items() if value is not None]
    values[HEADERS] = join(added + kept)
    if not keeps_expiration:
        values.pop(EXPIRATION, None)
    flags = sum(0x8000 >> number for number in values)
    return FLAGS.pack(flags) + b"".join(values[number] for number in sorted(values))


def write_properties(
    *, headers: bytes = b"", is_persistent: bool = False, priority: int | None = None, expiration: str = ""
) -> bytes:
    """Properties of a message that the broker makes itself."""
    values: dict[int, bytes] = {DELIVERY_MODE: PERSISTENT if is_persistent else b"\x01"}
    if headers:
        values[HEADERS] = headers
    if priority is not None:
        values[PRIORITY] = bytes((priority,))
    if expiration:
        values[EXPIRATION] = bytes((len(expiration),)) + expiration.encode()
    return FLAGS.pack(sum(0x8000 >> number for number in values)) + b"".join(
        values[number] for number in sorted(values)
    )


def _read_facts(properties: bytes) -> Facts:
    values = _split(properties)
    if HEADERS in values:
        # They are read when the message dies or comes back, when it is too late to refuse it.
        check_table(values[HEADERS])
    expiration = values.get(EXPIRATION)
    user_id = values.get(USER_ID)
    return Facts(
        is_persistent=values.get(DELIVERY_MODE) == PERSISTENT,
        priority=values[PRIORITY][0] if PRIORITY in values else 0,
        expiration_ms=None if expiration is None else _expiration_ms(expiration[1:]),
        user_id=None if user_id is None else user_id[1:].decode("utf-8", "surrogateescape"),
        headers=values.get(HEADERS, b""),
    )


def _split(properties: bytes) -> dict[int, bytes]:
    """By property that is there, its value as it stands."""
    values: dict[int, bytes] = {}
    size = len(properties)
    if size < 2:
        raise syntax_error("a content header is cut short")
    flags = properties[0] << 8 | properties[1]
    if flags & 0x0003:
        raise syntax_error(f"a content header has flags {flags:#06x}, of which the last two are unknown")
    position = 2
    for number, kind in enumerate(KINDS):
        if flags & (0x8000 >> number):
            end = position + _length(properties, position, kind)
            if end > size:
                raise syntax_error("a content header is cut short")
            values[number] = properties[position:end]
            position = end
    if position != size:
        raise syntax_error(f"a content header has {size - position} bytes too many")
    return values


def _length(properties: bytes, position: int, kind: str) -> int:
    if kind == "s":
        return 1 + properties[position] if position < len(properties) else 1
    if kind == "o":
        return 1
    if kind == "T":
        return 8
    if position + 4 > len(properties):
        raise syntax_error("a content header is cut short")
    length: int = 4 + LONG.unpack_from(properties, position)[0]
    return length


def _expiration_ms(text: bytes) -> int:
    if not text.isdigit() or int(text) > EXPIRATION_MS_MAX:
        raise precondition_failed(
            f"invalid expiration '{text.decode('utf-8', 'replace')}': give milliseconds as a whole number, "
            f"0 to {EXPIRATION_MS_MAX}"
        )
    return int(text)
