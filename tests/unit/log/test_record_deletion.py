"""Deleting records: the log's start moves, for good, and no offset comes back."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random

import pytest

from headrace.clock import Clock
from headrace.config import LONG_MAX
from headrace.errors import OffsetOutOfRange, PartitionClosed, StorageError, TooManyOpenFiles
from headrace.log.batch import read_header, split_batches
from headrace.log.log_start import LOG_START_NAME
from headrace.log.partition import PartitionLog
from headrace.log.timestamps import TimestampedOffset
from headrace.log.topic_settings import TopicSettings
from headrace.testing.disk import PowerLoss, SimulatedDisk
from headrace.testing.partition import delete_records, open_log

MakeBatch = Callable[..., bytes]
OpenPartition = Callable[..., PartitionLog]
SIZE_MAX = 1_000_000


def fill(log: PartitionLog, make_batch: MakeBatch, count: int, *, value: bytes = bytes(300)) -> None:
    """Batches of two records, two or three batches to a segment."""
    for number in range(log.end_offset // 2, log.end_offset // 2 + count):
        log.append(make_batch(2, at=[100 * number, 100 * number + 1], value=value), size_bytes_max=SIZE_MAX)
    log.sync()


def bases(disk: SimulatedDisk, directory: Path, suffix: str = "log") -> list[int]:
    return [int(name[:20]) for name in disk.names(directory) if name.endswith(f".{suffix}")]


def test_records_below_the_offset_are_gone_and_the_rest_is_as_it_was(
    open_partition: OpenPartition, make_batch: MakeBatch
) -> None:
    log = open_partition()
    fill(log, make_batch, 10)
    kept = log.read(13, size_bytes_max=SIZE_MAX)
    assert delete_records(log, 13) == log.start_offset == 13
    for offset in (0, 12):
        with pytest.raises(OffsetOutOfRange, match="13 to 20"):
            log.read(offset, size_bytes_max=1)
    assert log.read(13, size_bytes_max=SIZE_MAX) == kept
    assert read_header(kept).base_offset == 12, "the batch that holds the offset comes as a whole"
    assert log.end_offset == 20


def test_whole_segments_lose_their_files_and_the_others_keep_theirs(
    open_partition: OpenPartition, make_batch: MakeBatch, disk: SimulatedDisk, partition_dir: Path
) -> None:
    log = open_partition()
    fill(log, make_batch, 10)
    before = bases(disk, partition_dir)
    size_bytes = log.size_bytes
    delete_records(log, before[2] + 1)
    assert bases(disk, partition_dir) == before[2:]
    for suffix in ("index", "timeindex", "txnindex", "snapshot"):
        assert not set(bases(disk, partition_dir, suffix)) & set(before[:2])
    assert log.size_bytes < size_bytes


def test_files_that_a_crash_has_left_go_when_the_log_is_opened(
    open_partition: OpenPartition, make_batch: MakeBatch, disk: SimulatedDisk, partition_dir: Path
) -> None:
    log = open_partition()
    fill(log, make_batch, 10)
    before = bases(disk, partition_dir)
    change = log.begin_record_deletion(before[2] + 1)
    change.run()
    change.finish()
    disk.kill()
    assert bases(disk, partition_dir) == before
    open_partition()
    assert bases(disk, partition_dir) == before[2:]


def test_a_reader_in_the_middle_is_not_disturbed_before_the_deletion_is_finished(
    open_partition: OpenPartition, make_batch: MakeBatch
) -> None:
    log = open_partition()
    fill(log, make_batch, 10)
    first = log.read(0, size_bytes_max=1)
    change = log.begin_record_deletion(20)
    change.run()
    assert log.read(0, size_bytes_max=1) == first
    assert change.finish() == 20
    with pytest.raises(OffsetOutOfRange):
        log.read(0, size_bytes_max=1)
    assert log.read(20, size_bytes_max=1) == b""


def test_of_two_deletions_at_once_the_further_one_holds_whatever_their_order(
    open_partition: OpenPartition, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_partition()
    fill(log, make_batch, 10)
    further, nearer = log.begin_record_deletion(15), log.begin_record_deletion(5)
    further.run()
    nearer.run()
    assert (further.finish(), nearer.finish()) == (15, 15)
    disk.crash(Random(1))
    assert open_partition().start_offset == 15


def test_deleting_what_is_deleted_changes_nothing(
    open_partition: OpenPartition, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_partition()
    fill(log, make_batch, 5)
    delete_records(log, 7)
    steps = disk.steps
    assert delete_records(log, 3) == 7
    assert disk.steps == steps


@pytest.mark.parametrize("offset", [-1, 11])
def test_an_offset_that_is_not_there_can_not_be_deleted_up_to(
    open_partition: OpenPartition, make_batch: MakeBatch, offset: int
) -> None:
    log = open_partition()
    fill(log, make_batch, 5)
    with pytest.raises(OffsetOutOfRange, match=f"0 to 10, so nothing can be deleted up to {offset}"):
        log.begin_record_deletion(offset)


@pytest.mark.parametrize("offset", [7, 10])
def test_the_log_begins_and_ends_where_it_did_after_a_restart(
    open_partition: OpenPartition, make_batch: MakeBatch, offset: int
) -> None:
    log = open_partition()
    fill(log, make_batch, 5)
    delete_records(log, offset)
    log.close()
    log = open_partition()
    assert (log.start_offset, log.end_offset) == (offset, 10)
    appended = log.append(make_batch(), size_bytes_max=SIZE_MAX)
    assert appended.base_offset == 10


def test_offsets_are_not_given_again_though_every_segment_is_lost(
    open_partition: OpenPartition, make_batch: MakeBatch, disk: SimulatedDisk, partition_dir: Path
) -> None:
    log = open_partition()
    fill(log, make_batch, 5)
    delete_records(log, 10)
    log.close()
    for name in disk.names(partition_dir):
        if name != LOG_START_NAME:
            disk.unlink(partition_dir / name)
    log = open_partition()
    assert (log.start_offset, log.end_offset) == (10, 10)
    assert log.append(make_batch(), size_bytes_max=SIZE_MAX).base_offset == 10


def test_offsets_are_not_given_again_though_the_end_was_lost_before_it_was_synced(
    open_partition: OpenPartition, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_partition(segment_bytes_max=100_000)
    log.append(make_batch(3), size_bytes_max=SIZE_MAX)
    log.sync()
    log.append(make_batch(5), size_bytes_max=SIZE_MAX)
    delete_records(log, 8)
    log.append(make_batch(2), size_bytes_max=SIZE_MAX)
    ends = set()
    for seed in range(20):
        copy = deepcopy(disk)
        copy.crash(Random(seed))
        reopened = open_log(log.directory, log.settings, log._clock, disk=copy)
        assert reopened.start_offset == 8
        ends.add(reopened.end_offset)
        end = reopened.end_offset
        assert reopened.append(make_batch(), size_bytes_max=SIZE_MAX).base_offset == end
        reopened.close()
        again = open_log(log.directory, log.settings, log._clock, disk=copy)
        assert (again.start_offset, again.end_offset) == (8, end + 1)
    assert ends == {8, 10}


def test_searches_by_time_find_nothing_that_was_deleted(
    open_partition: OpenPartition, make_batch: MakeBatch
) -> None:
    log = open_partition(segment_bytes_max=100_000)
    log.append(make_batch(at=[10, 900, 20, 30]), size_bytes_max=SIZE_MAX)
    log.append(make_batch(at=[40, 35]), size_bytes_max=SIZE_MAX)
    delete_records(log, 2)
    assert log.offset_for_timestamp(0) == TimestampedOffset(2, 20)
    assert log.offset_for_timestamp(25) == TimestampedOffset(3, 30)
    assert log.offset_for_timestamp(31) == TimestampedOffset(4, 40)
    assert log.offset_for_timestamp(41) is None
    delete_records(log, 4)
    assert log.max_timestamp() == TimestampedOffset(4, 40)


def test_a_start_that_can_not_be_read_stops_the_opening_and_says_what_to_do(
    open_partition: OpenPartition, make_batch: MakeBatch, disk: SimulatedDisk, partition_dir: Path
) -> None:
    log = open_partition()
    fill(log, make_batch, 5)
    delete_records(log, 7)
    log.close()
    for content in (
        b"",
        b"{}",
        b'{"format": 2, "log_start_offset": 7}',
        b'{"format": 1, "log_start_offset": -7}',
    ):
        disk.overwrite(partition_dir / LOG_START_NAME, content)
        with pytest.raises(StorageError, match="remove it to have back"):
            open_partition()
    disk.overwrite(partition_dir / LOG_START_NAME, json.dumps({"format": 1, "log_start_offset": 7}).encode())
    assert open_partition().start_offset == 7


def test_nothing_is_deleted_when_no_file_can_be_opened_and_it_can_be_tried_again(
    open_partition: OpenPartition, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_partition()
    fill(log, make_batch, 5)
    disk.fail("open", errno.EMFILE)
    with pytest.raises(TooManyOpenFiles):
        delete_records(log, 7)
    assert log.start_offset == 0
    assert delete_records(log, 7) == 7


def test_a_disk_that_fails_to_keep_the_start_takes_no_more_writes(
    open_partition: OpenPartition, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_partition()
    fill(log, make_batch, 5)
    disk.fail("sync_file", errno.EIO)
    with pytest.raises(StorageError, match="deleting records"):
        delete_records(log, 7)
    assert log.start_offset == 0
    with pytest.raises(StorageError, match="no writes are taken"):
        log.append(make_batch(), size_bytes_max=SIZE_MAX)


def test_a_partition_that_was_closed_meanwhile_is_left_alone(
    open_partition: OpenPartition, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_partition()
    fill(log, make_batch, 5)
    change = log.begin_record_deletion(7)
    log.close()
    steps = disk.steps
    change.run()
    with pytest.raises(PartitionClosed):
        change.finish()
    assert log.remove_deleted_files() == 0
    assert disk.steps == steps


def test_what_was_deleted_stays_deleted_wherever_the_power_goes(
    clock: Clock, partition_dir: Path, make_batch: MakeBatch
) -> None:
    """The power goes at each step of a life in which records are appended and deleted."""
    for seed in range(150):
        random = Random(seed)
        disk = SimulatedDisk()
        started, acknowledged_start, acknowledged_end, appended_end = 0, 0, 0, 0
        for _ in range(3):
            disk.lose_power_after(random.randint(0, 60))
            settings = TopicSettings(segment_bytes=1024, segment_ms=LONG_MAX)
            try:
                log = open_log(partition_dir, settings, clock, disk=disk)
                assert acknowledged_start <= log.start_offset <= max(started, acknowledged_start), seed
                assert acknowledged_end <= log.end_offset <= appended_end, seed
                assert offsets(log) == list(range(log.start_offset, log.end_offset)), seed
                appended_end = acknowledged_end = log.end_offset
                for _ in range(8):
                    if random.random() < 0.5:
                        appended_end += 3
                        log.append(make_batch(3, value=random.randbytes(200)), size_bytes_max=SIZE_MAX)
                    elif random.random() < 0.5:
                        log.sync()
                        acknowledged_end = log.durable_offset
                    else:
                        started = random.randint(log.start_offset, log.durable_offset)
                        acknowledged_start = delete_records(log, started)
            except PowerLoss:
                pass
            disk.crash(random)


def offsets(log: PartitionLog) -> list[int]:
    """All offsets that can be read."""
    found: list[int] = []
    offset = log.start_offset
    while data := log.read(offset, size_bytes_max=500):
        for batch in split_batches(data, SIZE_MAX):
            found += range(max(batch.header.base_offset, log.start_offset), batch.header.last_offset + 1)
        offset = found[-1] + 1
    return found
