"""The time by which records are deleted: the clock's, unless it has just jumped ahead.

A clock that is set wrong by a year for a minute must not cost a year of records. So the wall clock is held
against the monotonic one, which nobody can set:

    the wall clock is where it should be, or behind    it is believed
    it is ahead of where it should be                  time goes on from before the jump; if the wall clock
                                                       still says so after an hour, it is believed

When the machine has slept, the monotonic clock has stood still, and the right time looks like a jump: then
records are deleted an hour late. When the program starts, there is nothing to compare with, and the wall
clock is believed.
"""

from __future__ import annotations

import logging
from typing import Final

from headrace.config import HOUR_MS

logger: Final = logging.getLogger(__name__)

JUMP_MS_MIN: Final = 60_000
"""Less than this, since the clocks were last compared, is a correction; more is a jump."""
DISBELIEF_MS: Final = 1 * HOUR_MS
"""For so long a clock that has jumped ahead is not believed."""


class TrustedTime:
    """Compares two clocks each time it is asked. Used from one thread."""

    def __init__(self, wall_ms: int, monotonic_s: float) -> None:
        """What the two clocks say when the program starts: a jump right after that is noticed, too."""
        self._now_ms = wall_ms
        self._monotonic_ms = int(monotonic_s * 1000)
        self._doubted_since_ms: int | None = None

    def now_ms(self, wall_ms: int, monotonic_s: float) -> int:
        """The time to go by, from what the two clocks say."""
        monotonic_ms = int(monotonic_s * 1000)
        expected_ms = self._now_ms + monotonic_ms - self._monotonic_ms
        if wall_ms <= expected_ms + JUMP_MS_MIN:
            return self._believe(wall_ms, monotonic_ms)
        if self._doubted_since_ms is None:
            self._doubted_since_ms = monotonic_ms
            logger.warning(
                "the clock has jumped ahead by %d s; until it has stayed there for an hour, records are "
                "deleted by the time before the jump",
                (wall_ms - expected_ms) // 1000,
            )
        elif monotonic_ms - self._doubted_since_ms >= DISBELIEF_MS:
            return self._believe(wall_ms, monotonic_ms)
        self._now_ms, self._monotonic_ms = expected_ms, monotonic_ms
        return expected_ms

    def _believe(self, wall_ms: int, monotonic_ms: int) -> int:
        self._now_ms, self._monotonic_ms = wall_ms, monotonic_ms
        self._doubted_since_ms = None
        return wall_ms
