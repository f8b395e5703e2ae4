"""Tumbling, hopping and cumulative windows: the same for all keys, and known before any event comes.

State: `watermark`, `keys` (see key_numbers), `panes` (see pane_state), and `open` (see open_windows), which
only triggers that fire early need.

A step, with W the watermark before the micro-batch and W' the one after:

1. A row is late if the last of its windows has ended by W, and its allowed lateness is over. Late rows, and
   rows without an event time, go where the late policy says.
2. The others are taken into their panes.
3. A window fires at most once in a step, by when it ends:

       end <= W          "late"      if a row has come for it, and it is still kept
       W < end <= W'     "on_time"   if any row has ever come for it
       W' < end          "early"     if the trigger says so

4. A window is forgotten when end + within <= W', and a pane with the last of its windows.

So it need not be kept whether a window has fired: its end and the watermark tell. Where changes are
retracted, what a window gave last is put together from its panes as they were before the step if it has
ended, and was kept among the open windows if it has not. The row that takes a result back is the row that was
given, `firing` included, with `retracted` true; it comes right before the new one.

Results come in the order of windows' ends, and then in the order in which keys were first seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import LATE, RESULTS, Arrivals, Step, Tables
from headrace.streams.time.bounds import END_US, EVENT_TIME_US_MAX, EVENT_TIME_US_MIN
from headrace.streams.time.policies import Policy
from headrace.streams.time.watermarks import Tracked, track
from headrace.streams.windows.aggregate import Aggregate
from headrace.streams.windows.key_numbers import fewer_keys, find_keys, read_keys
from headrace.streams.windows.kinds import AlignedKind
from headrace.streams.windows.late import LatePolicy, Update, within_us
from headrace.streams.windows.open_windows import OpenWindows, read_open, with_rows, write_open
from headrace.streams.windows.pane_state import (
    Panes,
    compose,
    distinct_windows,
    gather_panes,
    merge_panes,
    read_panes,
    write_panes,
)
from headrace.streams.windows.panes import Grid
from headrace.streams.windows.places import Places
from headrace.streams.windows.results import (
    EARLY,
    LATE_FIRING,
    ON_TIME,
    WATERMARK,
    LateRows,
    Layout,
    Names,
    firing_names,
    time_type,
    times_us,
    watermark_gauge,
    window_column,
)
from headrace.streams.windows.runs import Indices
from headrace.streams.windows.triggers import Early, OnTime, Trigger

KEYS: Final = "keys"
PANES: Final = "panes"
OPEN: Final = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedWindows:
    """Steps tumbling, hopping and cumulative windows."""

    by: tuple[str, ...]
    time: str
    kind: AlignedKind
    aggregates: tuple[Aggregate, ...]
    watermark: Policy
    late: LatePolicy
    trigger: Trigger = field(default_factory=OnTime)

    def __post_init__(self) -> None:
        if not isinstance(self.trigger, OnTime | Early):
            raise PipelineError(
                f"{self.trigger} is for global windows; give windows that end on_time() or early()"
            )

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        """The columns of results and of late rows."""
        layout = self._layout(rows)
        return {RESULTS: layout.results, LATE: layout.late}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        """Step one bucket."""
        layout = self._layout(arrivals.rows.schema)
        tracked = track(self.watermark, state.get(WATERMARK), arrivals)
        late, panes_us = self._judged(arrivals.rows, tracked.before_us)
        keys, added = self._gathered(state, arrivals.rows, late, panes_us)
        bucket = _Bucket(logic=self, layout=layout, tracked=tracked, keys=keys, added=added)
        before = read_panes(state.get(PANES), layout)
        after = merge_panes(before, added, self.aggregates) if len(added.keys) else before
        results, windows = bucket.fired(before, after, read_open(state.get(OPEN), layout))
        return Step(
            state={WATERMARK: tracked.table, **bucket.kept(state, before, after, windows)},
            outputs={RESULTS: results, **late.outputs(arrivals.rows, layout, self.late)},
            counts=late.counts(self.late),
            gauges=watermark_gauge(tracked.after_us),
            time_report=tracked.report,
        )

    @property
    def grid(self) -> Grid:
        """The panes of the windows."""
        return Grid.of(self.kind)

    def _layout(self, rows: pa.Schema) -> Layout:
        return Layout(
            rows=rows,
            by=self.by,
            time=time_type(rows, self.time),
            aggregates=self.aggregates,
            retract=isinstance(self.late, Update) and self.late.retract,
        )

    def _judged(self, rows: pa.Table, watermark_us: int) -> tuple[LateRows, Indices]:
        """Which rows are late, and the pane of each."""
        rows_us, has_time = times_us(rows, self.time)
        # A time that no calendar has is as good as none.
        has_time &= (rows_us >= EVENT_TIME_US_MIN) & (rows_us <= EVENT_TIME_US_MAX)
        panes_us = self.grid.panes(np.where(has_time, rows_us, 0))
        ends_us = self.grid.last_ends(panes_us)
        late = LateRows(
            is_late=has_time & (ends_us + within_us(self.late) <= watermark_us),
            has_time=has_time,
            start_us=self.grid.starts(ends_us),
            end_us=ends_us,
            watermark_us=watermark_us,
        )
        return late, panes_us

    def _gathered(
        self, state: Tables, rows: pa.Table, late: LateRows, panes_us: Indices
    ) -> tuple[pa.Table, Panes]:
        """The table of keys, and the panes of the rows that are taken in."""
        known = read_keys(state.get(KEYS), rows.schema, self.by)
        is_in = late.has_time & ~late.is_late
        if not is_in.all():
            rows, panes_us = rows.filter(pa.array(is_in)), panes_us[is_in]
        keys, numbers = find_keys(known, rows, self.by)
        return keys, gather_panes(rows, numbers, panes_us, late.watermark_us, self.aggregates)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bucket:
    """What the parts of one step have in common."""

    logic: AlignedWindows
    layout: Layout
    tracked: Tracked
    keys: pa.Table
    added: Panes
    """The panes of the micro-batch's rows alone."""

    def fired(self, before: Panes, after: Panes, known: OpenWindows) -> tuple[pa.Table, OpenWindows]:
        """The results of the windows that fire, and the windows that are open then."""
        opened = self._opened(known)
        trigger, log_time_us = self.logic.trigger, self.tracked.log_time_us
        due = (
            np.flatnonzero(opened.due(trigger, log_time_us))
            if isinstance(trigger, Early)
            else np.zeros(0, int)
        )
        ended_keys, ended_us = self._ended(after)
        keys = np.concatenate([ended_keys, opened.keys[due]])
        ends_us = np.concatenate([ended_us, opened.ends_us[due]])
        composed = compose(after, keys, self.logic.grid.starts(ends_us), ends_us, self.layout)
        assert len(composed.which) == len(keys), "a window that fires has a pane"
        is_late, is_early = ends_us <= self.tracked.before_us, ends_us > self.tracked.after_us
        results = self._rows(keys, ends_us, composed.results, firing_names(is_late, is_early))
        early = [column.slice(len(ended_keys)) for column in composed.results]
        opened = opened.after_firing(due, log_time_us, early)
        order = np.lexsort((keys, ends_us))
        if self.layout.retract and len(keys):
            results, order = self._with_retractions(results, keys, ends_us, before, known)
        return results.take(pa.array(order)), opened

    def kept(self, state: Tables, before: Panes, after: Panes, opened: OpenWindows) -> dict[str, pa.Table]:
        """The tables of state after the step; those in which nothing has changed are the same objects."""
        last_us = self.logic.grid.last_ends(after.starts_us) + within_us(self.logic.late)
        alive = np.flatnonzero(last_us > self.tracked.after_us)
        panes = after if len(alive) == len(after.keys) else after.taken(alive)
        keys, fewer = self.keys, fewer_keys(self.keys, panes.keys)
        if fewer is not None:
            keys, numbers = fewer
            panes, opened = (
                replace(panes, keys=numbers[panes.keys]),
                replace(opened, keys=numbers[opened.keys]),
            )
        is_same = panes is before and PANES in state
        tables = {KEYS: keys, PANES: state[PANES] if is_same else write_panes(panes, self.layout)}
        if isinstance(self.logic.trigger, Early):
            table, known = write_open(opened, self.layout), state.get(OPEN)
            tables[OPEN] = table if known is None or not table.equals(known) else known
        return tables

    def _opened(self, known: OpenWindows) -> OpenWindows:
        """The windows that have not ended after the step, with the rows that have come."""
        if not isinstance(self.logic.trigger, Early):
            return known.taken(np.zeros(0, dtype=np.int64))
        still = known.taken(np.flatnonzero(known.ends_us > self.tracked.after_us))
        keys, ends_us, rows = distinct_windows(self.added, self.logic.grid, self.tracked.after_us, END_US)
        return with_rows(still, keys, ends_us, rows, self.tracked.log_time_us)

    def _ended(self, after: Panes) -> tuple[Indices, Indices]:
        """Keys and ends of the windows that fire on time, or late."""
        grid, before_us = self.logic.grid, self.tracked.before_us
        kept_us = before_us - within_us(self.logic.late)
        late_keys, late_us, _ = distinct_windows(self.added, grid, kept_us, before_us)
        keys, ends_us, _ = distinct_windows(after, grid, before_us, self.tracked.after_us)
        return np.concatenate([late_keys, keys]), np.concatenate([late_us, ends_us])

    def _with_retractions(
        self, results: pa.Table, keys: Indices, ends_us: Indices, before: Panes, known: OpenWindows
    ) -> tuple[pa.Table, Indices]:
        """Results and the rows that take back what they replace, and the order of all."""
        late = np.flatnonzero(ends_us <= self.tracked.before_us)
        starts_us = self.logic.grid.starts(ends_us[late])
        old = compose(before, keys[late], starts_us, ends_us[late], self.layout)
        late = late[old.which]
        firing = np.where(old.changed_us >= ends_us[late], LATE_FIRING, ON_TIME)
        rows = [results, self._rows(keys[late], ends_us[late], old.results, firing, retracted=True)]
        places, is_known = Places(known.keys, known.ends_us).find(keys, ends_us)
        early = np.flatnonzero(is_known)
        early = early[known.fired_rows[places[early]] > 0]
        given = [column.take(pa.array(places[early])) for column in known.given]
        firing = np.full(len(early), EARLY)
        rows.append(self._rows(keys[early], ends_us[early], given, firing, retracted=True))
        of = np.concatenate([np.arange(len(keys)), late, early])
        is_new = np.arange(len(of)) < len(keys)
        return pa.concat_tables(rows), np.lexsort((is_new, keys[of], ends_us[of]))

    def _rows(
        self,
        keys: Indices,
        ends_us: Indices,
        values: list[pa.Array],
        firing: Names,
        *,
        retracted: bool = False,
    ) -> pa.Table:
        """Rows of results."""
        key_columns = self.keys.select(list(self.layout.by)).take(pa.array(keys)).columns
        window = window_column(self.logic.grid.starts(ends_us), ends_us, self.layout.time)
        columns = [*key_columns, window, *values, pa.array(firing, pa.string())]
        if self.layout.retract:
            columns.append(pa.array(np.full(len(keys), retracted)))
        return pa.Table.from_arrays(columns, schema=self.layout.results)
