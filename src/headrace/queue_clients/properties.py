"""What a message says of itself, with headers that keep the types and values that they came with.

pika reads floats as whole numbers, and can't read times after the year 9999 or write floats. So the table of
headers is read and written here, by the server's own code, and a copy takes over the bytes of each header
that was not changed. Everything else is left to pika. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any, Final, Self

from pika.exceptions import InvalidFrameError
from pika.frame import Header
from pika.spec import FRAME_END, FRAME_HEADER, BasicProperties

from headrace.errors import QueueRefused
from headrace.queue.fields import join, read_table, split, write_table, write_value

PROPERTY_NAMES: Final = (
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
_BEFORE_HEADERS: Final = PROPERTY_NAMES[:2]
_AFTER_HEADERS: Final = PROPERTY_NAMES[3:]
_FLAGS: Final = Struct(">H")
_LONG: Final = Struct(">I")
_FRAME_START: Final = Struct(">BHI")
_CONTENT_START: Final = Struct(">HHQ")


class ExactProperties(BasicProperties):  # type: ignore[misc]  # noqa: PLW1641  # pika has no types, no hashes
    """Properties whose table of headers is kept as it came."""

    def __init__(self, *, table: bytes | None = None, **values: Any) -> None:
        """`table` are the headers as they are sent; without it, they are left to pika."""
        super().__init__(**values)
        self.table = table

    def decode(self, encoded: bytes, offset: int = 0) -> Self:
        """Read what stands in a content header."""
        encoded = encoded[offset:]
        start, end = _table_place(encoded)
        super().decode(encoded[:start] + (_LONG.pack(0) if end > start else b"") + encoded[end:])
        if end > start:
            self.table = encoded[start:end]
            self.headers = _read(self.table)
        return self

    def encode(self) -> list[bytes]:
        """What stands in a content header."""
        if self.table is None:
            pieces: list[bytes] = super().encode()
            return pieces
        before = b"".join(self._only(_BEFORE_HEADERS).encode())
        after = b"".join(self._only(_AFTER_HEADERS).encode())
        flags = _FLAGS.unpack_from(before)[0] | _FLAGS.unpack_from(after)[0] | BasicProperties.FLAG_HEADERS
        return [_FLAGS.pack(flags), before[2:], self.table, after[2:]]

    def __eq__(self, other: object) -> bool:
        """Whether both say the same; the other one may be pika's."""
        if not isinstance(other, BasicProperties):
            return NotImplemented
        return b"".join(self.encode()) == b"".join(other.encode())

    def _only(self, names: tuple[str, ...]) -> BasicProperties:
        return BasicProperties(**{name: getattr(self, name) for name in names})


def copied(properties: BasicProperties, **changes: Any) -> ExactProperties:
    """The same properties with some changed, for a message that is published again.

    Headers whose values are the very same objects keep their bytes. The user id goes: servers refuse one
    that is not the publisher's own.
    """
    kept = {name: getattr(properties, name) for name in PROPERTY_NAMES if name != "user_id"}
    values = {**kept, **changes}
    headers = values["headers"]
    table = None if headers is None else _table(headers, properties)
    return ExactProperties(table=table, **values)


def read_header_frame(buffer: bytes) -> tuple[int, Header | None] | None:
    """A content header's frame with its length, which is 0 while it is cut short; None for other frames."""
    if buffer[:1] != bytes((FRAME_HEADER,)):
        return None
    if len(buffer) < _FRAME_START.size:
        return 0, None
    _, channel_number, size = _FRAME_START.unpack_from(buffer)
    end = _FRAME_START.size + size
    if len(buffer) <= end:
        return 0, None
    if buffer[end] != FRAME_END:
        raise InvalidFrameError("Invalid FRAME_END marker")
    content = buffer[_FRAME_START.size : end]
    _, _, body_bytes = _CONTENT_START.unpack_from(content)
    return end + 1, Header(channel_number, body_bytes, ExactProperties().decode(content, _CONTENT_START.size))


def _table_place(encoded: bytes) -> tuple[int, int]:
    """Where the table of headers begins and ends."""
    flags = _FLAGS.unpack_from(encoded)[0]
    start = _FLAGS.size
    for flag in (BasicProperties.FLAG_CONTENT_TYPE, BasicProperties.FLAG_CONTENT_ENCODING):
        if flags & flag:
            start += 1 + encoded[start]
    if not flags & BasicProperties.FLAG_HEADERS:
        return start, start
    return start, start + _LONG.size + _LONG.unpack_from(encoded, start)[0]


def _read(table: bytes) -> dict[str, object]:
    try:
        return read_table(table)
    except QueueRefused:
        return {}  # It can't be understood, and is still handed on.


def _table(headers: Mapping[str, Any], original: BasicProperties) -> bytes:
    table = original.table if isinstance(original, ExactProperties) else None
    if table is None:
        return write_table(headers)
    try:
        known = {name.decode("utf-8", "surrogateescape"): value for name, value in split(table)}
    except QueueRefused:
        fields = write_table(headers)[_LONG.size :] + table[_LONG.size :]
        return _LONG.pack(len(fields)) + fields
    return join(
        (
            name.encode("utf-8", "surrogateescape"),
            known[name] if name in known and original.headers.get(name) is value else write_value(value),
        )
        for name, value in headers.items()
    )
