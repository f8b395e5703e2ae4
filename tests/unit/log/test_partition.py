from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.clock import Clock
from headrace.errors import BatchTooLarge, CorruptBatch, OffsetOutOfRange, OutOfOrderSequence, PartitionClosed
from headrace.log.batch import encode_batch, read_header, split_batches
from headrace.log.partition import PartitionLog
from headrace.log.record import Record
from headrace.log.timestamps import TimestampedOffset
from headrace.log.topic_settings import TopicSettings
from headrace.testing.disk import SimulatedDisk
from headrace.testing.partition import open_log

MakeBatch = Callable[..., bytes]
OpenPartition = Callable[..., PartitionLog]
SIZE_MAX = 1_000_000

batch_lists = st.lists(
    st.tuples(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(0, 200)),
    min_size=1,
    max_size=25,
)
"""Batches as (timestamps of the records, bytes in a value)."""


def _offsets(data: bytes) -> list[tuple[int, int]]:
    """First and last offset of each batch."""
    headers = [batch.header for batch in split_batches(data, SIZE_MAX)] if data else []
    return [(header.base_offset, header.last_offset) for header in headers]


def test_offsets_go_up_without_a_gap(open_partition: OpenPartition, make_batch: MakeBatch) -> None:
    log = open_partition()
    first = log.append(make_batch(3), size_bytes_max=SIZE_MAX)
    second = log.append(make_batch(1) + make_batch(2), size_bytes_max=SIZE_MAX)
    assert (first.base_offset, first.last_offset) == (0, 2)
    assert (second.base_offset, second.last_offset) == (3, 5)
    assert (log.start_offset, log.end_offset) == (0, 6)


def test_what_is_read_is_what_was_sent_but_for_its_place(
    open_partition: OpenPartition, make_batch: MakeBatch
) -> None:
    log = open_partition()
    sent = [make_batch(2, value=b"one"), make_batch(1, value=b"two", attributes=4)]
    for batch in sent:
        log.append(batch, size_bytes_max=SIZE_MAX)
    read = [bytes(batch.data) for batch in split_batches(log.read(0, size_bytes_max=SIZE_MAX), SIZE_MAX)]
    assert [each[16:] for each in read] == [each[16:] for each in sent]
    assert [read_header(each).base_offset for each in read] == [0, 2]


def test_reading_begins_with_the_batch_that_has_the_offset(
    open_partition: OpenPartition, make_batch: MakeBatch
) -> None:
    log = open_partition()
    for _ in range(3):
        log.append(make_batch(5), size_bytes_max=SIZE_MAX)
    assert _offsets(log.read(7, size_bytes_max=SIZE_MAX)) == [(5, 9), (10, 14)]


def test_reading_at_the_end_gives_nothing_and_past_it_is_refused(
    open_partition: OpenPartition, make_batch: MakeBatch
) -> None:
    log = open_partition()
    assert log.read(0, size_bytes_max=SIZE_MAX) == b""
    log.append(make_batch(5), size_bytes_max=SIZE_MAX)
    assert log.read(5, size_bytes_max=SIZE_MAX) == b""
    for offset in (-1, 6):
        with pytest.raises(OffsetOutOfRange, match=f"offsets 0 to 5, not {offset}"):
            log.read(offset, size_bytes_max=SIZE_MAX)


def test_one_batch_comes_however_small_the_maximum_is(
    open_partition: OpenPartition, make_batch: MakeBatch
) -> None:
    log = open_partition()
    for _ in range(3):
        log.append(make_batch(value=b"x" * 100), size_bytes_max=SIZE_MAX)
    assert _offsets(log.read(1, size_bytes_max=1)) == [(1, 1)]


def test_a_batch_that_reaches_the_limit_is_not_read(
    open_partition: OpenPartition, make_batch: MakeBatch
) -> None:
    log = open_partition()
    for _ in range(2):
        log.append(make_batch(5), size_bytes_max=SIZE_MAX)
    assert _offsets(log.read(0, size_bytes_max=SIZE_MAX, below_offset=10)) == [(0, 4), (5, 9)]
    assert _offsets(log.read(0, size_bytes_max=SIZE_MAX, below_offset=9)) == [(0, 4)]
    assert log.read(0, size_bytes_max=SIZE_MAX, below_offset=4) == b""
    assert log.read(7, size_bytes_max=SIZE_MAX, below_offset=5) == b""


