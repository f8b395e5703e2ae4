"""Which micro-batch each row came with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from headrace.streams.progress_log import Batch, ProgressLog
from headrace.streams.spans import Span
from headrace.streams.timeline.cuts import (
    assumed_batches,
    batches_of,
    cuts_in,
    last_cuts,
    real_cuts,
    span_of,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
PLACE = pa.struct(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
)


def rows(*places: tuple[int, int, int]) -> pa.Table:
    """By partition, offset, and second of writing."""
    told = [
        {
            "topic": "a-topic",
            "partition": partition,
            "offset": offset,
            "timestamp": START + timedelta(seconds=s),
        }
        for partition, offset, s in places
    ]
    return pa.table({"_kafka": pa.array(told, PLACE)})


def batch(number: int, *ends: int) -> Batch:
    offsets = {("a-topic", partition): end for partition, end in enumerate(ends)}
    return Batch(number=number, ends=(offsets,), watermark_ms=0, shuffle_partition_count=1)


def log(*batches: Batch, committed: int | None) -> ProgressLog:
    return ProgressLog(starts=({("a-topic", 0): 2},), batches=batches, committed=committed)


def test_batches_are_those_that_are_done_and_a_partition_that_came_later_begins_at_its_first_record() -> None:
    cuts = real_cuts(log(batch(0, 5), batch(1, 5, 3), batch(2, 9, 9), committed=1))
    assert [cut.batch for cut in cuts] == [0, 1]
    assert batches_of(
        rows((0, 1, 0), (0, 2, 0), (0, 4, 0), (0, 5, 0), (1, 0, 0), (1, 3, 0)), cuts
    ).tolist() == [
        -1,
        0,
        0,
        -1,
        1,
        -1,
    ]
    span = span_of(cuts)
    assert span.starts == {("a-topic", 0): 2, ("a-topic", 1): 0}
    assert span.ends == {("a-topic", 0): 5, ("a-topic", 1): 3}


def test_a_batch_whose_begin_is_not_known_any_more_is_left_out() -> None:
    cuts = real_cuts(log(batch(7, 50), batch(8, 60), batch(9, 75), committed=9))
    assert [(cut.batch, cut.offset_count) for cut in cuts] == [(8, 10), (9, 15)]
    assert real_cuts(log(batch(0, 5), committed=None)) == []


def test_the_last_batches_are_whole_and_at_least_one() -> None:
    cuts = real_cuts(log(batch(0, 12), batch(1, 22), batch(2, 25), committed=2))
    assert [cut.batch for cut in last_cuts(cuts, 1)] == [2]
    assert [cut.batch for cut in last_cuts(cuts, 13)] == [1, 2]
    assert [cut.batch for cut in last_cuts(cuts, 1000)] == [0, 1, 2]


def test_batches_are_chosen_by_what_they_have_of_a_part_of_the_log() -> None:
    cuts = real_cuts(log(batch(0, 12), batch(1, 22), batch(2, 25), committed=2))
    place = ("a-topic", 0)
    assert [cut.batch for cut in cuts_in(cuts, Span(starts={place: 11}, ends={place: 13}))] == [0, 1]
    assert [cut.batch for cut in cuts_in(cuts, Span(starts={place: 12}, ends={place: 22}))] == [1]
    assert cuts_in(cuts, Span(starts={place: 25}, ends={place: 30})) == []
    # One in between moves the watermark, too, whatever it has.
    apart = real_cuts(log(batch(0, 12, 0), batch(1, 12, 5), batch(2, 25, 5), committed=2))
    assert [cut.batch for cut in cuts_in(apart, Span(starts={place: 11}, ends={place: 13}))] == [0, 1, 2]
    assert cuts_in(cuts, Span(starts={("b", 0): 0}, ends={("b", 0): 30})) == []


def test_assumed_batches_follow_the_time_of_writing_and_never_the_log_backwards() -> None:
    found = rows((0, 0, 10), (0, 1, 1), (1, 0, 2), (1, 1, 3), (0, 2, 11))
    # The second of the first partition lies behind one that was written at 10.
    assert assumed_batches(found, 2).tolist() == [1, 1, 0, 0, 2]
