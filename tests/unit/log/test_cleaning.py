"""Retention and compaction of a partition on a disk in memory."""

from __future__ import annotations

import errno
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headrace.config import DAY_MS, HOUR_MS, LONG_MAX
from headrace.errors import CorruptBatch, OffsetOutOfRange, StorageError
from headrace.log.batch import TRANSACTIONAL, decode_records, encode_batch, read_header
from headrace.log.cleaning import PartitionCleaning, take_steps
from headrace.log.compacted import COMPACTED_NAME
from headrace.log.offset_map import ENTRY_BYTES
from headrace.log.record import Record
from headrace.log.segment_swap import finish_swap
from headrace.log.timestamps import TimestampedOffset
from headrace.log.topic_settings import TopicSettings
from headrace.testing.clock import ManualClock
from headrace.testing.disk import PowerLoss, SimulatedDisk
from headrace.testing.partition import delete_records, open_log

SIZE_MAX = 1_000_000
MEMORY = 100 * ENTRY_BYTES
COMPACT: dict[str, Any] = {"cleanup_policy": ("compact",), "min_cleanable_dirty_ratio": 0.0}


class Case:
    """A partition, and what it is told to do."""

    def __init__(self, directory: Path, disk: SimulatedDisk | None = None, **settings: Any) -> None:
        self.clock = ManualClock()
        self.disk = disk or SimulatedDisk(self.clock)
        self.directory = directory
        self.settings = TopicSettings(
            **{"segment_bytes": 1024, "index_interval_bytes": 100, "segment_ms": LONG_MAX, **settings}
        )
        self.open()

    def open(self) -> None:
        self.log = open_log(self.directory, self.settings, self.clock, disk=self.disk)
        self.cleaning = PartitionCleaning(self.log, breathe=lambda: None)

    def restart(self) -> None:
        self.log.close()
        self.open()

    def put(self, *pairs: tuple[bytes, bytes | None], at: int | None = None, **producer: int) -> None:
        """One batch of records."""
        time = self.clock.now_ms() if at is None else at
        records = [Record(timestamp_ms=time, key=key, value=value) for key, value in pairs]
        self.log.append(encode_batch(records, **producer), size_bytes_max=SIZE_MAX)

    def fill(self, count: int = 12, keys: int = 3, **put: int) -> None:
        """Batches of two records, a few to a segment, then a segment that is not compacted."""
        for number in range(count):
            self.put(*(((b"key %d" % (number % keys)), b"%d" % number + bytes(150)),) * 2, **put)
        self.end()

    def end(self) -> None:
        """Begin a new segment."""
        self.log.roll_idle(self.log.end_offset)
        self.log.sync()

    def compact(self, memory: int = MEMORY) -> int:
        return take_steps(self.cleaning.compact(self.clock.now_ms(), memory))

    def retain(self) -> int:
        return take_steps(self.cleaning.retain(self.clock.now_ms()))

    def records(self) -> list[Record]:
        found: list[Record] = []
        offset = self.log.start_offset
        while data := self.log.read(offset, size_bytes_max=500):
            position = 0
            while position < len(data):
                header = read_header(data, position)
                found += decode_records(data[position : position + header.size_bytes])
                position += header.size_bytes
                offset = header.last_offset + 1
        return found

    @property
    def keys(self) -> list[bytes | None]:
        return [record.key for record in self.records()]

    @property
    def bases(self) -> list[int]:
        return [int(name[:20]) for name in self.disk.names(self.directory) if name.endswith(".log")]

    @property
    def strays(self) -> list[str]:
        """Files that are there for a time only."""
        names = self.disk.names(self.directory)
        return [name for name in names if name.endswith((".cleaned", ".swap")) or name.startswith(".")]


@pytest.fixture
def case(partition_dir: Path) -> Callable[..., Case]:
    return lambda **settings: Case(partition_dir, **settings)


MakeCase = Callable[..., Case]


