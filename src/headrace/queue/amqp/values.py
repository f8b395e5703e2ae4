"""Texts and tables where they stand in a frame. What is in a table is read by `headrace.queue.fields`.

short string   length u8, UTF-8; other bytes are kept (surrogateescape)
long string    length u32, bytes
table          length u32, fields
"""

from __future__ import annotations

from struct import Struct, error
from typing import TYPE_CHECKING, Final

from headrace.queue import fields
from headrace.queue.refusals import syntax_error

if TYPE_CHECKING:
    from collections.abc import Mapping

SHORT_STRING_BYTES_MAX: Final = 255
_LENGTH: Final = Struct(">I")


def read_short_string(data: bytes, position: int) -> tuple[str, int]:
    """A text, and where it ends. Raises QueueRefused."""
    if position >= len(data):
        raise syntax_error("a frame ends before a short string")
    end = position + 1 + data[position]
    if end > len(data):
        raise syntax_error("a short string goes beyond its frame")
    return data[position + 1 : end].decode(errors="surrogateescape"), end


def read_long_string(data: bytes, position: int) -> tuple[bytes, int]:
    """Bytes, and where they end. Raises QueueRefused."""
    end = _end(data, position)
    return data[position + _LENGTH.size : end], end


def read_table(data: bytes, position: int) -> tuple[dict[str, object], int]:
    """A table, and where it ends. Raises QueueRefused."""
    end = _end(data, position)
    return fields.read_table(data[position:end]), end


def write_short_string(text: str) -> bytes:
    """A text of at most 255 bytes. Longer ones can't be written, and nobody hands us any."""
    encoded = text.encode(errors="surrogateescape")
    assert len(encoded) <= SHORT_STRING_BYTES_MAX, text
    return bytes((len(encoded),)) + encoded


def write_long_string(value: bytes) -> bytes:
    """Bytes with their length before them."""
    return _LENGTH.pack(len(value)) + value


def write_table(table: Mapping[str, object]) -> bytes:
    """A table."""
    return fields.write_table(table)


def _end(data: bytes, position: int) -> int:
    """Where the bytes end that have their length before them."""
    try:
        (size_bytes,) = _LENGTH.unpack_from(data, position)
    except error:
        raise syntax_error("a frame ends before a length") from None
    end = position + _LENGTH.size + int(size_bytes)
    if end > len(data):
        raise syntax_error(f"a length of {size_bytes} goes beyond its frame")
    return end
