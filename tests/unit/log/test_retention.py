"""Retention decided on paper: which segments have had their time, and by which time that is judged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import HOUR_MS
from headrace.log.index import NO_TIMESTAMP
from headrace.log.retention import SegmentExtent, SegmentTimes, age_ms, start_after_retention
from headrace.log.topic_settings import TopicSettings
from headrace.log.trusted_time import TrustedTime
from headrace.testing.clock import ManualClock

NOW_MS = 1_700_000_000_000


def extents(*sizes: int) -> list[SegmentExtent]:
    """Segments of ten offsets each."""
    return [
        SegmentExtent(base_offset=10 * number, end_offset=10 * number + 10, size_bytes=size)
        for number, size in enumerate(sizes)
    ]


def start(
    sizes: list[int], newest_ms: list[int] | None = None, written_ms: int = NOW_MS, **settings: object
) -> int | None:
    times = newest_ms or [NOW_MS] * len(sizes)
    return start_after_retention(
        extents(*sizes),
        TopicSettings(**settings),  # type: ignore[arg-type] # Each test knows its own.
        lambda number: SegmentTimes(newest_ms=times[number], written_ms=written_ms),
        NOW_MS,
    )


@pytest.mark.parametrize(
    ("retention_bytes", "expected"), [(-1, None), (0, 30), (29, 20), (30, 20), (31, 10), (50, 10), (51, None)]
)
def test_the_oldest_segments_go_as_long_as_the_rest_is_large_enough(
    retention_bytes: int, expected: int | None
) -> None:
    assert start([10, 20, 30], retention_bytes=retention_bytes) == expected


def test_segments_go_once_their_newest_record_is_older_than_is_kept() -> None:
    newest = [NOW_MS - 300, NOW_MS - 101, NOW_MS - 100]
    assert start([1, 1, 1], newest, retention_ms=100) == 20
    assert start([1, 1, 1], newest, retention_ms=99) == 30
    assert start([1, 1, 1], newest, retention_ms=300) is None
    assert start([1, 1, 1], newest, retention_ms=-1) is None


def test_the_first_segment_that_stays_keeps_all_after_it() -> None:
    assert start([1, 1, 1], [NOW_MS - 500, NOW_MS, NOW_MS - 500], retention_ms=100) == 10


def test_what_goes_for_its_size_goes_first_and_time_decides_on_the_rest() -> None:
    newest = [NOW_MS, NOW_MS - 500, NOW_MS]
    assert start([10, 10, 10], newest, retention_ms=100, retention_bytes=15) == 20


@pytest.mark.parametrize("policy", [(), ("compact",)])
def test_nothing_goes_unless_the_policy_says_so(policy: tuple[str, ...]) -> None:
    assert start([10], [0], retention_ms=0, retention_bytes=0, cleanup_policy=policy) is None


def test_nothing_goes_from_a_log_without_segments() -> None:
    assert start([], retention_ms=0, retention_bytes=0) is None


def test_times_are_asked_for_only_where_they_decide() -> None:
    def never(number: int) -> SegmentTimes:
        raise AssertionError(number)

    assert start_after_retention(extents(10, 10), TopicSettings(retention_bytes=10), never, NOW_MS) == 10


@pytest.mark.parametrize("newest_ms", [NOW_MS + 1, NOW_MS * 2, NO_TIMESTAMP])
def test_a_segment_that_is_dated_to_the_future_or_not_at_all_is_as_old_as_its_file(newest_ms: int) -> None:
    assert age_ms(SegmentTimes(newest_ms=newest_ms, written_ms=NOW_MS - 70), NOW_MS) == 70
    assert age_ms(SegmentTimes(newest_ms=newest_ms, written_ms=NOW_MS + 70), NOW_MS) == 0


def test_one_event_of_the_next_century_does_not_keep_everything_after_it() -> None:
    newest = [NOW_MS * 3, NOW_MS - 400, NOW_MS]
    assert start([1, 1, 1], newest, written_ms=NOW_MS - 500, retention_ms=300) == 20
    assert start([1, 1, 1], newest, written_ms=NOW_MS - 200, retention_ms=300) is None


class Clocks(ManualClock):
    """Two clocks, and the time that is trusted by them."""

    def __init__(self) -> None:
        super().__init__(NOW_MS)
        self._trusted = TrustedTime(self.now_ms(), self.monotonic_s())

    def error_ms(self) -> int:
        """How far the trusted time is from what it would be had nobody touched the clock."""
        trusted = self._trusted.now_ms(self.now_ms(), self.monotonic_s())
        return trusted - NOW_MS - int(self.monotonic_s() * 1000)


def test_the_clock_is_believed_while_it_goes_as_it_should() -> None:
    clocks = Clocks()
    for _ in range(10):
        clocks.advance(HOUR_MS)
        assert clocks.error_ms() == 0


def test_a_small_correction_is_believed() -> None:
    clocks = Clocks()
    clocks.jump(59_000)
    assert clocks.error_ms() == 59_000


def test_a_jump_ahead_is_not_believed_and_is_forgotten_when_it_is_undone() -> None:
    clocks = Clocks()
    clocks.jump(365 * 24 * HOUR_MS)
    for _ in range(6):
        assert clocks.error_ms() == 0
        clocks.advance(HOUR_MS // 10)
    clocks.jump(-365 * 24 * HOUR_MS)
    assert clocks.error_ms() == 0
    clocks.jump(365 * 24 * HOUR_MS)
    clocks.advance(HOUR_MS - 1)
    assert clocks.error_ms() == 0


def test_a_jump_ahead_that_lasts_is_believed_in_the_end() -> None:
    clocks = Clocks()
    clocks.jump(8 * HOUR_MS)
    assert clocks.error_ms() == 0
    clocks.advance(HOUR_MS)
    assert clocks.error_ms() == 8 * HOUR_MS


def test_a_clock_that_goes_back_is_believed_at_once_since_it_deletes_nothing() -> None:
    clocks = Clocks()
    clocks.jump(-HOUR_MS)
    assert clocks.error_ms() == -HOUR_MS


@given(st.lists(st.tuples(st.integers(0, 100_000), st.integers(-(10**10), 10**10)), max_size=30))
def test_trusted_time_never_runs_ahead_of_the_clock(steps: list[tuple[int, int]]) -> None:
    clocks = ManualClock(NOW_MS)
    trusted = TrustedTime(clocks.now_ms(), clocks.monotonic_s())
    for passed_ms, jump_ms in steps:
        clocks.advance(passed_ms)
        clocks.jump(jump_ms)
        assert trusted.now_ms(clocks.now_ms(), clocks.monotonic_s()) <= clocks.now_ms()
