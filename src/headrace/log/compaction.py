"""What compaction keeps of each batch, by Kafka's rules.

Of the records up to the offset at which the walk over the new part of the log ended:

    a record with a later record of its key                             goes
    a record of an aborted transaction                                  goes
    a record without a key                                              goes: it can't be kept up to date
    a tombstone that is the last record of its key                      goes once its batch's delete horizon
                                                                        has passed
    the marker of a transaction without data                            the same
    every other record                                                  stays

Records beyond that offset stay as they are. Offsets never change: of a batch, the base and last offset stay,
whatever goes from between.

**The delete horizon.** A reader who began at the start must be able to see every tombstone of a key whose
older value it has seen. So the first compaction that comes upon a tombstone which must stay writes down when
it may go: `now + delete.retention.ms` is put in place of the batch's base timestamp, and attribute bit 6 says
so. Timestamps of records are relative to the base, so they stay what they are.

**Batches without records.** A batch of which no record is left goes, but its header stays
  - where it is the last batch of a producer that may go on: it has the last sequence number;
  - where it is a control batch and the last word of such a producer: it has the epoch;
  - where it is the last batch of what is compacted: it has the offset with which the log goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.errors import CorruptBatch
from headrace.log.batch import (
    APPEND_TIME,
    CONTROL,
    DELETE_HORIZON,
    TRANSACTIONAL,
    Batch,
    inflated_records,
    sign,
)
from headrace.log.compression import deflate
from headrace.log.index import NO_TIMESTAMP
from headrace.log.record import read_varint, write_varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.log.batch import BatchHeader
    from headrace.log.cleaned_transactions import CleanedTransactions
    from headrace.log.offset_map import OffsetMap
    from headrace.log.producers import ProducerStates

_KEPT_WHEN_EMPTY: Final = APPEND_TIME | TRANSACTIONAL | CONTROL


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWord:
    """What a producer that may go on wrote last."""

    producer_epoch: int
    last_offset: int | None
    """Of its last batch with data; None when it has only ended a transaction since its epoch began."""


def last_words(producers: ProducerStates, now_s: float) -> dict[int, LastWord]:
    """By producer that may go on, what it wrote last."""
    known = {info.producer_id for info in producers.infos(now_s)}
    return {
        producer_id: LastWord(
            producer_epoch=producer.epoch,
            last_offset=producer.batches[-1].duplicate.last_offset if producer.batches else None,
        )
        for producer_id, producer in producers.freeze().producers.items()
        if producer_id in known
    }


class _RawRecord(NamedTuple):
    """A record of which only what matters is decoded; the rest stays bytes."""

    offset_delta: int
    delta_ms: int
    key: bytes | None
    is_tombstone: bool
    begins_at: int
    after_time: int
    ends_at: int


def read_keys(
    batches: Iterable[Batch], transactions: CleanedTransactions, offset_map: OffsetMap, from_offset: int
) -> None:
    """Note the last offset of each key, up to the end of the batches or of the map's memory."""
    for batch in batches:
        header = batch.header
        if header.is_control:
            transactions.is_done(batch)
        elif not transactions.is_aborted(header) and not _put_all(batch, offset_map, from_offset):
            return
        offset_map.latest_offset = header.last_offset


def _put_all(batch: Batch, offset_map: OffsetMap, from_offset: int) -> bool:
    base_offset = batch.header.base_offset
    for record in _raw_records(batch.header, inflated_records(batch.header, batch.data)):
        offset = base_offset + record.offset_delta
        if record.key is not None and offset >= from_offset and not offset_map.put(record.key, offset):
            offset_map.latest_offset = max(offset_map.latest_offset, offset - 1)
            return False
    return True


