"""Session windows: events of a key that are less than a gap apart belong together.

The window of a session reaches from its first event to `gap` after its last one. State, in two tables:

    sessions   the key's columns
               _first_us, _last_us    the times of its first and last event
               _fired                 whether it has fired since it last changed, its end having passed
               _fresh_rows            rows that have come since it last fired
               _since_us              the log's time when it last fired, or began
               partials
    given      only where changes are retracted: the results that would have to be taken back, as they were
               given; a result belongs to the session of its key that its window lies in

A step, with W the watermark before it and W' the one after:

1. Rows are put together with each other and with the kept sessions; what is less than `gap` apart becomes one
   session. So the order of rows within a micro-batch does not matter.
2. A session with end + within <= W has only new rows, since a kept one would have been forgotten: those rows
   are late.
3. A session with end <= W' that has changed, or has not fired yet, fires: "late" if its end <= W, else
   "on_time". So one that has fired and then grows past W is open again, and fires on time when that is over.
4. Of the others, those for which the trigger asks fire "early".
5. Sessions with end + within <= W' are forgotten.

Where sessions that have fired grow together, the results of both are taken back, if changes are retracted; if
not, they stand beside that of the new window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import LATE, RESULTS, Arrivals, Step, Tables
from headrace.streams.time.policies import Policy
from headrace.streams.time.watermarks import Tracked, track
from headrace.streams.windows.aggregate import Aggregate, Partials
from headrace.streams.windows.kept_state import read_kept
from headrace.streams.windows.keys import key_codes
from headrace.streams.windows.kinds import Session
from headrace.streams.windows.late import LatePolicy, Update, within_us
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
from headrace.streams.windows.runs import (
    Flags,
    Indices,
    run_lengths,
    stacked,
    starts_of_changes,
    take,
    united,
)
from headrace.streams.windows.triggers import Each, Early, OnTime, Trigger

SESSIONS: Final = "sessions"
GIVEN: Final = "given"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindows:
    """Steps session windows."""

    by: tuple[str, ...]
    time: str
    kind: Session
    aggregates: tuple[Aggregate, ...]
    watermark: Policy
    late: LatePolicy
    trigger: Trigger = field(default_factory=OnTime)

    def __post_init__(self) -> None:
        if isinstance(self.trigger, Each):
            raise PipelineError("each() is for global windows; give session windows on_time() or early()")

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        layout = self._layout(rows)
        return {RESULTS: layout.results, LATE: layout.late}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        tracked = track(self.watermark, state.get(WATERMARK), arrivals)
        rows, layout = arrivals.rows, self._layout(arrivals.rows.schema)
        kept = read_kept(state.get(SESSIONS), _kept_schema(layout), self.by)
        time_us, has_time = times_us(rows, self.time)
        timed = rows.filter(pa.array(has_time))
        spans = _spans(key_codes([kept, timed], self.by), kept, time_us[has_time], self.kind.gap_us)
        sessions = _sessions(layout, kept, timed, spans, tracked.log_time_us)
        due = self._due(sessions, tracked)
        late = self._late_rows(spans, due, has_time, tracked)
        results = self._results(layout, sessions, due)
        given = _given(state.get(GIVEN), results, spans.of_kept, due) if layout.retract else None
        tables = {WATERMARK: tracked.table, SESSIONS: kept}
        if len(spans.of_rows) or due.fires.any() or not due.stays.all():
            tables[SESSIONS] = _kept(layout, sessions, due, tracked.log_time_us)
        if given is not None:
            results = given.results
            tables[GIVEN] = given.kept
        return Step(
            state=tables,
            outputs={RESULTS: results, **late.outputs(rows, layout, self.late)},
            counts=late.counts(self.late),
            gauges=watermark_gauge(tracked.after_us),
            time_report=tracked.report,
        )

    def _layout(self, rows: pa.Schema) -> Layout:
        retract = isinstance(self.late, Update) and self.late.retract
        time = time_type(rows, self.time)
        return Layout(rows=rows, by=self.by, time=time, aggregates=self.aggregates, retract=retract)

    def _due(self, sessions: _Sessions, tracked: Tracked) -> _Due:
        end_us = sessions.last_us + self.kind.gap_us
        kept_until_us = end_us + within_us(self.late)
        has_ended = end_us <= tracked.after_us
        is_early = ~has_ended & (sessions.fresh_rows > 0) & self._is_asked(sessions, tracked.log_time_us)
        is_over = kept_until_us <= tracked.before_us
        return _Due(
            fires=(has_ended & ~sessions.fired & ~is_over) | is_early,
            is_early=is_early,
            is_late=end_us <= tracked.before_us,
            has_ended=has_ended,
            is_over=is_over,
            stays=kept_until_us > tracked.after_us,
        )

    def _is_asked(self, sessions: _Sessions, log_time_us: int) -> Flags:
        """For which sessions the trigger asks for a result before their end."""
        if not isinstance(self.trigger, Early):
            return np.zeros(len(sessions.first_us), dtype=bool)
        if self.trigger.rows is not None:
            return sessions.fresh_rows >= self.trigger.rows
        return log_time_us - sessions.since_us >= (self.trigger.every_us or 0)

    def _results(self, layout: Layout, sessions: _Sessions, due: _Due) -> pa.Table:
        fires = np.flatnonzero(due.fires)
        return layout.results_table(
            sessions.keys.take(pa.array(fires)),
            window_column(sessions.first_us[fires], sessions.last_us[fires] + self.kind.gap_us, layout.time),
            [take(partials, fires) for partials in sessions.partials],
            firing_names(due.is_late[fires], due.is_early[fires]),
        )

    def _late_rows(self, spans: _Spans, due: _Due, has_time: Flags, tracked: Tracked) -> LateRows:
        is_late = ~has_time
        is_late[has_time] = due.is_over[spans.of_rows]
        start_us, end_us = np.zeros((2, len(has_time)), dtype=np.int64)
        start_us[has_time] = spans.first_us[spans.of_rows]
        end_us[has_time] = spans.last_us[spans.of_rows] + self.kind.gap_us
        return LateRows(
            is_late=is_late,
            has_time=has_time,
            start_us=start_us,
            end_us=end_us,
            watermark_us=tracked.before_us,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spans:
    """Which sessions there are, and what they consist of. They are numbered by key, then by time."""

    of_kept: Indices
    """The session that each kept one has become, or become a part of."""
    of_rows: Indices
    first_us: Indices
    last_us: Indices


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sessions:
    """All sessions with what has come."""

    keys: pa.Table
    first_us: Indices
    last_us: Indices
    fired: Flags
    fresh_rows: Indices
    since_us: Indices
    partials: list[Partials]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    """What becomes of each session in this step."""

    fires: Flags
    is_early: Flags
    is_late: Flags
    has_ended: Flags
    is_over: Flags
    """Its rows are late."""
    stays: Flags


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    results: pa.Table
    kept: pa.Table


def _kept_schema(layout: Layout) -> pa.Schema:
    own = {
        "_first_us": pa.int64(),
        "_last_us": pa.int64(),
        "_fired": pa.bool_(),
        "_fresh_rows": pa.int64(),
        "_since_us": pa.int64(),
    }
    keys = [pa.field(name, layout.rows.field(name).type) for name in layout.by]
    return pa.schema([*keys, *(pa.field(*one) for one in own.items()), *layout.partial_fields()])


def _spans(codes: list[Indices], kept: pa.Table, time_us: Indices, gap_us: int) -> _Spans:
    """Put what is less than a gap apart together: first rows with rows, then those with what is kept."""
    kept_codes, row_codes = codes
    order = np.lexsort((time_us, row_codes))
    code, time = row_codes[order], time_us[order]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (code[1:] != code[:-1]) | (time[1:] - time[:-1] >= gap_us)
    starts = np.flatnonzero(begins)
    stretch = np.empty(len(order), dtype=np.int64)
    stretch[order] = np.cumsum(begins) - 1
    ends = starts + run_lengths(starts, len(order)) - 1
    all_codes = np.concatenate([kept_codes, code[starts]])
    first_us = np.concatenate([_numbers(kept, "_first_us"), time[starts]])
    last_us = np.concatenate([_numbers(kept, "_last_us"), time[ends]])
    session, first_us, last_us = _overlapping(all_codes, first_us, last_us, gap_us)
    of_kept, of_stretches = session[: len(kept_codes)], session[len(kept_codes) :]
    return _Spans(of_kept=of_kept, of_rows=of_stretches[stretch], first_us=first_us, last_us=last_us)


def _overlapping(
    codes: Indices, first_us: Indices, last_us: Indices, gap_us: int
) -> tuple[Indices, Indices, Indices]:
    """The number of the session that each span is a part of, and the sessions' first and last times."""
    count = len(codes)
    if not count:
        return codes, first_us, last_us
    order = np.lexsort((first_us, codes))
    code = codes[order]
    # The running maximum of each key's last times. Ranks stand for times, so that keys can be put in front.
    by_last = np.argsort(last_us[order], kind="stable")
    rank = np.empty(count, dtype=np.int64)
    rank[by_last] = np.arange(count)
    dense = np.cumsum(np.append(False, code[1:] != code[:-1]))
    reached_us = last_us[order][by_last[np.maximum.accumulate(dense * count + rank) % count]]
    begins = np.ones(count, dtype=bool)
    begins[1:] = (code[1:] != code[:-1]) | (first_us[order][1:] - reached_us[:-1] >= gap_us)
    starts = np.flatnonzero(begins)
    session = np.empty(count, dtype=np.int64)
    session[order] = np.cumsum(begins) - 1
    return session, first_us[order][starts], reached_us[np.append(starts[1:], count) - 1]


