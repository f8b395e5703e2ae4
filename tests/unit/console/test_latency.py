"""Latency over a sliding window."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.console.latency import HISTOGRAM_MS, LatencyWindow, histogram, quantile

gaps_and_latencies = st.lists(
    st.tuples(st.floats(0, 30, allow_nan=False), st.integers(0, 100_000)), min_size=0, max_size=60
)


def naive_quantile(values: list[int], share: Fraction) -> int | None:
    """The smallest value such that at least that share of all values is no larger."""
    candidates = [v for v in values if Fraction(sum(1 for w in values if w <= v), len(values)) >= share]
    return min(candidates, default=None)


@given(st.lists(st.integers(0, 1_000), max_size=250))
def test_quantiles_are_those_of_the_definition(values: list[int]) -> None:
    ordered = sorted(values)
    assert quantile(ordered, 0.50) == naive_quantile(values, Fraction(1, 2))
    assert quantile(ordered, 0.99) == naive_quantile(values, Fraction(99, 100))


@given(gaps_and_latencies, st.floats(0, 120, allow_nan=False))
def test_the_window_holds_what_is_at_most_a_minute_old(steps: list[tuple[float, int]], wait_s: float) -> None:
    window, now_s, history = LatencyWindow(window_s=60.0), 0.0, []
    for gap_s, latency_ms in steps:
        now_s += gap_s
        window.add(now_s, latency_ms)
        history.append((now_s, latency_ms))
    now_s += wait_s
    inside = [latency_ms for at_s, latency_ms in history if at_s >= now_s - 60.0]
    summary = window.summary(now_s)
    assert summary.count == len(inside)
    assert summary.max_ms == max(inside, default=None)
    assert summary.p50_ms == naive_quantile(inside, Fraction(1, 2))
    assert summary.p99_ms == naive_quantile(inside, Fraction(99, 100))
    assert sum(summary.histogram) == len(inside)


def test_a_sample_of_exactly_the_windows_age_still_counts() -> None:
    window = LatencyWindow(window_s=60.0)
    window.add(0.0, 7)
    assert window.summary(60.0).count == 1
    assert window.summary(60.5).count == 0


def test_an_empty_window_has_no_quantiles() -> None:
    summary = LatencyWindow().summary(0.0)
    assert (summary.count, summary.p50_ms, summary.p99_ms, summary.max_ms) == (0, None, None, None)


def test_one_slow_alert_in_a_hundred_is_the_maximum_but_not_p99() -> None:
    window = LatencyWindow()
    for latency_ms in [10] * 99 + [900]:
        window.add(0.0, latency_ms)
    summary = window.summary(0.0)
    assert (summary.p50_ms, summary.p99_ms, summary.max_ms) == (10, 10, 900)


def test_memory_is_bounded_and_the_oldest_leave_first() -> None:
    window = LatencyWindow(sample_count_max=3)
    for latency_ms in (1, 2, 3, 4):
        window.add(0.0, latency_ms)
    assert (window.summary(0.0).count, window.summary(0.0).p50_ms) == (3, 3)


@given(st.lists(st.integers(0, 20_000), max_size=100))
def test_every_latency_is_in_exactly_the_bar_that_bounds_it(values: list[int]) -> None:
    edges = [-1, *HISTOGRAM_MS, 10**9]
    expected = tuple(sum(1 for v in values if low < v <= high) for low, high in pairwise(edges))
    assert histogram(values) == expected
