"""Sliding windows: for each event at t, the aggregate of its key's events in [t - size, t], both included.

An event's window is struct(t - size, t); it has ended when the watermark is later than t. Events at the same
time are in each other's windows, and each has its own result. Within a window, events are in the order of
their times; those of the same time in that of arrival. State:

    events     the key's columns
               _time_us
               _firing                of the result that was given last: 0 none yet, 1 on time, 2 late
               partials               of the event alone

A step, with W the watermark before it and W' the one after:

1. An event at t < W is late, since its own window has ended; with `update` only at t + within < W.
2. Events at t < W' that have not fired fire: "late" if t < W, else "on_time". With `update`, so do those that
   had fired and whose window a late event is in: "late".
3. Events with t + size + within < W' are forgotten: no window that can still fire, or change, has them in it.

What is taken back where changes are retracted is not kept: it is computed again from the events before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import LATE, RESULTS, Arrivals, Step, Tables
from headrace.streams.time.policies import Policy
from headrace.streams.time.watermarks import Tracked, track
from headrace.streams.windows.aggregate import Aggregate, Partials
from headrace.streams.windows.kept_state import read_kept
from headrace.streams.windows.keys import key_codes
from headrace.streams.windows.kinds import Sliding
from headrace.streams.windows.late import LatePolicy, Update, within_us
from headrace.streams.windows.ranges import merge_ranges
from headrace.streams.windows.results import (
    WATERMARK,
    LateRows,
    Layout,
    firing_names,
    retracted,
    time_type,
    times_us,
    watermark_gauge,
    window_column,
)
from headrace.streams.windows.runs import Flags, Indices, joined, stacked, take
from headrace.streams.windows.triggers import OnTime, Trigger

Firings = npt.NDArray[np.int8]

EVENTS: Final = "events"

_ON_TIME: Final = 1
_LATE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindows:
    """Steps sliding windows."""

    by: tuple[str, ...]
    time: str
    kind: Sliding
    aggregates: tuple[Aggregate, ...]
    watermark: Policy
    late: LatePolicy
    trigger: Trigger = field(default_factory=OnTime)

    def __post_init__(self) -> None:
        if not isinstance(self.trigger, OnTime):
            raise PipelineError(
                f"sliding windows can't fire by {self.trigger!r}: each event has one result, on time; "
                "leave the trigger out"
            )

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        layout = self._layout(rows)
        return {RESULTS: layout.results, LATE: layout.late}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        tracked = track(self.watermark, state.get(WATERMARK), arrivals)
        rows, layout = arrivals.rows, self._layout(arrivals.rows.schema)
        kept = read_kept(state.get(EVENTS), _kept_schema(layout), self.by)
        time_us, has_time = times_us(rows, self.time)
        is_late = has_time & (time_us + within_us(self.late) < tracked.before_us)
        is_taken = np.flatnonzero(has_time & ~is_late)
        events = _events(layout, kept, rows.take(pa.array(is_taken)), time_us[is_taken])
        fires = self._fires(events, tracked)
        firing = np.where(events.time_us < tracked.before_us, _LATE, _ON_TIME).astype(np.int8)
        tables = {WATERMARK: tracked.table, EVENTS: kept}
        stays = events.time_us + self.kind.size_us + within_us(self.late) >= tracked.after_us
        if len(is_taken) or fires.any() or not stays.all():
            tables[EVENTS] = _kept(
                layout, events, np.where(fires, firing, events.firing), np.flatnonzero(stays)
            )
        late = LateRows(
            is_late=is_late,
            has_time=has_time,
            start_us=time_us - self.kind.size_us,
            end_us=time_us,
            watermark_us=tracked.before_us,
        )
        return Step(
            state=tables,
            outputs={
                RESULTS: self._results(layout, events, fires, firing),
                **late.outputs(rows, layout, self.late),
            },
            counts=late.counts(self.late),
            gauges=watermark_gauge(tracked.after_us),
            time_report=tracked.report,
        )

    def _layout(self, rows: pa.Schema) -> Layout:
        retract = isinstance(self.late, Update) and self.late.retract
        time = time_type(rows, self.time)
        return Layout(rows=rows, by=self.by, time=time, aggregates=self.aggregates, retract=retract)

    def _fires(self, events: _Events, tracked: Tracked) -> Flags:
        fires = ~events.has_fired & (events.time_us < tracked.after_us)
        is_late = events.is_new & (events.time_us < tracked.before_us)
        if not is_late.any():
            return fires
        again = np.flatnonzero(events.has_fired)
        first, last = events.windows(again, self.kind.size_us)
        before = np.append(0, np.cumsum(is_late))
        fires[again] = before[last + 1] > before[first]
        return fires

    def _results(self, layout: Layout, events: _Events, fires: Flags, firing: Firings) -> pa.Table:
        now = self._given(layout, events, np.flatnonzero(fires), firing)
        again = np.flatnonzero(fires & events.has_fired)
        if not layout.retract or not len(again):
            return now
        old = events.chosen(np.flatnonzero(~events.is_new))
        place = np.cumsum(~events.is_new) - 1
        before = retracted(self._given(layout, old, place[again], old.firing))
        order = np.argsort(np.concatenate([again, np.flatnonzero(fires)]), kind="stable")
        return stacked([before, now]).take(pa.array(order))

    def _given(self, layout: Layout, events: _Events, which: Indices, firing: Firings) -> pa.Table:
        first, last = events.windows(which, self.kind.size_us)
        time_us = events.time_us[which]
        return layout.results_table(
            events.keys.take(pa.array(which)),
            window_column(time_us - self.kind.size_us, time_us, layout.time),
            [
                merge_ranges(aggregate, partials, first, last)
                for aggregate, partials in zip(layout.aggregates, events.partials, strict=True)
            ],
            firing_names(firing[which] == _LATE, np.zeros(len(which), dtype=bool)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Events:
    """Events in the order of their keys, then of their times, then of arrival."""

    keys: pa.Table
    codes: Indices
    time_us: Indices
    firing: Firings
    is_new: Flags
    partials: list[Partials]

    @property
    def has_fired(self) -> Flags:
        """Which have given a result."""
        has_fired: Flags = self.firing != 0
        return has_fired

    def windows(self, which: Indices, size_us: int) -> tuple[Indices, Indices]:
        """The first and the last event in the window of each of these."""
        times_us, ranks = np.unique(self.time_us, return_inverse=True)
        # Ranks stand for times, so that keys can be put in front without overflow.
        places = self.codes * (len(times_us) + 1) + ranks
        from_rank = np.searchsorted(times_us, self.time_us[which] - size_us)
        first = np.searchsorted(places, self.codes[which] * (len(times_us) + 1) + from_rank)
        return first, np.searchsorted(places, places[which], side="right") - 1

    def chosen(self, which: Indices) -> _Events:
        """Some of the events."""
        return _Events(
            keys=self.keys.take(pa.array(which)),
            codes=self.codes[which],
            time_us=self.time_us[which],
            firing=self.firing[which],
            is_new=self.is_new[which],
            partials=[take(partials, which) for partials in self.partials],
        )


def _kept_schema(layout: Layout) -> pa.Schema:
    own = [pa.field("_time_us", pa.int64()), pa.field("_firing", pa.int8())]
    keys = [pa.field(name, layout.rows.field(name).type) for name in layout.by]
    return pa.schema([*keys, *own, *layout.partial_fields()])


def _events(layout: Layout, kept: pa.Table, rows: pa.Table, time_us: Indices) -> _Events:
    names = list(layout.by)
    alone = np.arange(rows.num_rows)
    old, new = kept.num_rows, rows.num_rows
    events = _Events(
        keys=stacked([kept.select(names), rows.select(names)]),
        codes=np.concatenate(key_codes([kept, rows], names)),
        time_us=np.concatenate([np.asarray(kept["_time_us"], dtype=np.int64), time_us]),
        firing=np.concatenate([np.asarray(kept["_firing"], dtype=np.int8), np.zeros(new, dtype=np.int8)]),
        is_new=np.repeat([False, True], [old, new]),
        partials=[
            joined([partials, aggregate.gather(rows, alone)])
            for aggregate, partials in zip(layout.aggregates, layout.read_partials(kept), strict=True)
        ],
    )
    return events.chosen(np.lexsort((events.time_us, events.codes)))


def _kept(layout: Layout, events: _Events, firing: Firings, stays: Indices) -> pa.Table:
    columns = [
        *events.keys.take(pa.array(stays)).columns,
        pa.array(events.time_us[stays]),
        pa.array(firing[stays]),
        *(column for partials in events.partials for column in take(partials, stays)),
    ]
    return pa.Table.from_arrays(columns, schema=_kept_schema(layout))
