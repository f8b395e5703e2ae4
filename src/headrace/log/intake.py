"""What a topic's settings ask of batches before they are appended.

    max.message.bytes                 a batch that is larger, as it comes or as it is kept: BatchTooLarge
    message.timestamp.type            CreateTime: a batch that claims to have append time: InvalidTimestamp
                                      LogAppendTime: the batch is marked and gets the broker's time
    message.timestamp.before.max.ms   a record that is older than this: InvalidTimestamp
    message.timestamp.after.max.ms    a record that is further ahead than this: InvalidTimestamp
    compression.type                  the records are compressed anew where the batch has another codec
    cleanup.policy compact            a record without a key: InvalidRecord

A batch that needs no change stays the bytes that came, and with the settings that most topics have nobody
looks at more than its header, whose highest timestamp is taken at its word. Where records must be looked at,
they must be what the header says, or the batch is refused with InvalidRecord.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.config import LONG_MAX
from headrace.errors import BatchTooLarge, CorruptBatch, InvalidRecord, InvalidTimestamp
from headrace.log.batch import APPEND_TIME, CODECS, HEADER_BYTES, inflated_records, sign
from headrace.log.compression import deflate
from headrace.log.index import NO_TIMESTAMP
from headrace.log.record import read_varint

if TYPE_CHECKING:
    from headrace.log.batch import Batch, BatchHeader
    from headrace.log.topic_settings import TopicSettings

_CODEC_MASK: Final = 0x07


class Intake:
    """Checks and changes batches as one topic's settings ask. Used from one thread."""

    def __init__(self, settings: TopicSettings) -> None:
        self._settings = settings
        self.takes_append_time = settings.takes_append_time
        """Whether batches get the broker's time."""
        self._after_max_ms = settings.message_timestamp_after_max_ms
        self._before_max_ms = settings.message_timestamp_before_max_ms
        self._limits_age = not self.takes_append_time and self._before_max_ms < LONG_MAX
        self._needs_keys = settings.is_compacted
        self._codec = _codec_number(settings.compression_type)
        self._level = {
            "gzip": settings.compression_gzip_level,
            "lz4": settings.compression_lz4_level,
            "zstd": settings.compression_zstd_level,
        }.get(settings.compression_type)
        self._looks_at_records = self._needs_keys or self._limits_age
        self._is_plain = not (self.takes_append_time or self._looks_at_records or self._codec is not None)

    def takes_plain(self, max_timestamp_ms: int, now_ms: int) -> bool:
        """Whether a batch that is not compressed and does not claim append time is kept as it comes."""
        return self._is_plain and max_timestamp_ms - now_ms <= self._after_max_ms

    def admit(self, batches: list[Batch], now_ms: int, size_bytes_max: int) -> list[Batch]:
        """The batches as they are to be kept."""
        if self._is_plain:
            newest_ms = now_ms + self._after_max_ms
            for batch in batches:
                header = batch.header
                if header.max_timestamp_ms > newest_ms or header.attributes & APPEND_TIME:
                    self._check_header(header, now_ms)
            return batches
        return [self._admit(batch, now_ms, size_bytes_max) for batch in batches]

    def _admit(self, batch: Batch, now_ms: int, size_bytes_max: int) -> Batch:
        header = batch.header
        if not self.takes_append_time:
            self._check_header(header, now_ms)
        recompress = self._codec is not None and self._codec != header.attributes & _CODEC_MASK
        if self._looks_at_records or recompress:
            records = self._checked_records(batch, now_ms)
            if recompress:
                batch = self._recompressed(header, records)
        if self.takes_append_time:
            batch = _stamped(batch, now_ms)
        if batch.header.size_bytes > size_bytes_max:
            raise BatchTooLarge(
                f"a batch comes to {batch.header.size_bytes} bytes with the topic's compression, more than "
                f"the {size_bytes_max} that are taken; send smaller batches or raise max.message.bytes"
            )
        return batch

    def _check_header(self, header: BatchHeader, now_ms: int) -> None:
        if header.has_append_time:
            raise InvalidTimestamp("a batch is marked with append time, which only a broker may give")
        if header.max_timestamp_ms - now_ms > self._after_max_ms:
            raise InvalidTimestamp(
                f"a record has timestamp {header.max_timestamp_ms}, which is more than "
                f"{self._after_max_ms} ms ahead of the broker's {now_ms}; correct the producer's clock or "
                "raise message.timestamp.after.max.ms"
            )

    def _checked_records(self, batch: Batch, now_ms: int) -> bytes | memoryview:
        oldest_ms = (
            now_ms - self._before_max_ms - batch.header.base_timestamp_ms if self._limits_age else None
        )
        try:
            records = inflated_records(batch.header, batch.data)
            self._check_records(batch.header, records, oldest_ms)
        except CorruptBatch as error:
            raise InvalidRecord(f"a batch can't be read: {error}") from error
        return records

    def _check_records(
        self, header: BatchHeader, records: bytes | memoryview, delta_ms_min: int | None
    ) -> None:
        """Walk over the records without decoding what nobody asks for."""
        position = 0
        keyless: list[int] = []
        for number in range(header.record_count):
            length, position = read_varint(records, position)
            end = position + length
            if length < 1 or end > len(records):
                raise CorruptBatch(f"record {number} says that it has {length} bytes")
            delta_ms, position = read_varint(records, position + 1)
            if delta_ms_min is not None and delta_ms < delta_ms_min:
                self._check_age(header.base_timestamp_ms + delta_ms)
            offset_delta, position = read_varint(records, position)
            if offset_delta != number:
                raise CorruptBatch(f"record {number} has offset delta {offset_delta}")
            key_length, position = read_varint(records, position)
            if key_length < 0 and self._needs_keys:
                keyless.append(number)
            position = end
        if position != len(records):
            raise CorruptBatch(f"{len(records) - position} bytes follow the last record")
        if keyless:
            raise InvalidRecord(
                f"record {keyless[0]} of the batch has no key, which a compacted topic needs", tuple(keyless)
            )

    def _check_age(self, timestamp_ms: int) -> None:
        if timestamp_ms != NO_TIMESTAMP:
            raise InvalidTimestamp(
                f"a record has timestamp {timestamp_ms}, which is more than {self._before_max_ms} ms behind "
                "the broker's clock; raise message.timestamp.before.max.ms to take it"
            )

    def _recompressed(self, header: BatchHeader, records: bytes | memoryview) -> Batch:
        assert self._codec is not None
        attributes = header.attributes & ~_CODEC_MASK | self._codec
        return sign(
            header._replace(attributes=attributes), deflate(CODECS[self._codec], records, self._level)
        )


def _stamped(batch: Batch, now_ms: int) -> Batch:
    attributes = batch.header.attributes | APPEND_TIME
    header = batch.header._replace(attributes=attributes, max_timestamp_ms=now_ms)
    return sign(header, batch.data[HEADER_BYTES:])


def _codec_number(compression_type: str) -> int | None:
    """The codec into which batches are brought; None when they stay as they come."""
    if compression_type == "producer":
        return None
    return CODECS.index("none" if compression_type == "uncompressed" else compression_type)
