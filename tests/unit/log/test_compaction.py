"""Compaction of batches, held against a naive reference by the thousand.

Each story is a log of random keys, tombstones, transactions and codecs that is compacted again and again,
with random amounts of memory, while time passes. The reference knows nothing of maps, walks or batches that
are rebuilt: it looks at all records at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from headrace.errors import CorruptBatch
from headrace.log.batch import (
    APPEND_TIME,
    CODECS,
    HEADER_BYTES,
    TRANSACTIONAL,
    Batch,
    decode_records,
    encode_batch,
    read_header,
    sign,
)
from headrace.log.cleaned_transactions import CleanedTransactions
from headrace.log.compaction import Compaction, LastWord, read_keys
from headrace.log.compression import deflate
from headrace.log.marker import Marker, encode_marker
from headrace.log.offset_map import ENTRY_BYTES, OffsetMap
from headrace.log.record import Record
from headrace.log.transaction_index import AbortedTransaction

NOW_MS = 1_000_000
DELETE_RETENTION_MS = 1_000
STORIES = 1_000
KEYS = [b"a", b"b", b"c", b"d", b"a key that is longer than a hash", b"another such key, also long"]


@dataclass(slots=True)
class Model:
    """A batch as the reference sees it."""

    header: tuple[int, ...]
    records: dict[int, Record]
    producer_id: int
    is_control: bool
    is_transactional: bool
    base_offset: int
    last_offset: int
    epoch: int
    horizon_ms: int | None = None


@dataclass(slots=True)
class Story:
    """A log that is made and compacted by chance."""

    random: Random
    batches: list[Batch] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    last_words: dict[int, LastWord] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    end_offset: int = 0
    now_ms: int = NOW_MS

    def grow(self, steps: int) -> None:
        for _ in range(steps):
            action = self.random.random()
            if action < 0.5:
                self.write(-1)
            elif action < 0.6:
                self.write(self.random.randint(10, 11))
            elif action < 0.85:
                self.write(self.random.randint(0, 2), transactional=True)
            else:
                self.end_transaction(self.random.randint(0, 2), commits=self.random.random() < 0.5)
        for producer_id in list(self.open):
            self.end_transaction(producer_id, commits=self.random.random() < 0.5)
        if self.random.random() < 0.5:
            self.write(-1)

    def write(self, producer_id: int, *, transactional: bool = False) -> None:
        records = [
            Record(
                timestamp_ms=self.now_ms + self.random.randint(-50, 50),
                key=self.random.choice(KEYS),
                value=self.random.choice((None, b"", b"value")),
                headers=(("h", b"1"),) if self.random.random() < 0.3 else (),
            )
            for _ in range(self.random.randint(1, 4))
        ]
        plain = encode_batch(
            records,
            base_offset=self.end_offset,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=self.end_offset if producer_id >= 0 else -1,
        )
        codec = self.random.choice(CODECS) if self.random.random() < 0.3 else "none"
        attributes = CODECS.index(codec) | (TRANSACTIONAL if transactional else 0)
        attributes |= APPEND_TIME if self.random.random() < 0.1 else 0
        header = read_header(plain)._replace(attributes=attributes)
        self.add(sign(header, deflate(codec, plain[HEADER_BYTES:])))
        if transactional:
            self.open.setdefault(producer_id, header.base_offset)
        if producer_id >= 0:
            self.last_words[producer_id] = LastWord(producer_epoch=0, last_offset=header.last_offset)

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        marker = Marker(commits=commits, coordinator_epoch=0)
        data = encode_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=self.now_ms)
        offset = self.end_offset
        self.add(sign(read_header(data)._replace(base_offset=offset), data[HEADER_BYTES:]))
        first = self.open.pop(producer_id, None)
        if first is not None and not commits:
            self.aborted.append(
                AbortedTransaction(
                    producer_id=producer_id, first_offset=first, last_offset=offset, last_stable_offset=first
                )
            )
        self.last_words.setdefault(producer_id, LastWord(producer_epoch=0, last_offset=None))

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.end_offset = batch.header.last_offset + 1

    def compact(self, first_dirty: int) -> int:
        """One round; return where the next one begins."""
        memory = self.random.choice((1, 2, 3, 100)) * ENTRY_BYTES
        offset_map = OffsetMap(memory)
        dirty = [batch for batch in self.batches if batch.header.last_offset >= first_dirty]
        overlapping = [each for each in self.aborted if each.last_offset >= first_dirty]
        read_keys(dirty, CleanedTransactions(overlapping), offset_map, first_dirty)
        latest = offset_map.latest_offset
        assert latest >= first_dirty or not dirty, "each round gets further"
        # A producer that has been idle for long is forgotten.
        if self.random.random() < 0.3 and self.last_words:
            del self.last_words[self.random.choice(sorted(self.last_words))]
        expected = reference(
            [model(batch) for batch in self.batches],
            self.aborted,
            self.last_words,
            end_offset=self.end_offset,
            first_dirty=first_dirty,
            latest=latest,
            now_ms=self.now_ms,
        )
        transactions = CleanedTransactions(self.aborted)
        compaction = Compaction(
            offset_map=offset_map,
            transactions=transactions,
            last_words=self.last_words,
            end_offset=self.end_offset,
            now_ms=self.now_ms,
            delete_retention_ms=DELETE_RETENTION_MS,
        )
        committed_before = committed_values(self.batches, self.aborted)
        self.batches = [left for batch in self.batches if (left := compaction.filter(batch)) is not None]
        self.aborted = transactions.still_aborted
        assert [model(batch) for batch in self.batches] == expected
        assert committed_values(self.batches, self.aborted) == committed_before
        assert self.batches[-1].header.last_offset + 1 == self.end_offset, "the next offset can be told"
        return latest + 1


def model(batch: Batch) -> Model:
    header = batch.header
    assert read_header(batch.data) == header
    kept_fields = (header.base_offset, header.last_offset, header.producer_id, header.producer_epoch)
    return Model(
        header=(*kept_fields, header.base_sequence, header.partition_leader_epoch),
        records={record.offset: record for record in decode_records(batch.data)},
        producer_id=header.producer_id,
        is_control=header.is_control,
        is_transactional=header.is_transactional,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        epoch=header.producer_epoch,
        horizon_ms=header.delete_horizon_ms,
    )


def reference(
    batches: list[Model],
    aborted: Sequence[AbortedTransaction],
    last_words: dict[int, LastWord],
    *,
    end_offset: int,
    first_dirty: int,
    latest: int,
    now_ms: int,
) -> list[Model]:
    """What must be left, from looking at all records at once."""
    data = [batch for batch in batches if not batch.is_control and not is_void(batch, aborted)]
    newer = {
        record.key: offset
        for batch in data
        for offset, record in batch.records.items()
        if first_dirty <= offset <= latest
    }
    left = []
    for number, batch in enumerate(batches):
        is_past = batch.horizon_ms is not None and batch.horizon_ms <= now_ms
        if batch.is_control:
            may_go = not has_data_before(batches, number)
            if may_go and is_past:
                batch.records = {}
            elif may_go and batch.records and batch.horizon_ms is None:
                batch.horizon_ms = now_ms + DELETE_RETENTION_MS
        elif is_void(batch, aborted):
            batch.records = {}
        else:
            batch.records = {
                offset: record
                for offset, record in batch.records.items()
                if offset > latest
                or (newer.get(record.key, -1) <= offset and not (record.value is None and is_past))
            }
            tombstones = [offset for offset, record in batch.records.items() if record.value is None]
            if tombstones and max(tombstones) <= latest and batch.horizon_ms is None:
                batch.horizon_ms = now_ms + DELETE_RETENTION_MS
        if batch.records:
            left.append(batch)
        elif batch.last_offset + 1 == end_offset or is_last_word(batch, last_words):
            batch.horizon_ms = None
            left.append(batch)
    return left


def is_void(batch: Model, aborted: Sequence[AbortedTransaction]) -> bool:
    return batch.is_transactional and any(
        each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset < each.last_offset
        for each in aborted
    )


def has_data_before(batches: list[Model], marker: int) -> bool:
    """Whether a batch of the marker's transaction was there before this round."""
    for batch in reversed(batches[:marker]):
        if batch.producer_id == batches[marker].producer_id and batch.is_transactional:
            return not batch.is_control
    return False


