"""From a time to an offset, down to the record.

Of each record only the length and the timestamp are read, up to the first that is late enough: a batch may
have a hundred thousand records, and the event loop waits meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import CorruptBatch
from headrace.log.batch import BatchHeader, inflated_records, read_header
from headrace.log.record import read_varint


@dataclass(frozen=True, slots=True)
class TimestampedOffset:
    """A record's place and time."""

    offset: int
    timestamp_ms: int


def first_record_since(batch: bytes, timestamp_ms: int, from_offset: int = 0) -> TimestampedOffset | None:
    """The first record of a batch that has the offset or a later one, and the time or a later one.

    Of a batch whose records can't be read, it is the batch's first offset: a reader that starts there misses
    nothing. What a producer signed is served as it is, so whether its records make sense is for consumers to
    find out; a search by time does not fail over it.
    """
    header = read_header(batch)
    if header.has_append_time:
        if header.max_timestamp_ms < timestamp_ms:
            return None
        delta_ms_min = None
    else:
        delta_ms_min = timestamp_ms - header.base_timestamp_ms
    try:
        found = _search(
            header, inflated_records(header, batch), delta_ms_min, from_offset - header.base_offset
        )
    except CorruptBatch:
        return TimestampedOffset(max(header.base_offset, from_offset), header.max_timestamp_ms)
    if found is None:
        return None
    offset_delta, delta_ms = found
    at_ms = header.max_timestamp_ms if delta_ms_min is None else header.base_timestamp_ms + delta_ms
    return TimestampedOffset(header.base_offset + offset_delta, at_ms)


def _search(
    header: BatchHeader, records: bytes | memoryview, delta_ms_min: int | None, offset_delta_min: int
) -> tuple[int, int] | None:
    """The offset and the time of the first record that is late enough, relative to the batch's."""
    position = 0
    for _ in range(header.record_count):
        length, position = read_varint(records, position)
        if length < 1:
            raise CorruptBatch(f"a record says that it has {length} bytes")
        delta_ms, after_time = read_varint(records, position + 1)
        if delta_ms_min is None or delta_ms >= delta_ms_min:
            offset_delta, _ = read_varint(records, after_time)
            if not 0 <= offset_delta <= header.last_offset_delta:
                raise CorruptBatch(f"a record has offset delta {offset_delta}")
            if offset_delta >= offset_delta_min:
                return offset_delta, delta_ms
        position += length
    return None