def test_a_segment_that_would_grow_too_large_is_followed_by_another(
    open_partition: OpenPartition, make_batch: MakeBatch, disk: SimulatedDisk, partition_dir: Path
) -> None:
    log = open_partition(segment_bytes_max=1024)
    for _ in range(4):
        log.append(make_batch(2, value=b"x" * 200), size_bytes_max=SIZE_MAX)
    log.sync()
    assert disk.names(partition_dir) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000000.txnindex",
        "00000000000000000004.log",
        "00000000000000000004.snapshot",
        "checkpoint",
    ]
    assert _offsets(log.read(3, size_bytes_max=SIZE_MAX)) == [(2, 3)]
    assert _offsets(log.read(4, size_bytes_max=SIZE_MAX)) == [(4, 5), (6, 7)]


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(
    open_partition: OpenPartition, make_batch: MakeBatch
) -> None:
    log = open_partition(segment_bytes_max=1024)
    for value in (b"", b"x" * 3000, b""):
        log.append(make_batch(value=value), size_bytes_max=SIZE_MAX)
    assert [_offsets(log.read(n, size_bytes_max=SIZE_MAX)) for n in range(3)] == [
        [(0, 0)],
        [(1, 1)],
        [(2, 2)],
    ]


def test_a_refused_batch_leaves_no_trace(open_partition: OpenPartition, make_batch: MakeBatch) -> None:
    log = open_partition()
    log.append(make_batch(), size_bytes_max=SIZE_MAX)
    with pytest.raises(CorruptBatch):
        log.append(make_batch() + b"garbage", size_bytes_max=SIZE_MAX)
    with pytest.raises(BatchTooLarge):
        log.append(make_batch(value=b"x" * 500), size_bytes_max=100)
    assert log.end_offset == 1
    assert log.append(make_batch(), size_bytes_max=SIZE_MAX).base_offset == 1


def test_a_retry_of_an_idempotent_producer_is_answered_but_not_written(
    open_partition: OpenPartition, make_batch: MakeBatch
) -> None:
    log = open_partition()
    log.append(make_batch(3), size_bytes_max=SIZE_MAX)
    batch = make_batch(2, producer=(8, 0, 0))
    written = log.append(batch, size_bytes_max=SIZE_MAX)
    again = log.append(batch, size_bytes_max=SIZE_MAX)
    assert (written.duplicate, again.duplicate) == (False, True)
    assert (again.base_offset, again.last_offset) == (written.base_offset, written.last_offset) == (3, 4)
    assert log.end_offset == 5
    with pytest.raises(OutOfOrderSequence):
        log.append(make_batch(1, producer=(8, 0, 5)), size_bytes_max=SIZE_MAX)


def test_an_idempotent_producer_sends_one_batch_at_a_time(
    open_partition: OpenPartition, make_batch: MakeBatch
) -> None:
    two = make_batch(1, producer=(8, 0, 0)) + make_batch(1, producer=(8, 0, 1))
    with pytest.raises(CorruptBatch, match="2 batches of an idempotent producer"):
        open_partition().append(two, size_bytes_max=SIZE_MAX)


def test_nothing_is_durable_before_a_sync(open_partition: OpenPartition, make_batch: MakeBatch) -> None:
    log = open_partition(segment_bytes_max=1024)
    for _ in range(10):
        log.append(make_batch(value=b"x" * 300), size_bytes_max=SIZE_MAX)
    assert (log.durable_offset, log.end_offset) == (0, 10)
    log.sync()
    assert log.durable_offset == 10


