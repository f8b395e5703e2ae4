"""The kinds of window: which events belong together.

| kind | windows |
|---|---|
| tumbling | `[k * size, (k + 1) * size)`: each event is in one |
| hopping | `[k * every, k * every + size)`: each event is in about `size / every` |
| cumulative | `[s, s + step)`, `[s, s + 2 * step)`, ... `[s, s + size)` for `s = k * size` |
| session | from a key's first event to `gap` after its last, with no pause as long as `gap` in between |
| sliding | for each event at `t` those of its key in `[t - size, t]` |
| global | one for all time: it needs a trigger to give results |

Tumbling, hopping and cumulative windows are aligned: they are the same for all keys, begin at whole multiples
since 1970-01-01 UTC, and `offset` shifts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.errors import PipelineError
from headrace.streams.time.durations import Duration, duration_text, duration_us, offset_us

WINDOWS_PER_EVENT_MAX: Final = 100_000
"""Each window of each event is a result: more of them than this would be meant by nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tumbling:
    """Windows that follow each other without a gap."""

    size_us: int
    offset_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hopping:
    """Windows of one size that begin at regular times and overlap."""

    size_us: int
    every_us: int
    offset_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cumulative:
    """Windows that grow by a step until they have their size, and begin anew."""

    size_us: int
    step_us: int
    offset_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Windows that end when nothing has happened for a while."""

    gap_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sliding:
    """For each event, the window that ends with it."""

    size_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalWindow:
    """All time."""


AlignedKind = Tumbling | Hopping | Cumulative
Kind = AlignedKind | Session | Sliding | GlobalWindow


def tumbling(size: Duration, *, offset: Duration = "0 seconds") -> Tumbling:
    """Windows of `size` that follow each other: `tumbling("1 day", offset="-2 hours")`."""
    return Tumbling(size_us=duration_us(size, "size"), offset_us=offset_us(offset, "offset"))


def hopping(size: Duration, *, every: Duration, offset: Duration = "0 seconds") -> Hopping:
    """Windows of `size` that begin at each multiple of `every`: `hopping("10 minutes", every="1 minute")`."""
    size_us, every_us = duration_us(size, "size"), duration_us(every, "every")
    if every_us > size_us:
        raise PipelineError(
            f"a window of {duration_text(size_us)} every {duration_text(every_us)} would leave events in no "
            "window; let every be at most the size"
        )
    _check_count(size_us, every_us)
    return Hopping(size_us=size_us, every_us=every_us, offset_us=offset_us(offset, "offset"))


def cumulative(size: Duration, *, step: Duration, offset: Duration = "0 seconds") -> Cumulative:
    """Windows that grow by `step` up to `size`: `cumulative("1 day", step="1 hour")` is the day so far."""
    size_us, step_us = duration_us(size, "size"), duration_us(step, "step")
    if size_us % step_us:
        raise PipelineError(
            f"a window of {duration_text(size_us)} can't be reached in steps of {duration_text(step_us)}; "
            "let the size be a multiple of the step"
        )
    _check_count(size_us, step_us)
    return Cumulative(size_us=size_us, step_us=step_us, offset_us=offset_us(offset, "offset"))


def session_window(gap: Duration) -> Session:
    """Windows of events of a key that are less than `gap` apart: `session_window("30 minutes")`."""
    return Session(gap_us=duration_us(gap, "gap"))


def sliding(size: Duration) -> Sliding:
    """For each event the window of `size` that ends with it: `sliding("10 minutes")`."""
    return Sliding(size_us=duration_us(size, "size"))


def global_window() -> GlobalWindow:
    """One window for all time; give it a trigger, such as `each(rows=100)`."""
    return GlobalWindow()


def kind_text(kind: Kind) -> str:
    """In words: `tumbling window of 1 minute`, `hopping window of 10 minutes every 1 minute`."""
    if isinstance(kind, GlobalWindow):
        return "global window"
    if isinstance(kind, Session):
        return f"session window with gaps of {duration_text(kind.gap_us)}"
    text = f"{type(kind).__name__.lower()} window of {duration_text(kind.size_us)}"
    if isinstance(kind, Sliding):
        return text
    if isinstance(kind, Hopping):
        text += f" every {duration_text(kind.every_us)}"
    if isinstance(kind, Cumulative):
        text += f" in steps of {duration_text(kind.step_us)}"
    return f"{text} from {duration_text(kind.offset_us)}" if kind.offset_us else text


def _check_count(size_us: int, distance_us: int) -> None:
    count = size_us // distance_us
    if count > WINDOWS_PER_EVENT_MAX:
        raise PipelineError(
            f"an event would be in {count:,} windows; at most {WINDOWS_PER_EVENT_MAX:,} are possible: let "
            "them begin, or grow, at longer intervals"
        )