def test_the_last_record_of_each_key_is_left_where_it_was(case: MakeCase) -> None:
    this = case(**COMPACT)
    this.fill()
    last = {record.key: record for record in this.records()}
    end_offset = this.log.end_offset
    assert this.compact() > 0
    assert {record.key: record for record in this.records()} == last
    assert len(this.records()) == len(last)
    assert (this.log.start_offset, this.log.end_offset) == (0, end_offset)
    this.restart()
    assert {record.key: record for record in this.records()} == last
    assert (this.log.start_offset, this.log.end_offset) == (0, end_offset)
    this.put((b"new", b"1"))
    assert this.records()[-1].offset == end_offset


def test_every_offset_leads_to_the_next_record_that_is_left(case: MakeCase) -> None:
    this = case(**COMPACT)
    this.fill()
    this.compact()
    offsets = [record.offset for record in this.records()]
    for restarts in (False, True):
        if restarts:
            this.restart()
        for offset in range(this.log.end_offset):
            data = this.log.read(offset, size_bytes_max=1)
            expected = min((each for each in offsets if each >= offset), default=None)
            found = [each.offset for each in decode_records(data) if each.offset >= offset] if data else []
            assert (found[0] if found else None) == expected


def test_segments_that_have_become_small_are_put_together(case: MakeCase) -> None:
    this = case(**COMPACT)
    this.fill(24)
    this.compact()
    before = len(this.bases)
    this.fill(2, keys=1)
    this.compact()
    assert len(this.bases) < before
    assert set(this.keys) == {b"key 0", b"key 1", b"key 2"}
    assert this.strays == []


def test_the_active_segment_is_left_alone(case: MakeCase) -> None:
    this = case(**COMPACT, segment_bytes=100_000)
    this.fill()
    this.put((b"key 0", b"1"), (b"key 0", b"2"))
    this.log.sync()
    this.compact()
    assert this.keys == [b"key 0", b"key 1", b"key 2", b"key 0", b"key 0"]
    this = case(**COMPACT, segment_bytes=100_000)
    for _ in range(3):
        this.put((b"k", b"v"))
    this.log.sync()
    assert this.compact() == 0


def test_nothing_is_compacted_unless_enough_is_new(case: MakeCase) -> None:
    this = case(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.5)
    this.fill(20, keys=20)
    this.compact()
    assert len(this.records()) == 20
    this.fill(6, keys=1)
    assert this.compact() == 0
    this.fill(20, keys=1)
    assert this.compact() > 0


def test_nothing_is_compacted_unless_the_policy_says_so(case: MakeCase) -> None:
    this = case(min_cleanable_dirty_ratio=0.0)
    this.fill()
    assert this.compact() == 0


def test_where_the_last_compaction_ended_is_known_after_a_restart(case: MakeCase) -> None:
    this = case(**COMPACT)
    this.fill()
    this.compact()
    this.restart()
    steps = this.disk.steps
    assert this.compact() == 0
    assert this.disk.steps == steps, "nothing is new, so nothing is written"
    this.log.close()
    this.disk.overwrite(this.directory / COMPACTED_NAME, b"garbage")
    this.open()
    assert this.compact() == 0
    assert len(this.records()) == 3


def test_a_small_memory_takes_several_rounds_and_comes_to_the_same(case: MakeCase) -> None:
    this = case(**COMPACT)
    this.fill(24, keys=8)
    last = {record.key: record for record in this.records()}
    for _ in range(20):
        this.compact(memory=2 * ENTRY_BYTES)
    assert {record.key: record for record in this.records()} == last
    assert len(this.records()) == 8


def test_records_stay_for_the_time_that_they_are_promised(case: MakeCase) -> None:
    this = case(**COMPACT, min_compaction_lag_ms=HOUR_MS)
    this.fill()
    assert this.compact() == 0
    this.clock.advance(HOUR_MS)
    assert this.compact() > 0