def test_a_sync_with_nothing_new_does_not_touch_the_disk(
    open_partition: OpenPartition, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_partition()
    log.append(make_batch(), size_bytes_max=SIZE_MAX)
    log.sync()
    steps = disk.steps
    log.sync()
    assert disk.steps == steps


def test_an_append_is_one_write(
    open_partition: OpenPartition, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_partition()
    log.append(make_batch(), size_bytes_max=SIZE_MAX)
    steps = disk.steps
    log.append(make_batch() + make_batch(), size_bytes_max=SIZE_MAX)
    assert disk.steps == steps + 1


def test_a_closed_partition_refuses_everything(open_partition: OpenPartition, make_batch: MakeBatch) -> None:
    log = open_partition()
    log.append(make_batch(), size_bytes_max=SIZE_MAX)
    log.close()
    log.close()
    for call in (
        lambda: log.append(make_batch(), size_bytes_max=SIZE_MAX),
        lambda: log.read(0, size_bytes_max=SIZE_MAX),
        log.sync,
        lambda: log.offset_for_timestamp(0),
        log.max_timestamp,
    ):
        with pytest.raises(PartitionClosed, match="topic-0"):
            call()
    assert open_partition().end_offset == 1


def test_a_log_that_was_closed_goes_on_where_it_was(
    open_partition: OpenPartition, make_batch: MakeBatch
) -> None:
    log = open_partition()
    for _ in range(20):
        log.append(make_batch(3, value=b"x" * 100), size_bytes_max=SIZE_MAX)
    log.close()
    log = open_partition()
    assert (log.start_offset, log.durable_offset, log.end_offset, log.cut) == (0, 60, 60, None)
    assert log.append(make_batch(), size_bytes_max=SIZE_MAX).base_offset == 60


def test_a_time_leads_to_the_first_record_that_is_not_older(
    open_partition: OpenPartition, make_batch: MakeBatch
) -> None:
    log = open_partition()
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp() is None
    for times in ([10, 20], [15, 40, 30], [25]):
        log.append(make_batch(at=times), size_bytes_max=SIZE_MAX)
    assert log.offset_for_timestamp(0) == TimestampedOffset(0, 10)
    assert log.offset_for_timestamp(16) == TimestampedOffset(1, 20)
    assert log.offset_for_timestamp(21) == TimestampedOffset(3, 40)
    assert log.offset_for_timestamp(41) is None
    assert log.max_timestamp() == TimestampedOffset(3, 40)


def test_a_time_inside_a_compressed_batch_leads_to_its_first_offset(
    open_partition: OpenPartition, make_batch: MakeBatch
) -> None:
    log = open_partition()
    log.append(make_batch(at=[1, 2]), size_bytes_max=SIZE_MAX)
    log.append(make_batch(at=[10, 20, 30], attributes=1), size_bytes_max=SIZE_MAX)
    assert log.offset_for_timestamp(15) == TimestampedOffset(2, 30)


@given(batch_lists, st.integers(1, 600), st.booleans())
def test_every_lookup_agrees_with_a_walk_over_all_batches(
    clock: Clock,
    partition_dir: Path,
    batches: list[tuple[list[int], int]],
    index_interval_bytes: int,
    reopen: bool,
) -> None:
    settings = TopicSettings(segment_bytes=1024, index_interval_bytes=index_interval_bytes)
    disk = SimulatedDisk()
    log = open_log(partition_dir, settings, clock, disk=disk)
    times: list[int] = []
    ends: list[int] = []
    for batch_times, value_bytes in batches:
        records = [Record(timestamp_ms=time, key=None, value=bytes(value_bytes)) for time in batch_times]
        log.append(encode_batch(records), size_bytes_max=SIZE_MAX)
        times += batch_times
        ends += [len(times)]
    if reopen:
        log.close()
        log = open_log(partition_dir, settings, clock, disk=disk)
    for offset in range(len(times)):
        first_end = next(end for end in ends if end > offset)
        limit = min(len(times), offset + 5)
        read = _offsets(log.read(offset, size_bytes_max=300, below_offset=limit))
        assert (not read) == (first_end > limit)
        if read:
            assert read[0][0] <= offset <= read[0][1] == first_end - 1
            assert read[-1][1] < limit
    for time in range(-1, 32):
        found = log.offset_for_timestamp(time)
        expected = next((TimestampedOffset(n, each) for n, each in enumerate(times) if each >= time), None)
        assert found == expected
    assert log.max_timestamp() == TimestampedOffset(times.index(max(times)), max(times))


@given(batch_lists, st.integers(0, 2000))
def test_reading_on_from_the_last_offset_gives_every_batch_once(
    clock: Clock, partition_dir: Path, batches: list[tuple[list[int], int]], size_bytes_max: int
) -> None:
    settings = TopicSettings(segment_bytes=1024, index_interval_bytes=200)
    log = open_log(partition_dir, settings, clock, disk=SimulatedDisk())
    for batch_times, value_bytes in batches:
        records = [Record(timestamp_ms=time, key=None, value=bytes(value_bytes)) for time in batch_times]
        log.append(encode_batch(records), size_bytes_max=SIZE_MAX)
    seen: list[tuple[int, int]] = []
    while data := log.read(seen[-1][1] + 1 if seen else 0, size_bytes_max=size_bytes_max):
        got = _offsets(data)
        assert len(data) <= size_bytes_max or len(got) == 1
        seen += got
    ends = [last for _, last in seen]
    assert len(seen) == len(batches)
    assert [first for first, _ in seen] == [0, *(last + 1 for last in ends[:-1])]
    assert ends[-1] == log.end_offset - 1