def is_last_word(batch: Model, last_words: dict[int, LastWord]) -> bool:
    word = last_words.get(batch.producer_id)
    if word is None:
        return False
    return word.last_offset == batch.last_offset or (word.last_offset is None and batch.is_control)


def committed_values(
    batches: list[Batch], aborted: Sequence[AbortedTransaction]
) -> dict[bytes | None, bytes | None]:
    """The table that a reader of committed records ends with; a deleted key is not in it."""
    table: dict[bytes | None, bytes | None] = {}
    for batch in map(model, batches):
        if not batch.is_control and not is_void(batch, aborted):
            table.update((record.key, record.value) for record in batch.records.values())
    return {key: value for key, value in table.items() if value is not None}


@pytest.mark.parametrize("part", range(20))
def test_compaction_keeps_what_looking_at_all_records_at_once_would_keep(part: int) -> None:
    for seed in range(part * STORIES // 20, (part + 1) * STORIES // 20):
        story = Story(Random(seed))
        try:
            first_dirty = 0
            for _ in range(3):
                story.grow(story.random.randint(1, 12))
                for _ in range(story.random.randint(1, 3)):
                    first_dirty = story.compact(first_dirty)
                    story.now_ms += story.random.choice((0, 10, DELETE_RETENTION_MS))
        except (AssertionError, CorruptBatch, IndexError) as error:
            error.add_note(f"seed {seed}")
            raise


def test_in_the_end_only_the_last_value_of_each_key_is_left() -> None:
    story = Story(Random(1))
    story.grow(60)
    story.last_words.clear()
    for _ in range(4):
        first_dirty = 0
        while first_dirty < story.end_offset:
            first_dirty = story.compact(first_dirty)
        story.now_ms += DELETE_RETENTION_MS
    data = [batch for batch in story.batches if not batch.header.is_control]
    records = [record for batch in data for record in decode_records(batch.data)]
    assert {record.key: record.value for record in records} == committed_values(story.batches, ())
    assert len(records) == len({record.key for record in records})
    assert story.aborted == []
    writers = {batch.header.producer_id for batch in data if batch.header.is_transactional}
    assert {batch.header.producer_id for batch in story.batches[:-1] if batch.header.is_control} <= writers


def test_a_batch_of_which_nothing_goes_stays_the_bytes_that_it_was() -> None:
    batch = encode_batch([Record(timestamp_ms=5, key=key, value=b"v") for key in KEYS])
    story = Story(Random(1))
    story.add(Batch(read_header(batch), memoryview(batch)))
    story.compact(0)
    assert story.batches[0].data == batch


def test_records_that_can_not_be_read_stop_the_compaction() -> None:
    batch = encode_batch([Record(timestamp_ms=5, key=b"k", value=b"v")])
    for body in (b"", b"\x7e" + batch[HEADER_BYTES + 1 :], batch[HEADER_BYTES:] + b"x"):
        broken = sign(read_header(batch), body)
        with pytest.raises(CorruptBatch):
            read_keys([broken], CleanedTransactions(()), OffsetMap(1000), 0)
