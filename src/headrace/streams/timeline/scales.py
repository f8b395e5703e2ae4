"""Axes of time: which moments are worth a line, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headrace.driver.event_time import moment

_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
STEPS_US: Final = (
    *(step * 10**power for power in range(6) for step in (1, 2, 5)),
    *(step * _SECOND for step in (1, 2, 5, 10, 15, 30)),
    *(step * _MINUTE for step in (1, 2, 5, 10, 15, 30)),
    *(step * _HOUR for step in (1, 2, 3, 6, 12)),
    *(step * _DAY for step in (1, 2, 7, 14, 30, 90, 365, 3650, 36500, 365_000)),
)
"""How far apart lines can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From a moment to a place between 0 and 1."""

    least: int
    greatest: int

    @classmethod
    def of(cls, values: Sequence[int], *, margin: float = 0.03) -> Scale:
        """One that has room for all values."""
        least, greatest = min(values), max(values)
        room = max(int((greatest - least) * margin), 1)
        return cls(least=least - room, greatest=greatest + room)

    def place(self, value: int) -> float:
        """Between 0 and 1; what lies outside is put at the edge."""
        return min(max((value - self.least) / (self.greatest - self.least), 0.0), 1.0)

    def holds(self, value: int) -> bool:
        """Whether it lies inside."""
        return self.least <= value <= self.greatest

    def ticks(self, count_max: int) -> list[int]:
        """Round moments, at most so many."""
        wanted = (self.greatest - self.least) / max(count_max, 1)
        step = next((each for each in STEPS_US if each >= wanted), STEPS_US[-1])
        first = -(-self.least // step) * step
        return list(range(first, self.greatest + 1, step))[: count_max + 1]


def tick_texts(ticks: Sequence[int]) -> list[str]:
    """The ticks in words, no longer than it takes to tell them apart; midnight has its date."""
    if not ticks:
        return []
    step = ticks[1] - ticks[0] if len(ticks) > 1 else _SECOND
    return [_text(moment(tick), step) for tick in ticks]


def time_text(time_us: int | None) -> str:
    """A moment in full: `2026-01-02T10:00:05Z`, with milliseconds where it has any."""
    if time_us is None:
        return "-"
    spec = "seconds" if time_us % _SECOND == 0 else "milliseconds"
    return moment(time_us).isoformat(timespec=spec).replace("+00:00", "Z")


def clock_text(time_us: int | None, *, with_date: bool = False) -> str:
    """A moment of a day: `10:00:05`."""
    text = time_text(time_us)
    return text if with_date or time_us is None else text.partition("T")[2].removesuffix("Z")


def span_days(times_us: Sequence[int]) -> bool:
    """Whether the moments are of several days, so that a time of day does not tell them."""
    return bool(times_us) and moment(min(times_us)).date() != moment(max(times_us)).date()


def _text(when: datetime, step_us: int) -> str:
    if step_us >= _DAY:
        return when.strftime("%Y-%m-%d")
    if step_us >= _MINUTE:
        return when.strftime("%H:%M") if (when.hour, when.minute) != (0, 0) else when.strftime("%m-%d")
    if step_us >= _SECOND:
        return when.strftime("%H:%M:%S")
    return when.strftime("%H:%M:%S.") + f"{when.microsecond // 1000:03}"
