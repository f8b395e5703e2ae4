"""How `headrace produce --rate` keeps to its rate."""

from __future__ import annotations

from headrace.cli.sender import Pace


class Watch:
    """A clock that moves only when somebody waits."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def wait(self, seconds: float) -> None:
        self.now_s += seconds


def test_records_are_spread_over_the_second() -> None:
    watch = Watch()
    pace = Pace(10, now_s=lambda: watch.now_s, wait=watch.wait)
    times = []
    for _ in range(4):
        pace.keep()
        times.append(round(watch.now_s, 3))
    assert times == [0.0, 0.1, 0.2, 0.3]


def test_after_a_pause_it_does_not_hurry() -> None:
    watch = Watch()
    pace = Pace(10, now_s=lambda: watch.now_s, wait=watch.wait)
    pace.keep()
    watch.now_s = 100.0
    pace.keep()
    pace.keep()
    assert round(watch.now_s, 3) == 100.1
