"""When a partition is compacted, and what becomes one segment, decided on paper."""

from __future__ import annotations

import pytest

from headrace.log.compaction_plan import Plan, SealedSegment, group_by_size, plan_compaction
from headrace.log.index import NO_TIMESTAMP
from headrace.log.topic_settings import TopicSettings

NOW_MS = 1_000_000


def segments(*sizes: int, at: list[int] | None = None, span: int = 10) -> list[SealedSegment]:
    """Segments of so many offsets each."""
    times = at or [0] * len(sizes)
    return [
        SealedSegment(
            base_offset=span * number,
            end_offset=span * (number + 1),
            size_bytes=size,
            index_bytes=size // 10,
            first_ms=times[number],
            newest_ms=times[number],
        )
        for number, size in enumerate(sizes)
    ]


def plan(
    given: list[SealedSegment], compacted_below: int = 0, stable: int = 1_000, **settings: object
) -> Plan | None:
    return plan_compaction(
        given,
        TopicSettings(**{"cleanup_policy": ("compact",), **settings}),  # type: ignore[arg-type] # As each test likes.
        compacted_below=compacted_below,
        last_stable_offset=stable,
        now_ms=NOW_MS,
    )


def test_all_is_new_at_first() -> None:
    assert plan(segments(5, 5)) == Plan(segment_count=2, first_dirty_offset=0, end_offset=20)


@pytest.mark.parametrize(("dirty_bytes", "expected"), [(50, False), (51, True)])
def test_more_than_the_ratio_must_be_new(dirty_bytes: int, expected: bool) -> None:
    assert (plan(segments(50, dirty_bytes), compacted_below=10) is not None) is expected


def test_a_segment_of_which_a_part_is_new_counts_as_new() -> None:
    assert plan(segments(50, 51), 15) == Plan(segment_count=2, first_dirty_offset=15, end_offset=20)


def test_nothing_is_compacted_when_nothing_is_new_or_the_policy_is_another() -> None:
    assert plan(segments(5, 5), compacted_below=20, min_cleanable_dirty_ratio=0.0) is None
    assert plan(segments(5, 5), cleanup_policy=("delete",)) is None
    assert plan([]) is None


def test_it_ends_before_the_first_open_transaction() -> None:
    assert plan(segments(5, 5, 5), stable=20) == Plan(segment_count=2, first_dirty_offset=0, end_offset=20)
    assert plan(segments(5, 5, 5), stable=19) == Plan(segment_count=1, first_dirty_offset=0, end_offset=10)
    assert plan(segments(5, 5, 5), stable=9) is None


def test_it_ends_before_the_first_record_that_is_too_young() -> None:
    given = segments(5, 5, 5, at=[NOW_MS - 100, NOW_MS - 99, NOW_MS - 100])
    assert plan(given, min_compaction_lag_ms=100) == Plan(
        segment_count=1, first_dirty_offset=0, end_offset=10
    )
    assert plan(given, min_compaction_lag_ms=99) == Plan(segment_count=3, first_dirty_offset=0, end_offset=30)


def test_records_that_have_waited_long_enough_are_compacted_whatever_the_ratio_is() -> None:
    given = segments(90, 10, at=[0, NOW_MS - 101])
    assert plan(given, compacted_below=10, max_compaction_lag_ms=101) is None
    assert plan(given, compacted_below=10, max_compaction_lag_ms=100) is not None
    undated = segments(90, 10, at=[0, NO_TIMESTAMP])
    assert plan(undated, compacted_below=10, max_compaction_lag_ms=100) is None


def test_when_the_end_was_lost_all_begins_anew() -> None:
    assert plan(segments(5, 5), compacted_below=21) == Plan(
        segment_count=2, first_dirty_offset=0, end_offset=20
    )


def test_segments_become_one_as_long_as_that_fits() -> None:
    settings = TopicSettings(segment_bytes=100, segment_index_bytes=1_000)
    assert group_by_size(segments(60, 40, 1, 99, 100, 200, 10), settings) == [
        *(range(2), range(2, 4), range(4, 5), range(5, 6), range(6, 7)),
    ]
    small_index = TopicSettings(segment_bytes=100, segment_index_bytes=5)
    assert group_by_size(segments(30, 20, 10), small_index) == [range(2), range(2, 3)]
    far_apart = segments(1, 1, 1, span=2**30)
    assert group_by_size(far_apart, settings) == [range(1), range(1, 2), range(2, 3)]
