"""End-to-end latency over a sliding window.

A sample belongs to the window while its age is at most `window_s`. A quantile is the nearest rank: the
smallest sample such that at least that share of all samples is no larger, so it is always a latency that
really happened. Time is an argument (monotonic seconds, never going back); nothing here reads a clock.

Memory is bounded: past `sample_count_max` the oldest sample leaves early, which shortens the window.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

HISTOGRAM_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
"""Upper bounds of the histogram's bars, inclusive. One more bar holds all that is slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """What the window holds; the milliseconds are None while it is empty."""

    count: int
    p50_ms: int | None
    p99_ms: int | None
    max_ms: int | None
    histogram: tuple[int, ...]


class LatencyWindow:
    """The latencies of the last `window_s` seconds. Not safe to share between threads."""

    def __init__(self, *, window_s: float = 60.0, sample_count_max: int = 100_000) -> None:
        self._window_s = window_s
        self._samples: deque[tuple[float, int]] = deque(maxlen=sample_count_max)

    def add(self, at_s: float, latency_ms: int) -> None:
        """Remember a latency that was observed at `at_s`."""
        self._samples.append((at_s, latency_ms))

    def summary(self, at_s: float) -> LatencySummary:
        """Summarise the samples that are in the window at `at_s`."""
        self._forget_before(at_s - self._window_s)
        ordered = sorted(latency_ms for _, latency_ms in self._samples)
        return LatencySummary(
            count=len(ordered),
            p50_ms=quantile(ordered, 0.50),
            p99_ms=quantile(ordered, 0.99),
            max_ms=ordered[-1] if ordered else None,
            histogram=histogram(ordered),
        )

    def _forget_before(self, start_s: float) -> None:
        while self._samples and self._samples[0][0] < start_s:
            self._samples.popleft()


def quantile(ordered: Sequence[int], share: float) -> int | None:
    """The nearest-rank quantile of values in ascending order; None when there are none."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def histogram(values: Sequence[int]) -> tuple[int, ...]:
    """How many values fall into each bar of HISTOGRAM_MS, and into the last one for all that is slower."""
    counts = [0] * (len(HISTOGRAM_MS) + 1)
    for value in values:
        counts[bisect_left(HISTOGRAM_MS, value)] += 1
    return tuple(counts)
