"""What happened to rows, the watermark and windows, micro-batch by micro-batch. Values only.

    Timeline
    ├── moments     the micro-batches: how far the watermark was before and after each, and who held it back
    ├── rows        each with its place in the log, its two times, and what became of it
    └── windows     each of a key, with its firings, and when it was closed for good

Times are microseconds since 1970. `moment` is the place of a micro-batch in `moments`. The log's time is when
records were written: the processing time of everything here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Fate = Literal["in_time", "correction", "late", "no_event_time"]
"""A correction came when a window of it had ended, and changed it all the same."""
Key = tuple[str | None, ...]
"""The values of the `by` columns as text; None is null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A micro-batch."""

    batch: int
    """Its number in the checkpoint; from 0 where it is assumed."""
    row_count: int
    log_time_us: int | None
    """When the newest record was written, of all up to here; None before the first."""
    before_us: int | None
    after_us: int | None
    """The watermark before and after it; None while there is none."""
    holder: str | None = None
    """The source by which the watermark is where it is: of those that count, it is furthest behind."""
    holder_event_us: int | None = None
    """The newest event of that source, and..."""
    holder_place: str | None = None
    """the row that brought it, or has declared it; None where that came before all rows here."""
    holder_declared_us: int | None = None
    """How far that source says it is; None where sources don't."""
    delay_us: int | None = None
    idle: tuple[str, ...] = ()
    """Sources that are not waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """By how much a row was late, and for which window."""

    start_us: int
    end_us: int
    late_by_us: int
    """How far the window's end is behind the watermark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row that came to the operator. One that only says how far its source is, is none."""

    topic: str
    partition: int
    offset: int
    record_us: int | None
    event_us: int | None
    key: Key
    moment: int
    number: int = 0
    """Its place among all rows."""
    fate: Fate = "in_time"
    lateness: Lateness | None = None
    """Only where its fate is to be late."""

    @property
    def source(self) -> str:
        """The partition that it came from."""
        return f"{self.topic}-{self.partition}"

    @property
    def place(self) -> str:
        """As it is named on a command line."""
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """A result of a window."""

    kind: str
    """"early", "on_time" or "late"."""
    moment: int
    values: Mapping[str, Any]
    """The aggregates."""
    retracted: bool = False
    """Whether it takes back one that was given before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A window of a key. A global one has no bounds."""

    key: Key
    start_us: int | None
    end_us: int | None
    firings: tuple[Firing, ...]
    row_count: int = 0
    """Of the rows that are known, how many count in it."""
    first_moment: int | None = None
    """When the first of them came."""
    closed: int | None = None
    """The moment from which on rows of it are late; None while it takes rows."""
    is_open: bool = False
    """Whether the watermark has not come to its end."""
    members: frozenset[int] | None = None
    """The numbers of its rows, where their times alone don't tell: in sessions."""

    def fired(self, kind: str) -> tuple[Firing, ...]:
        """Its firings of a kind, without those that take one back."""
        return tuple(each for each in self.firings if each.kind == kind and not each.retracted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What happened in an operator."""

    operator: str
    by: tuple[str, ...]
    moments: tuple[Moment, ...]
    rows: tuple[Row, ...]
    windows: tuple[Window, ...] = ()
    """By their ends, then by key."""
    within_us: int = 0
    """For how long after their end windows are kept for corrections."""
    takes_end: bool = False
    """Whether an event at the very end of a window is in it, as in sliding ones."""
    late_topic: str | None = None
    """Where late rows go; None where they are dropped."""
    has_windows: bool = True
    notes: tuple[str, ...] = field(default=())
    """What a reader must know."""

    def late_rows(self) -> Iterator[Row]:
        """Those that came too late, or without an event time."""
        return (row for row in self.rows if row.fate in {"late", "no_event_time"})

    def windows_of(self, row: Row) -> Iterator[Window]:
        """The windows that the row counts in."""
        return (window for window in self.windows if self.counts_in(row, window))

    def counts_in(self, row: Row, window: Window) -> bool:
        """Whether the row is among those that a window was computed from."""
        if row.fate in {"late", "no_event_time"} or row.key != window.key:
            return False
        if window.members is not None:
            return row.number in window.members
        if window.start_us is None or window.end_us is None:
            return any(firing.moment >= row.moment for firing in window.firings) or window.is_open
        if row.event_us is None or not self.contains(window, row.event_us):
            return False
        is_told = any(each.moment >= row.moment and not each.retracted for each in window.firings)
        return (is_told or window.is_open) and not self.has_closed(window, self.moments[row.moment].before_us)

    def contains(self, window: Window, event_us: int) -> bool:
        """Whether an event at this time belongs to the window."""
        assert window.start_us is not None, "global windows have no bounds"
        assert window.end_us is not None, "global windows have no bounds"
        is_before = event_us <= window.end_us if self.takes_end else event_us < window.end_us
        return window.start_us <= event_us and is_before

    def has_ended(self, window: Window, watermark_us: int | None) -> bool:
        """Whether the watermark has come to the window's end."""
        return self._is_past(window.end_us, watermark_us)

    def has_closed(self, window: Window, watermark_us: int | None) -> bool:
        """Whether rows of the window would be late by this watermark."""
        return window.end_us is not None and self._is_past(window.end_us + self.within_us, watermark_us)

    def _is_past(self, end_us: int | None, watermark_us: int | None) -> bool:
        if end_us is None or watermark_us is None:
            return False
        return end_us < watermark_us if self.takes_end else end_us <= watermark_us

    def of_key(self, key: Key) -> tuple[Window, ...]:
        """The windows of a key."""
        return tuple(window for window in self.windows if window.key == key)
