"""One record inside a record batch, in Kafka's format v2.

    length            varint    bytes that follow
    attributes        int8      unused
    timestamp_delta   varlong   to the batch's base timestamp
    offset_delta      varint    to the batch's base offset
    key_length        varint    -1 for no key
    key               bytes
    value_length      varint    -1 for no value: a tombstone
    value             bytes
    header_count      varint
    headers           key length (varint), key (UTF-8), value length (varint, -1 for none), value

Varints are zigzag-encoded, least significant group first. The broker looks into records only where it must
(timestamps, its own internal topics); batches pass through it as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.errors import CorruptBatch

UNASSIGNED_OFFSET: Final = -1
VARINT_BITS_MAX: Final = 70
"""Ten groups of seven bits: the longest encoding of 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record. Its offset is known only once it has been read back from a log."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = UNASSIGNED_OFFSET


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed number of up to 64 bits."""
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the number and the position after it."""
    if position < len(data) and (zigzag := data[position]) < 0x80:
        # Most numbers are small, and walks over many records live on this.
        return (zigzag >> 1) ^ -(zigzag & 1), position + 1
    zigzag = 0
    for shift in range(0, VARINT_BITS_MAX, 7):
        if position >= len(data):
            raise CorruptBatch(f"a number at byte {position} runs past the end of the records")
        byte = data[position]
        position += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1), position
    raise CorruptBatch(f"a number before byte {position} has more than ten bytes")


def write_record(out: bytearray, record: Record, *, offset_delta: int, base_timestamp_ms: int) -> None:
    """Append a record. The delta stands for its offset; `record.offset` is not looked at."""
    body = bytearray(1)
    write_varint(body, record.timestamp_ms - base_timestamp_ms)
    write_varint(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for name, value in record.headers:
        _write_bytes(body, name.encode())
        _write_bytes(body, value)
    write_varint(out, len(body))
    out += body


def read_record(
    data: bytes | memoryview, position: int, *, base_offset: int, base_timestamp_ms: int
) -> tuple[Record, int]:
    """Return the record and the position after it."""
    length, position = read_varint(data, position)
    end = position + length
    if length < 1 or end > len(data):
        raise CorruptBatch(f"a record says that it has {length} bytes; {len(data) - position} remain")
    timestamp_delta, position = read_varint(data, position + 1)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    headers, position = _read_headers(data, position)
    if position != end:
        raise CorruptBatch(f"a record ends at byte {position}, but says that it ends at byte {end}")
    record = Record(
        timestamp_ms=base_timestamp_ms + timestamp_delta,
        key=key,
        value=value,
        headers=headers,
        offset=base_offset + offset_delta,
    )
    return record, position


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        write_varint(out, -1)
    else:
        write_varint(out, len(value))
        out += value


def _read_bytes(data: bytes | memoryview, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length == -1:
        return None, position
    if length < 0 or length > len(data) - position:
        raise CorruptBatch(f"a field says that it has {length} bytes; {len(data) - position} remain")
    return bytes(data[position : position + length]), position + length


def _read_headers(
    data: bytes | memoryview, position: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = read_varint(data, position)
    if count < 0 or count > len(data) - position:
        raise CorruptBatch(f"a record says that it has {count} headers; {len(data) - position} bytes remain")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position)
        value, position = _read_bytes(data, position)
        if name is None:
            raise CorruptBatch("a record header has no key")
        headers.append((_header_name(name), value))
    return tuple(headers), position


def _header_name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise CorruptBatch(f"the header key {name!r} is not UTF-8") from error