def _sessions(layout: Layout, kept: pa.Table, rows: pa.Table, spans: _Spans, log_time_us: int) -> _Sessions:
    count = len(spans.first_us)
    order = np.argsort(spans.of_rows, kind="stable")
    starts = starts_of_changes(spans.of_rows[order])
    touched = spans.of_rows[order[starts]]
    new_rows = np.bincount(spans.of_rows, minlength=count)
    fresh_rows, since_us = new_rows.copy(), np.full(count, log_time_us, dtype=np.int64)
    np.add.at(fresh_rows, spans.of_kept, _numbers(kept, "_fresh_rows"))
    np.minimum.at(since_us, spans.of_kept, _numbers(kept, "_since_us"))
    fired = np.zeros(count, dtype=bool)
    fired[spans.of_kept] = np.asarray(kept["_fired"], dtype=bool)
    source = np.empty(count, dtype=np.int64)
    source[touched] = kept.num_rows + order[starts]
    source[spans.of_kept] = np.arange(kept.num_rows)
    names = list(layout.by)
    sorted_rows = rows.take(pa.array(order))
    return _Sessions(
        keys=stacked([kept.select(names), rows.select(names)]).take(pa.array(source)),
        first_us=spans.first_us,
        last_us=spans.last_us,
        fired=fired & (new_rows == 0),
        fresh_rows=fresh_rows,
        since_us=since_us,
        partials=[
            united(aggregate, old, spans.of_kept, aggregate.gather(sorted_rows, starts), touched)
            for aggregate, old in zip(layout.aggregates, layout.read_partials(kept), strict=True)
        ],
    )


