"""The clock of the test kit."""

from __future__ import annotations

import pytest

from headrace.testing.clock import ManualClock


def test_time_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock(now_ms=1_000)
    assert (clock.now_ms(), clock.monotonic_s()) == (1_000, 0.0)
    clock.advance(2_500)
    assert (clock.now_ms(), clock.monotonic_s()) == (3_500, 2.5)


def test_the_wall_clock_may_jump_back_and_monotonic_time_may_not() -> None:
    clock = ManualClock(now_ms=1_000)
    clock.jump(-600)
    assert (clock.now_ms(), clock.monotonic_s()) == (400, 0.0)
    with pytest.raises(ValueError, match="can't go back"):
        clock.advance(-1)