class Compaction:
    """Filters the batches of a log, given in their order. Used from one thread, for one walk."""

    def __init__(
        self,
        *,
        offset_map: OffsetMap,
        transactions: CleanedTransactions,
        last_words: Mapping[int, LastWord],
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        """What is compacted ends at an offset, where another segment begins."""
        self._offset_map = offset_map
        self.transactions = transactions
        self._last_words = last_words
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms

    def filter(self, batch: Batch) -> Batch | None:
        """What is left of a batch: itself, a smaller one, one without records, or nothing."""
        header = batch.header
        if header.is_control:
            return self._filter_control(batch)
        if self.transactions.is_aborted(header):
            return self._without_records(header)
        return self._filter_data(batch)

    def _filter_control(self, batch: Batch) -> Batch | None:
        header = batch.header
        is_done = self.transactions.is_done(batch)
        horizon_ms = header.delete_horizon_ms
        if not header.record_count or (is_done and horizon_ms is not None and horizon_ms <= self._now_ms):
            return self._without_records(header)
        if is_done and horizon_ms is None:
            records = inflated_records(header, batch.data)
            return self._rebuilt(header, records, list(_raw_records(header, records)), self._horizon_ms)
        return batch

    def _filter_data(self, batch: Batch) -> Batch | None:
        header = batch.header
        records = inflated_records(header, batch.data)
        all_records = list(_raw_records(header, records))
        kept = [record for record in all_records if self._stays(header, record)]
        if not kept:
            return self._without_records(header)
        needs_horizon = header.delete_horizon_ms is None and self._has_settled_tombstones(header, kept)
        if len(kept) == len(all_records) and not needs_horizon:
            return batch
        return self._rebuilt(header, records, kept, self._horizon_ms if needs_horizon else None)

    def _has_settled_tombstones(self, header: BatchHeader, kept: list[_RawRecord]) -> bool:
        """Whether there are tombstones, and older records of all their keys have gone."""
        latest_delta = self._offset_map.latest_offset - header.base_offset
        tombstones = [record.offset_delta for record in kept if record.is_tombstone]
        return bool(tombstones) and tombstones[-1] <= latest_delta

    def _stays(self, header: BatchHeader, record: _RawRecord) -> bool:
        offset = header.base_offset + record.offset_delta
        if offset > self._offset_map.latest_offset:
            return True
        if record.key is None or not self._offset_map.is_last(record.key, offset):
            return False
        horizon_ms = header.delete_horizon_ms
        return not record.is_tombstone or horizon_ms is None or horizon_ms > self._now_ms

    def _without_records(self, header: BatchHeader) -> Batch | None:
        if header.last_offset + 1 != self._end_offset and not self._is_last_word(header):
            return None
        empty = header._replace(
            attributes=header.attributes & _KEPT_WHEN_EMPTY, base_timestamp_ms=NO_TIMESTAMP, record_count=0
        )
        return sign(empty, b"")

    def _is_last_word(self, header: BatchHeader) -> bool:
        word = self._last_words.get(header.producer_id)
        if word is None:
            return False
        if word.last_offset is None:
            return header.is_control and header.producer_epoch == word.producer_epoch
        return header.last_offset == word.last_offset

    def _rebuilt(
        self,
        header: BatchHeader,
        records: bytes | memoryview,
        kept: list[_RawRecord],
        new_horizon_ms: int | None,
    ) -> Batch:
        """A batch of those records; with a new horizon, their times are rewritten relative to it."""
        body = bytearray()
        for record in kept:
            if new_horizon_ms is None:
                body += records[record.begins_at : record.ends_at]
            else:
                delta_ms = header.base_timestamp_ms + record.delta_ms - new_horizon_ms
                _write_with_time(body, records, record, delta_ms)
        newest_ms = header.base_timestamp_ms + max(record.delta_ms for record in kept)
        changed = header._replace(
            record_count=len(kept),
            max_timestamp_ms=header.max_timestamp_ms if header.has_append_time else newest_ms,
        )
        if new_horizon_ms is not None:
            changed = changed._replace(
                attributes=header.attributes | DELETE_HORIZON, base_timestamp_ms=new_horizon_ms
            )
        return sign(changed, deflate(header.codec, bytes(body)))


def _raw_records(header: BatchHeader, records: bytes | memoryview) -> Iterable[_RawRecord]:
    position = 0
    last_delta = -1
    for _ in range(header.record_count):
        begins_at = position
        length, position = read_varint(records, position)
        ends_at = position + length
        if length < 1 or ends_at > len(records):
            raise CorruptBatch(f"a record says that it has {length} bytes")
        delta_ms, after_time = read_varint(records, position + 1)
        offset_delta, position = read_varint(records, after_time)
        if not last_delta < offset_delta <= header.last_offset_delta:
            raise CorruptBatch(f"a record has offset delta {offset_delta} after {last_delta}")
        last_delta = offset_delta
        key_length, position = read_varint(records, position)
        key = None if key_length < 0 else bytes(records[position : position + key_length])
        position += max(key_length, 0)
        if position > ends_at:
            raise CorruptBatch(f"a record's key has {key_length} bytes, more than the record")
        value_length, _ = read_varint(records, position)
        yield _RawRecord(offset_delta, delta_ms, key, value_length < 0, begins_at, after_time, ends_at)
        position = ends_at
    if position != len(records):
        raise CorruptBatch(f"{len(records) - position} bytes follow the last record")


def _write_with_time(out: bytearray, records: bytes | memoryview, record: _RawRecord, delta_ms: int) -> None:
    """Append a record with another time; everything after its time stays the bytes that it was."""
    body = bytearray(1)
    write_varint(body, delta_ms)
    body += records[record.after_time : record.ends_at]
    write_varint(out, len(body))
    out += body