def _kept(layout: Layout, sessions: _Sessions, due: _Due, log_time_us: int) -> pa.Table:
    stays = np.flatnonzero(due.stays)
    own = (
        sessions.first_us,
        sessions.last_us,
        sessions.fired | (due.fires & due.has_ended),
        np.where(due.fires, 0, sessions.fresh_rows),
        np.where(due.fires, log_time_us, sessions.since_us),
    )
    columns = [
        *sessions.keys.take(pa.array(stays)).columns,
        *(pa.array(values[stays]) for values in own),
        *(column for partials in sessions.partials for column in take(partials, stays)),
    ]
    return pa.Table.from_arrays(columns, schema=_kept_schema(layout))


def _given(before: pa.Table | None, results: pa.Table, of_kept: Indices, due: _Due) -> _Given:
    """Put before each result what it replaces; keep what may have to be taken back."""
    fires = np.flatnonzero(due.fires)
    added = results.append_column("_session", pa.array(fires))
    if before is None:
        before = added.schema.empty_table()
    session = of_kept[_numbers(before, "_session")]
    before = before.set_column(before.schema.get_field_index("_session"), "_session", pa.array(session))
    is_replaced = due.fires[session]
    replaced = retracted(before.filter(pa.array(is_replaced)))
    order = np.argsort(np.concatenate([session[is_replaced], fires]), kind="stable")
    told = stacked([replaced, added]).take(pa.array(order)).select(results.schema.names)
    kept = stacked([before.filter(pa.array(~is_replaced)), added]).select(added.schema.names)
    session = _numbers(kept, "_session")
    number = np.cumsum(due.stays) - 1
    kept = kept.set_column(kept.schema.get_field_index("_session"), "_session", pa.array(number[session]))
    return _Given(results=told, kept=kept.filter(pa.array(due.stays[session])))


def _numbers(table: pa.Table, column: str) -> Indices:
    return np.asarray(table[column], dtype=np.int64)
