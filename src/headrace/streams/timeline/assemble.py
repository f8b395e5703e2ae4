"""Put together what was noted of rows, micro-batches and windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.buckets.packing import events_of
from headrace.streams.buckets.sources import Longs
from headrace.streams.timeline.columns import key_order, keys_of, times_of
from headrace.streams.timeline.operators import Traced, WindowLogic
from headrace.streams.timeline.timeline import Fate, Firing, Key, Lateness, Moment, Row, Timeline, Window
from headrace.streams.topic import METADATA_COLUMN
from headrace.streams.windows.late import SideOutput, after_all, within_us
from headrace.streams.windows.results import times_us
from headrace.streams.windows.sliding import SlidingWindows

Bounds = tuple[Key, int | None, int | None]
"""Of a window: its key, its start and its end."""


@dataclass(slots=True, kw_only=True)
class Notes:
    """What has happened so far."""

    moments: list[Moment] = field(default_factory=list)
    late: dict[int, Lateness | None] = field(default_factory=dict)
    """By the number of a row; None for one without an event time."""
    firings: dict[Bounds, list[Firing]] = field(default_factory=dict)
    open: set[Bounds] = field(default_factory=set)
    """Windows that the watermark has not come to the end of."""
    members: dict[Bounds, set[int]] = field(default_factory=dict)
    """The numbers of windows' rows, where the logic tells them."""


def assemble(operator: Traced, rows: pa.Table, batches: Longs, notes: Notes) -> Timeline:
    """The timeline of the rows, of which `batches` says with which micro-batch each came."""
    late = operator.late
    rest = None if late is None else after_all(late)
    came = tuple(_rows(operator, rows, batches, notes))
    brought_us = _times(rows, operator.declared or operator.event_time)
    told = tuple(came[number] for number in events_of(rows, operator.event_time, operator.declared))
    timeline = Timeline(
        operator=operator.name,
        by=operator.by,
        moments=tuple(_with_holders(notes.moments, zip(came, brought_us, strict=True))),
        rows=told,
        within_us=0 if late is None else within_us(late),
        takes_end=isinstance(operator.logic, SlidingWindows),
        late_topic=rest.topic if isinstance(rest, SideOutput) else None,
        has_windows=isinstance(operator.logic, WindowLogic),
    )
    windows = [_window(timeline, bounds, notes) for bounds in {**notes.firings, **dict.fromkeys(notes.open)}]
    windows.sort(
        key=lambda each: (each.end_us is None, each.end_us or 0, each.start_us or 0, key_order(each.key))
    )
    return _counted(replace(timeline, windows=tuple(windows)))


def _rows(operator: Traced, rows: pa.Table, batches: Longs, notes: Notes) -> Iterator[Row]:
    place = rows.column(METADATA_COLUMN)
    topics, partitions, offsets = (
        pc.struct_field(place, name).to_pylist() for name in ("topic", "partition", "offset")
    )
    written_us = times_of(pc.struct_field(place, "timestamp"))
    events_us = _times(rows, operator.event_time)
    for number, key in enumerate(keys_of(rows, operator.by)):
        lateness = notes.late.get(number)
        fate: Fate = "in_time"
        if number in notes.late:
            fate = "no_event_time" if lateness is None else "late"
        yield Row(
            topic=topics[number] or "",
            partition=-1 if partitions[number] is None else partitions[number],
            offset=-1 if offsets[number] is None else offsets[number],
            record_us=written_us[number],
            event_us=events_us[number],
            key=key,
            moment=int(batches[number]),
            number=number,
            fate=fate,
            lateness=lateness,
        )


def _with_holders(moments: Iterable[Moment], rows: Iterable[tuple[Row, int | None]]) -> Iterator[Moment]:
    """The moments, with the rows by which the watermark is where it is. Each is given with its event time, or
    with how far it says that its source is.
    """
    firsts: dict[tuple[str, int | None], Row] = {}
    for row, brought_us in rows:
        first = firsts.setdefault((row.source, brought_us), row)
        if (row.moment, row.offset) < (first.moment, first.offset):
            firsts[row.source, brought_us] = row
    for moment in moments:
        holder_us = moment.holder_event_us if moment.holder_declared_us is None else moment.holder_declared_us
        found = firsts.get((moment.holder or "", holder_us))
        yield replace(moment, holder_place=None if found is None else found.place)


def _times(rows: pa.Table, column: str | None) -> list[int | None]:
    if column is None:
        return [None] * len(rows)
    found_us, has_time = times_us(rows, column)
    pairs = zip(found_us.tolist(), has_time.tolist(), strict=True)
    return [time_us if is_there else None for time_us, is_there in pairs]


def _window(timeline: Timeline, bounds: Bounds, notes: Notes) -> Window:
    key, start_us, end_us = bounds
    window = Window(
        key=key,
        start_us=start_us,
        end_us=end_us,
        firings=tuple(notes.firings.get(bounds, ())),
        is_open=bounds in notes.open,
        members=frozenset(notes.members[bounds]) if bounds in notes.members else None,
    )
    closing = (
        place for place, moment in enumerate(timeline.moments) if timeline.has_closed(window, moment.after_us)
    )
    return replace(window, closed=next(closing, None))


def _counted(timeline: Timeline) -> Timeline:
    """With what follows from rows and windows together: windows' row counts, and which rows correct them."""
    by_key: dict[Key, list[int]] = {}
    for number, row in enumerate(timeline.rows):
        if row.event_us is not None or not timeline.windows or timeline.windows[0].end_us is None:
            by_key.setdefault(row.key, []).append(number)
    for numbers in by_key.values():
        numbers.sort(key=lambda number: timeline.rows[number].event_us or 0)
    times = {key: [timeline.rows[n].event_us or 0 for n in numbers] for key, numbers in by_key.items()}
    corrections: set[int] = set()
    windows = []
    for window in timeline.windows:
        near = by_key.get(window.key, [])
        if window.start_us is not None and window.end_us is not None:
            first, last = np.searchsorted(times.get(window.key, []), [window.start_us, window.end_us + 1])
            near = near[int(first) : int(last)]
        members = [number for number in near if timeline.counts_in(timeline.rows[number], window)]
        came = [timeline.rows[number].moment for number in members]
        corrections.update(
            number
            for number in members
            if timeline.has_ended(window, timeline.moments[timeline.rows[number].moment].before_us)
        )
        windows.append(replace(window, row_count=len(members), first_moment=min(came, default=None)))
    rows = [
        replace(row, fate="correction") if number in corrections else row
        for number, row in enumerate(timeline.rows)
    ]
    return replace(timeline, rows=tuple(rows), windows=tuple(windows))
