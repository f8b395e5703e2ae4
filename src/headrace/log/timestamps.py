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


def first_record_since(batch: bytes, timestamp_ms: int) -> TimestampedOffset:
    """The first record at the time or later, in a batch that has one.

    Of a batch whose records can't be read, it is the batch's first offset: a reader that starts there misses
    nothing. What a producer signed is served as it is, so whether its records make sense is for consumers to
    find out; a search by time does not fail over it.
    """
    header = read_header(batch)
    found = None
    if not header.has_append_time:
        try:
            records = inflated_records(header, batch)
            found = _search(records, header, timestamp_ms - header.base_timestamp_ms)
        except CorruptBatch:
            found = None
    return found or TimestampedOffset(header.base_offset, header.max_timestamp_ms)


def _search(records: bytes | memoryview, header: BatchHeader, delta_ms_min: int) -> TimestampedOffset | None:
    position = 0
    for _ in range(header.record_count):
        length, position = read_varint(records, position)
        if length < 1:
            raise CorruptBatch(f"a record says that it has {length} bytes")
        delta_ms, after_time = read_varint(records, position + 1)
        if delta_ms >= delta_ms_min:
            offset_delta, _ = read_varint(records, after_time)
            if not 0 <= offset_delta <= header.last_offset_delta:
                raise CorruptBatch(f"a record has offset delta {offset_delta}")
            return TimestampedOffset(header.base_offset + offset_delta, header.base_timestamp_ms + delta_ms)
        position += length
    return None