def test_an_idle_segment_is_rolled_when_its_records_are_to_be_compacted_at_the_latest(case: MakeCase) -> None:
    this = case(cleanup_policy=("compact",), min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=HOUR_MS)
    for _ in range(2):
        this.put((b"k", b"v"))
    this.log.sync()
    assert this.compact() == 0
    this.clock.advance(HOUR_MS + 1)
    assert this.compact() > 0
    assert len(this.records()) == 1


def test_where_nothing_is_new_the_loop_is_not_bothered(case: MakeCase) -> None:
    this = case(**COMPACT)
    this.fill()
    this.compact()
    asked = []

    def on_loop(step: Callable[[], Any]) -> Any:
        asked.append(step)
        return step()

    assert take_steps(this.cleaning.compact(this.clock.now_ms(), MEMORY), on_loop) == 0
    assert take_steps(this.cleaning.retain(this.clock.now_ms()), on_loop) == 0
    assert asked == []


def test_a_tombstone_goes_once_everybody_has_had_time_to_see_it(case: MakeCase) -> None:
    this = case(**COMPACT, delete_retention_ms=DAY_MS)
    this.put((b"gone", b"value"), (b"stays", b"value"))
    this.end()
    this.put((b"gone", None))
    this.end()
    this.compact()
    assert this.keys == [b"stays", b"gone"]
    this.clock.advance(DAY_MS - 1)
    this.fill(1)
    this.compact()
    assert b"gone" in this.keys
    this.clock.advance(1)
    this.fill(1)
    this.compact()
    assert b"gone" not in this.keys


def test_what_was_aborted_goes_and_what_is_open_waits(case: MakeCase) -> None:
    this = case(**COMPACT)
    transactional = {"producer_epoch": 0, "base_sequence": 0, "attributes": TRANSACTIONAL}
    this.put((b"kept", b"1"))
    this.put((b"aborted", b"1"), producer_id=7, **transactional)
    this.log.append_marker(7, 0, commits=False)
    this.end()
    this.put((b"open", b"1"), producer_id=8, **transactional)
    this.end()
    this.compact()
    assert [key for key in this.keys if key in {b"kept", b"aborted", b"open"}] == [b"kept", b"open"]
    this.put((b"open", b"2"))
    this.fill()
    this.compact()
    assert this.keys.count(b"open") == 2
    this.log.append_marker(8, 0, commits=True)
    this.end()
    this.compact()
    assert this.keys.count(b"open") == 1
    this.clock.advance(DAY_MS)
    for _ in range(2):
        this.fill(1)
        this.compact()
    assert this.log.aborted_transactions(0, this.log.end_offset) == []


def test_a_retry_is_recognised_though_the_records_have_been_compacted(case: MakeCase) -> None:
    this = case(**COMPACT)
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    this.put((b"k", b"1"), (b"k", b"2"), **producer)
    this.fill(keys=1)
    this.put((b"k", b"3"))
    this.end()
    this.compact()
    this.restart()
    again = encode_batch([Record(timestamp_ms=1, key=b"k", value=b"")] * 2, **producer)
    appended = this.log.append(again, size_bytes_max=SIZE_MAX)
    assert (appended.duplicate, appended.base_offset) == (True, 0)


def test_searches_by_time_work_on_what_is_left(case: MakeCase) -> None:
    this = case(**COMPACT)
    for number in range(12):
        this.put((b"key %d" % (number % 3), bytes(200)), at=1000 + number)
    this.end()
    this.compact()
    for restarts in (False, True):
        if restarts:
            this.restart()
        assert this.log.offset_for_timestamp(0) == TimestampedOffset(9, 1009)
        assert this.log.offset_for_timestamp(1010) == TimestampedOffset(10, 1010)
        assert this.log.offset_for_timestamp(1012) is None
        assert this.log.max_timestamp() == TimestampedOffset(11, 1011)


