"""What a picture of time shows, before it is drawn: event time upwards, the log's time to the right.

    points    rows: in time, corrections, late
    steps     the watermark, which is level between micro-batches and rises with one
    bands     windows: from when their first row came until they fired on time, and until they were closed
    marks     firings, at the end of their window

Where records were written so close together that the log's time would not part them, as when a topic was
filled at once, the order in which rows came takes its place.

A few rows that are far from all others would leave no room for these: they are put at the edge, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from headrace.streams.timeline.scales import Scale
from headrace.streams.timeline.timeline import Fate, Key, Row, Timeline, Window
from headrace.streams.timeline.words import rows_words

BANDS_MAX: Final = 120
"""More windows than this can't be told apart: the last ones are shown."""
POINTS_MAX: Final = 5_000
"""Of more rows in time, some are shown; all others always are."""

Across = Literal["log time", "order"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A row."""

    x: int
    y: int
    fate: Fate
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A firing."""

    x: int
    y: int
    kind: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A window, or windows of several keys that are alike."""

    start: int
    end: int
    begin: int
    """When its first row came."""
    ended: int | None
    """When it fired on time; None while it is open."""
    closed: int | None
    """From when on rows were late."""
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything that is drawn."""

    title: str
    across: Across
    x: Scale
    y: Scale
    points: tuple[Point, ...]
    steps: tuple[tuple[int, int], ...]
    bands: tuple[Band, ...]
    marks: tuple[Mark, ...]
    notes: tuple[str, ...] = ()


def picture_of(timeline: Timeline, *, key: Key | None = None, title: str | None = None) -> Picture | None:
    """The picture of a timeline, or of the windows and rows of a key in it; None where there is no time."""
    return _Drawing(timeline, key).picture(title or timeline.operator)


class _Drawing:
    """A picture that is being made."""

    def __init__(self, timeline: Timeline, key: Key | None) -> None:
        self.timeline = timeline
        self.windows = [
            window
            for window in timeline.windows
            if window.end_us is not None and (key is None or window.key == key)
        ]
        self.rows = [
            row for row in timeline.rows if row.event_us is not None and (key is None or row.key == key)
        ]
        self.across: Across = _across(timeline)
        order = sorted(range(len(timeline.rows)), key=lambda number: _arrival(timeline.rows[number]))
        self._places = {id(timeline.rows[number]): place for place, number in enumerate(order)}
        self._moments = self._moment_places()

    def picture(self, title: str) -> Picture | None:
        """All of it."""
        if not self.rows:
            return None
        steps = tuple(self._steps())
        groups = self._alike()
        notes = []
        if len(groups) > BANDS_MAX:
            notes.append(f"the last {BANDS_MAX} of {len(groups):,} windows are drawn")
        bands = [self._band(*each) for each in groups[-BANDS_MAX:]]
        marks = tuple(self._marks({(band.start, band.end) for band in bands}))
        points, left_out = _fewer([self._point(row) for row in self.rows])
        if left_out:
            notes.append(f"{left_out:,} of {len(self.rows):,} rows are not drawn, all of them in time")
        y = _height([point.y for point in points], [y for _, y in steps], bands)
        outside = sum(not y.holds(point.y) for point in points)
        if outside:
            notes.append(f"above or below what is drawn, and put at its edge: {rows_words(outside)}")
        across = [*(point.x for point in points), *self._moments]
        return Picture(
            title=title,
            across=self.across,
            x=Scale.of(across),
            y=y,
            points=tuple(points),
            steps=steps,
            bands=tuple(bands),
            marks=marks,
            notes=tuple(notes),
        )

    def _moment_places(self) -> list[int]:
        if self.across == "log time":
            known = [moment.log_time_us for moment in self.timeline.moments]
            first = next((time for time in known if time is not None), 0)
            return [first if time is None else time for time in known]
        last, places = 0, []
        by_moment: dict[int, int] = {}
        for row in self.timeline.rows:
            place = self._places[id(row)]
            by_moment[row.moment] = max(by_moment.get(row.moment, 0), place)
        for number in range(len(self.timeline.moments)):
            last = max(last, by_moment.get(number, last))
            places.append(last)
        return places

    def _x(self, row: Row) -> int:
        if self.across == "order" or row.record_us is None:
            return self._places[id(row)]
        return row.record_us

    def _point(self, row: Row) -> Point:
        assert row.event_us is not None, "only rows with a time are drawn"
        return Point(x=self._x(row), y=row.event_us, fate=row.fate, label=row.place)

    def _steps(self) -> Iterator[tuple[int, int]]:
        """The watermark's corners: level up to a micro-batch, and up with it."""
        first = self.timeline.moments[0]
        if first.before_us is not None:
            yield min(self._x(row) for row in self.timeline.rows), first.before_us
        level = first.before_us
        for place, moment in zip(self._moments, self.timeline.moments, strict=True):
            if moment.after_us is None:
                continue
            if level is not None:
                yield place, level
            yield place, moment.after_us
            level = moment.after_us

    def _alike(self) -> list[tuple[int, int, list[Window]]]:
        """The windows of all keys, those with the same bounds together; by their ends."""
        together: dict[tuple[int, int], list[Window]] = {}
        for window in self.windows:
            assert window.start_us is not None, "global windows are not drawn"
            assert window.end_us is not None, "global windows are not drawn"
            together.setdefault((window.end_us, window.start_us), []).append(window)
        return [(start, end, together[end, start]) for end, start in sorted(together)]

    def _band(self, start: int, end: int, windows: Sequence[Window]) -> Band:
        ended = next(
            (
                place
                for place, moment in enumerate(self.timeline.moments)
                if self.timeline.has_ended(windows[0], moment.after_us)
            ),
            None,
        )
        first = min((each.first_moment for each in windows if each.first_moment is not None), default=0)
        came = [
            self._x(row) for row in self.rows if row.moment == first and start <= (row.event_us or 0) <= end
        ]
        closed = windows[0].closed
        keys = "1 key" if len(windows) == 1 else f"{len(windows)} keys"
        return Band(
            start=start,
            end=end,
            begin=min(came, default=self._moments[first]),
            ended=None if ended is None else self._moments[ended],
            closed=None if closed is None else self._moments[closed],
            label=f"{rows_words(sum(each.row_count for each in windows))} of {keys}",
        )

    def _marks(self, drawn: set[tuple[int, int]]) -> Iterator[Mark]:
        seen: set[tuple[int, int, str]] = set()
        for window in self.windows:
            if window.end_us is None or (window.start_us or 0, window.end_us) not in drawn:
                continue
            for firing in window.firings:
                place = (self._moments[firing.moment], window.end_us, firing.kind)
                if not firing.retracted and place not in seen:
                    seen.add(place)
                    x, y, kind = place
                    batch = self.timeline.moments[firing.moment].batch
                    yield Mark(x=x, y=y, kind=kind, label=f"{kind} in batch {batch}")


def _across(timeline: Timeline) -> Across:
    written = [row.record_us for row in timeline.rows if row.record_us is not None]
    is_known = len(written) == len(timeline.rows)
    # Less than a millisecond a row, which is as exact as records' timestamps are.
    return (
        "log time" if is_known and written and max(written) - min(written) > 1_000 * len(written) else "order"
    )


def _arrival(row: Row) -> tuple[int, int, str, int]:
    return row.moment, row.record_us or 0, row.source, row.offset


def _fewer(points: Sequence[Point]) -> tuple[list[Point], int]:
    """So many points that a picture can be drawn of them, and how many are left out."""
    others = [point for point in points if point.fate != "in_time"]
    in_time = [point for point in points if point.fate == "in_time"]
    if len(in_time) <= POINTS_MAX:
        return list(points), 0
    every = -(-len(in_time) // POINTS_MAX)
    kept = in_time[::every]
    return [*kept, *others], len(in_time) - len(kept)


def _height(events: Sequence[int], watermarks: Sequence[int], bands: Sequence[Band]) -> Scale:
    ordered = sorted(events)
    low, high = ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]
    sizes = [band.end - band.start for band in bands]
    room = max(8 * (high - low), 10 * max(sizes, default=0), 1_000)
    least, greatest = low - room, high + room
    kept = [event for event in ordered if least <= event <= greatest]
    edges = [edge for band in bands for edge in (band.start, band.end)]
    near = [each for each in (*watermarks, *edges) if least <= each <= greatest]
    return Scale.of([*kept, *near])
