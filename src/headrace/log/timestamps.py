"""From a time to an offset, down to the record where the batch is not compressed."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.log.batch import decode_records, read_header


@dataclass(frozen=True, slots=True)
class TimestampedOffset:
    """A record's place and time."""

    offset: int
    timestamp_ms: int


def first_record_since(batch: bytes, timestamp_ms: int) -> TimestampedOffset:
    """The first record at the time or later, in a batch that has one.

    Of a compressed batch it is the batch's first offset: a reader that starts there misses nothing.
    """
    header = read_header(batch)
    if header.codec == "none":
        for record in decode_records(batch):
            if record.timestamp_ms >= timestamp_ms:
                return TimestampedOffset(record.offset, record.timestamp_ms)
    return TimestampedOffset(header.base_offset, header.max_timestamp_ms)
