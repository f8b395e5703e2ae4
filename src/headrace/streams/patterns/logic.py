"""Finds a pattern in the rows of each key: the logic of `hr.match`.

A step, with W the watermark before it and W' the one after:

1. A row at t < W is late.
2. In the order of event time, rows wait until the watermark is past them: those at t < W' come up, by time;
   of the same time, in the order of the log. By arrival, all rows come up at once, in the order of the log.
3. Attempts go on with the rows that have come up, and each of those rows that can be a first one begins an
   attempt. Those whose time is over by W' are closed.
4. Attempts are settled; those that are told of become results.

State: `waiting` has the rows that have not come up. `rows` has, of each key, those that have come up, from
the first row on at which an attempt is still waited for; by key, and within a key in their order:

    the row's own columns, and the mask of its conditions
    _threads   the attempt that begins at this row: the state of its automaton; NULL where none does
    _matched   how many rows its match has so far, 0 for none
    _outcome   what has come of it, if it only waits for others to be decided
    _length    how many rows it has looked at by then
    _apart     what tells its match from others of equal rows, see equals.py

So what is kept of a key is at most `limit` rows, and those that wait for the watermark. An attempt that would
need more is cut off. It goes to the output `cut_off`, and is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import LATE, RESULTS, Arrivals, Step, Tables
from headrace.streams.patterns.equals import APART
from headrace.streams.patterns.evidence import CUT_OFF, match_schema
from headrace.streams.patterns.program import Program
from headrace.streams.patterns.search import Search, fitted
from headrace.streams.patterns.skipping import Emit, non_overlapping
from headrace.streams.patterns.so_far import Condition
from headrace.streams.time.policies import Policy
from headrace.streams.time.watermarks import Tracked, track
from headrace.streams.windows.arrival import log_places
from headrace.streams.windows.exact import column_type
from headrace.streams.windows.late import LatePolicy, Update, drop
from headrace.streams.windows.results import (
    WATERMARK,
    LateRows,
    Layout,
    time_type,
    times_us,
    watermark_gauge,
)

ROWS: Final = "rows"
WAITING: Final = "waiting"
LIMIT: Final = 1_000
"""How many rows an attempt looks at, where nothing is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternMatches:
    """Steps the search for a pattern."""

    by: tuple[str, ...]
    time: str
    program: Program
    names: tuple[str, ...]
    """In the order of their bits."""
    mask: str
    """The column of masks: which conditions are true of a row."""
    watermark: Policy
    within_us: int | None = None
    functions: Mapping[int, Condition] = field(default_factory=dict)
    """Conditions that ask for the match so far, by bit. The bit says what is known without them."""
    emit: Emit = non_overlapping
    limit: int = LIMIT
    is_by_arrival: bool = False
    skips_others: bool = False
    """Whether rows of which no condition is true may lie anywhere, so that they need not be looked at."""
    tells_timed_out: bool = False
    late: LatePolicy = drop
    cut_off: LatePolicy = drop

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise PipelineError(f"match() looks at {self.limit!r} rows: let limit be at least one")
        if self.within_us is None and self.program.has_tail:
            raise PipelineError(
                "the pattern ends with '!': say within=..., so that it is known when nothing has come"
            )
        if isinstance(self.late, Update) or isinstance(self.cut_off, Update):
            raise PipelineError(
                "match() gives no match twice, so it can't update: drop, or side_output(topic)"
            )

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        for name in self.by:
            column_type(rows, name)
        matches = match_schema(rows, self.by, time_type(rows, self.time))
        results = matches.append(pa.field(APART, pa.int64()))
        return {RESULTS: results, CUT_OFF: matches, LATE: self._layout(rows).late}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        tracked = track(self.watermark, state.get(WATERMARK), arrivals)
        rows = arrivals.rows
        time_us, has_time = times_us(rows, self.time)
        late = LateRows(
            is_late=has_time & (time_us < tracked.before_us),
            has_time=has_time,
            start_us=time_us,
            end_us=time_us,
            watermark_us=tracked.before_us,
        )
        taken = has_time & ~late.is_late
        if self.skips_others:
            taken &= np.asarray(rows[self.mask], dtype=np.int64) != 0
        come = rows if taken.all() else rows.filter(pa.array(taken))
        ready, waiting = self._come_up(state.get(WAITING), come, tracked)
        search = Search.of(self, state.get(ROWS), ready)
        outputs, counts, kept = search.run(tracked)
        return Step(
            state={WATERMARK: tracked.table, ROWS: kept, WAITING: waiting},
            outputs={**outputs, **late.outputs(rows, self._layout(rows.schema), self.late)},
            counts={**counts, **late.counts(self.late)},
            gauges=watermark_gauge(tracked.after_us),
            time_report=tracked.report,
        )

    def _layout(self, rows: pa.Schema) -> Layout:
        return Layout(rows=rows, by=self.by, time=time_type(rows, self.time), aggregates=())

    def _come_up(
        self, waiting: pa.Table | None, come: pa.Table, tracked: Tracked
    ) -> tuple[pa.Table, pa.Table]:
        """The rows that come up now, in their order, and those that go on waiting."""
        waiting = fitted(waiting, come.schema)
        if self.is_by_arrival and not len(waiting):
            return _in_order(come, self.time, by_arrival=True), waiting
        everything = waiting
        if len(come):
            everything = pa.concat_tables([waiting, come]).combine_chunks()
        is_ready = times_us(everything, self.time)[0] < tracked.after_us
        if not is_ready.any():
            return everything.slice(0, 0), everything
        ready = everything.filter(pa.array(is_ready))
        return _in_order(ready, self.time, by_arrival=False), everything.filter(pa.array(~is_ready))


def _in_order(rows: pa.Table, time: str, *, by_arrival: bool) -> pa.Table:
    """Rows in the order in which they count."""
    places = [np.asarray(each.cast(pa.int64())) for each in log_places(rows)]
    times = [] if by_arrival else [times_us(rows, time)[0]]
    order = np.lexsort((*reversed(places), *times))
    return rows if (np.diff(order) == 1).all() else rows.take(pa.array(order))
