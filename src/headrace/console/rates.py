"""How fast a topic grows, from its end offsets.

A sample is the sum of the end offsets of all partitions at a moment (monotonic seconds, an argument).
The window reaches `window_s` back from the newest sample. An end offset that went back means that the topic
was made anew: what came before it says nothing about the growth of the new one and is forgotten.

Offsets count what was appended, so each commit marker of a transaction counts as one, as in any tool
that computes with Kafka's offsets.
"""

from __future__ import annotations

from collections import deque


class GrowthWindow:
    """The recent end offsets of one topic. Not safe to share between threads.

    A number that nobody refreshes is not a rate: once the newest sample is older than `fresh_s`, there is
    none to tell. Memory is bounded by `sample_count_max`; past it the oldest sample leaves early.
    """

    def __init__(self, *, window_s: float, fresh_s: float = 3.5, sample_count_max: int = 1_000) -> None:
        self._window_s = window_s
        self._fresh_s = fresh_s
        self._samples: deque[tuple[float, int]] = deque(maxlen=sample_count_max)

    def add(self, at_s: float, end_offset: int) -> None:
        """Remember that the topic ended at `end_offset` at `at_s`."""
        if self._samples and end_offset < self._samples[-1][1]:
            self._samples.clear()
        self._samples.append((at_s, end_offset))
        while self._samples[0][0] < at_s - self._window_s:
            self._samples.popleft()

    def per_second(self, at_s: float) -> float | None:
        """Records per second over the window; None until two fresh samples are there."""
        if not self._is_fresh(at_s):
            return None
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else None

    def increase(self, at_s: float) -> int | None:
        """Records added within the window; None until a fresh sample is there."""
        return self._samples[-1][1] - self._samples[0][1] if self._is_fresh(at_s) else None

    def _is_fresh(self, at_s: float) -> bool:
        return bool(self._samples) and at_s - self._samples[-1][0] <= self._fresh_s
