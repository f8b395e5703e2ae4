"""How late rows are, judged by all that came before them although no one has seen all of it."""

from __future__ import annotations

from bisect import bisect
from itertools import accumulate

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.streams.time.lateness import LatenessRun, lateness_counts, lateness_runs

MS = 1_000


def counts_of(times: list[int], newest_us: int | None = None) -> tuple[int, ...]:
    return lateness_counts(lateness_runs(np.array(times, np.int64)), newest_us)


def naive(times: list[int], newest_us: int | None) -> list[int]:
    """How late each row was, in microseconds."""
    before = times[0] if newest_us is None else newest_us
    newest = list(accumulate(times, max, initial=before))[1:]
    return [most - time for most, time in zip(newest, times, strict=True)]


def entry_of(late_us: int) -> int:
    """Entry i is for lateness of less than 2**i milliseconds."""
    return 0 if late_us == 0 else max(1, bisect([MS << i for i in range(64)], late_us))


def at_least(counts: tuple[int, ...] | list[int], entry: int) -> int:
    return sum(counts[entry:])


def test_lateness_is_counted_by_powers_of_two_milliseconds() -> None:
    seconds = [1.0, 1.0, 0.9995, 0.998, 0.996, 2.0, 1.0]
    # Not late: three. By half a millisecond, two and four; by a whole second, which is less than 1,024.
    assert counts_of([round(each * 1e6) for each in seconds]) == (3, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1)


def test_runs_double_so_that_they_are_few() -> None:
    runs = lateness_runs(np.arange(1_000_000, dtype=np.int64))
    assert [sum(run.counts) for run in runs[:6]] == [1, 1, 2, 4, 8, 16]
    assert len(runs) == 21


def test_rows_that_are_in_order_are_late_by_what_came_in_an_earlier_batch() -> None:
    assert counts_of([100 * MS, 101 * MS], 103 * MS) == (0, 0, 2)


def test_rows_that_are_newer_than_all_before_are_not_late() -> None:
    assert counts_of([100 * MS, 101 * MS], 100 * MS) == (2,)


def test_no_rows_have_no_lateness() -> None:
    assert lateness_runs(np.array([], np.int64)) == ()
    assert lateness_counts((), 5) == ()
    assert lateness_counts([LatenessRun(0, ())], 5) == ()


times = st.lists(st.integers(-50_000_000, 50_000_000), min_size=1, max_size=60)
rising = times.map(sorted)


@given(times | rising, st.none() | st.integers(-60_000_000, 60_000_000))
@example([-2000, -2000, -2000, 0], 0)
def test_lateness_is_never_taken_for_less_and_seldom_for_more(
    events: list[int], newest_us: int | None
) -> None:
    late = naive(events, newest_us)
    exact = [entry_of(each) for each in late]
    counts = counts_of(events, newest_us)
    behind = sum(newest_us is not None and most < newest_us for most in accumulate(events, max))
    assert sum(counts) == len(events)
    for entry in range(len(counts) + 1):
        truly = sum(each >= entry for each in exact)
        assert at_least(counts, entry) >= truly
        # One entry more for rows that were late twice; others in the run that reaches the newest event.
        assert at_least(counts, entry) <= sum(each >= entry - 1 for each in exact) + behind


@given(times, st.integers(0, 60))
def test_without_an_earlier_event_that_is_newer_lateness_is_exact(events: list[int], cut: int) -> None:
    late = naive(events, None)
    expected = [0] * (max(map(entry_of, late)) + 1)
    for each in late:
        expected[entry_of(each)] += 1
    assert counts_of(events) == tuple(expected)
    assert counts_of(events, events[0] - cut) == tuple(expected)