def test_damage_stops_the_compaction_and_changes_nothing(case: MakeCase) -> None:
    this = case(**COMPACT)
    this.fill()
    path = this.directory / f"{this.bases[1]:020d}.log"
    content = bytearray(this.disk.content(path))
    content[100] ^= 1
    this.disk.overwrite(path, bytes(content))
    last = this.bases
    with pytest.raises(CorruptBatch, match=rf"{path.name}, byte 0, offset {this.bases[1]} or later"):
        this.compact()
    assert this.bases[: len(last)] == last
    assert this.strays == []


@pytest.mark.parametrize("operation", ["append", "sync_file", "open", "read"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_a_disk_that_is_full_leaves_everything_as_it_was_and_it_can_be_tried_again(
    case: MakeCase, operation: str, code: int
) -> None:
    this = case(**COMPACT)
    this.fill()
    last = {record.key: record for record in this.records()}
    this.disk.fail(operation, code, after=1)
    with pytest.raises(OSError):  # noqa: PT011  # Which one is for the test's parameters to say.
        this.compact()
    assert this.strays == []
    assert this.compact() > 0
    assert {record.key: record for record in this.records()} == last


def test_a_swap_that_can_not_be_made_certain_stops_all_writes(case: MakeCase) -> None:
    this = case(**COMPACT)
    this.fill()
    last = {record.key: record for record in this.records()}
    this.disk.fail("rename", after=1)
    with pytest.raises(StorageError, match="putting a compacted segment"):
        this.compact()
    assert {record.key: record for record in this.records()} == last
    with pytest.raises(StorageError, match="no writes are taken"):
        this.put((b"k", b"v"))
    this.disk.crash(Random(1))
    this.open()
    assert {record.key: record for record in this.records()} == last
    assert this.strays == []


def test_a_compacted_segment_can_be_read_before_its_file_has_its_name(
    case: MakeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    this = case(**COMPACT)
    this.fill()
    last = {record.key: record for record in this.records()}
    read = []

    def finish_late(*place: Any) -> None:
        this.log._storage.files._make_room(0)
        read.append({record.key: record for record in this.records()})
        finish_swap(*place)

    monkeypatch.setattr("headrace.log.cleaning.finish_swap", finish_late)
    this.compact()
    assert read
    assert all(each == last for each in read)
    this.log._storage.files._make_room(0)
    assert {record.key: record for record in this.records()} == last


def test_records_that_are_deleted_meanwhile_stay_deleted(case: MakeCase) -> None:
    this = case(cleanup_policy=("compact", "delete"), min_cleanable_dirty_ratio=0.0)
    this.fill()
    deleted = False

    def on_loop(step: Callable[[], Any]) -> Any:
        nonlocal deleted
        if this.strays and not deleted:
            deleted = True
            delete_records(this.log, this.bases[2])
        return step()

    take_steps(this.cleaning.compact(this.clock.now_ms(), MEMORY), on_loop)
    assert deleted
    assert this.strays == []
    start = this.log.start_offset
    assert start > 0
    with pytest.raises(OffsetOutOfRange):
        this.log.read(0, size_bytes_max=1)
    this.compact()
    this.retain()
    this.restart()
    assert this.log.start_offset == start
    assert set(this.keys) == {b"key 0", b"key 1", b"key 2"}


def test_old_segments_go_and_the_next_offset_stays_though_nothing_is_left(case: MakeCase) -> None:
    this = case(retention_ms=HOUR_MS)
    this.fill(6)
    this.clock.advance(HOUR_MS)
    this.fill(6)
    middle = this.records()[12].offset
    this.clock.advance(1)
    assert this.retain() > 0
    assert this.log.start_offset == middle
    this.put((b"k", b"idle"))
    end_offset = this.log.end_offset
    this.clock.advance(2 * HOUR_MS)
    assert this.retain() > 0
    assert (this.log.start_offset, this.log.end_offset) == (end_offset, end_offset)
    assert this.bases == [end_offset]
    this.restart()
    assert (this.log.start_offset, this.log.end_offset) == (end_offset, end_offset)
    this.put((b"k", b"next"))
    assert this.records()[0].offset == end_offset


def test_a_partition_keeps_its_size(case: MakeCase) -> None:
    this = case(retention_bytes=3_000)
    for _ in range(10):
        this.fill(4)
        this.retain()
        assert 3_000 <= this.log.size_bytes < 3_000 + 1_024 or this.log.start_offset == 0
    assert this.log.start_offset > 0


def test_retention_looks_at_segments_of_an_earlier_process_too(case: MakeCase) -> None:
    this = case(retention_ms=HOUR_MS)
    this.fill(6)
    this.restart()
    assert this.retain() == 0
    this.clock.advance(HOUR_MS + 1)
    assert this.retain() > 0


def test_a_damaged_index_does_not_make_records_older(case: MakeCase) -> None:
    this = case(retention_ms=HOUR_MS)
    this.fill(6, at=5)
    this.fill(6)
    for base in this.bases:
        path = this.directory / f"{base:020d}.timeindex"
        if path.name in this.disk.names(this.directory) and (times := this.disk.content(path)):
            this.disk.overwrite(path, (5).to_bytes(8, "big") + times[8:])
    this.restart()
    this.clock.advance(1)
    this.retain()
    assert len(this.records()) == 12


def test_an_event_of_the_next_century_goes_with_its_file(case: MakeCase) -> None:
    this = case(retention_ms=HOUR_MS, message_timestamp_after_max_ms=LONG_MAX)
    this.put((b"k", b"v"), at=this.clock.now_ms() * 2)
    this.end()
    this.fill(2)
    assert this.retain() == 0
    this.clock.advance(HOUR_MS + 1)
    assert this.retain() > 0
    assert this.records() == []


@pytest.mark.parametrize("deletes", [False, True])
def test_nothing_is_lost_wherever_in_a_compaction_the_power_goes(partition_dir: Path, deletes: bool) -> None:
    """The power goes at each step of the disk in turn; afterwards the compaction is done again."""
    this = Case(partition_dir, **COMPACT)
    this.fill(6)
    this.compact()
    this.fill(4)
    this.put((b"active", b"value"))
    this.log.close()
    last = {record.key: record for record in _reopened(this, deepcopy(this.disk)).records()}
    step = 0
    is_finished = False
    while not is_finished:
        disk = deepcopy(this.disk)
        disk.lose_power_after(step)
        try:
            case = _reopened(this, disk)
            case.compact()
            is_finished = True
        except PowerLoss:
            pass
        if deletes:
            disk.kill()
        else:
            disk.crash(Random(step))
        case = _reopened(this, disk)
        assert {record.key: record for record in case.records()} == last, step
        assert case.strays == [], step
        case.compact()
        assert len(case.records()) == 4, step
        assert case.log.end_offset == 21, step
        step += 1
    assert step > 50


@pytest.mark.parametrize("seed", range(3))
def test_nothing_comes_back_wherever_in_a_retention_the_power_goes(partition_dir: Path, seed: int) -> None:
    this = Case(partition_dir, retention_bytes=0)
    this.fill(12)
    this.put((b"k", b"v"))
    this.log.close()
    step = 0
    is_finished = False
    while not is_finished:
        disk = deepcopy(this.disk)
        disk.lose_power_after(step)
        start_offset = 0
        try:
            case = _reopened(this, disk)
            case.retain()
            start_offset = case.log.start_offset
            is_finished = True
        except PowerLoss:
            pass
        disk.crash(Random(step + 1_000 * seed))
        case = _reopened(this, disk)
        assert case.log.start_offset >= start_offset, step
        assert case.log.end_offset == 25, step
        case.retain()
        assert case.bases == [25], step
        step += 1
    assert step > 10


def _reopened(this: Case, disk: SimulatedDisk) -> Case:
    settings = this.settings
    return Case(
        this.directory,
        disk,
        cleanup_policy=settings.cleanup_policy,
        min_cleanable_dirty_ratio=settings.min_cleanable_dirty_ratio,
        retention_bytes=settings.retention_bytes,
    )
