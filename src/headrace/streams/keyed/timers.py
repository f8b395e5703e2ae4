"""Timers of a key, in event time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from headrace.streams.time.bounds import EVENT_TIME_US_MAX, EVENT_TIME_US_MIN

TIMER: Final = "timer"
"""The name of a timer that is given none."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that has fired."""

    name: str
    at: datetime


class Timers:
    """The timers of one key. Each has a name; setting one again moves it."""

    __slots__ = ("_due_us", "is_end")

    def __init__(self, due_us: dict[str, int], *, is_end: bool) -> None:
        self._due_us = due_us
        self.is_end = is_end
        """Whether the input has ended: in batch. A timer that sets itself again would then never come to an
        end."""

    def set(self, at: datetime, name: str = TIMER) -> None:
        """Have `on_timer` called once event time has come to `at`. A time without a zone is UTC."""
        if not isinstance(at, datetime):
            raise TypeError(f"a timer is set to {at!r}: give a datetime")
        self._due_us[name] = micros_of(at)

    def cancel(self, name: str = TIMER) -> None:
        """Have it called no more; nothing happens if there is no such timer."""
        self._due_us.pop(name, None)

    def at(self, name: str = TIMER) -> datetime | None:
        """When the timer is due; None if there is none."""
        due_us = self._due_us.get(name)
        return None if due_us is None else moment(due_us)


def micros_of(at: datetime) -> int:
    """Microseconds since 1970."""
    return ((at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def moment(time_us: int) -> datetime:
    """The time of so many microseconds since 1970; where Python has none, its first or its last."""
    return _EPOCH + timedelta(microseconds=min(max(time_us, EVENT_TIME_US_MIN), EVENT_TIME_US_MAX))
