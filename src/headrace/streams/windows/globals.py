"""Global windows: one window for all time, which a trigger fires again and again.

Rows of a key are counted in the order of arrival, in groups:

| trigger | a group is closed |
|---|---|
| `each(rows=n)` | by its n-th row |
| `each(where=flag)` | by a row in which the column is true, which is in the group |
| `each(every=d)` | at the end of the micro-batch in which the log is d further than when the group began |

A group that is closed fires, and the next row of the key begins a new one; with `accumulate` a firing has all
rows of the key so far. What is not closed at the end of the input fires "on_time": the end of all time. All
other firings are "early", because more can come. `window` is NULL, for it has no bounds. Event times mean
nothing here, so no row is late. State:

    groups     the key's columns
               _row_count             rows in the group that is open
               _since_us              the log's time when it began
               partials

Groups that are closed are forgotten, unless they accumulate: then each key that was ever seen is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import RESULTS, Arrivals, Step, Tables
from headrace.streams.time.policies import perfect
from headrace.streams.time.watermarks import track
from headrace.streams.windows.aggregate import Aggregate, Partials
from headrace.streams.windows.exact import column_type, values_of
from headrace.streams.windows.kept_state import read_kept
from headrace.streams.windows.keys import key_codes
from headrace.streams.windows.late import Drop, LatePolicy, drop
from headrace.streams.windows.results import EARLY, ON_TIME, WATERMARK, Layout
from headrace.streams.windows.runs import (
    Flags,
    Indices,
    run_lengths,
    running,
    stacked,
    starts_of_changes,
    take,
    united,
)
from headrace.streams.windows.triggers import Each, Trigger

GROUPS: Final = "groups"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalWindows:
    """Steps global windows."""

    by: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    trigger: Trigger
    late: LatePolicy = drop

    def __post_init__(self) -> None:
        if not isinstance(self.trigger, Each):
            raise PipelineError(
                f"a global window has no end, so it never fires by {self.trigger!r}; "
                "give it each(rows=...), each(every=...) or each(where=...)"
            )
        if not isinstance(self.late, Drop):
            raise PipelineError(
                "no row is late for a global window, which has no end; leave the late policy out"
            )

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        where = self._each.where
        if where is not None and not pa.types.is_boolean(found := column_type(rows, where)):
            raise PipelineError(f"each(where={where!r}) needs a boolean column, but it is one of {found}")
        return {RESULTS: self._layout(rows).results}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        # Only the log's time is wanted of it.
        tracked = track(perfect(), state.get(WATERMARK), arrivals)
        rows, layout = arrivals.rows, self._layout(arrivals.rows.schema)
        kept = read_kept(state.get(GROUPS), _kept_schema(layout), self.by)
        cut = self._cut(kept, rows)
        groups = self._groups(layout, kept, rows, cut, tracked.log_time_us)
        fires = groups.is_closed | ((groups.row_count > 0) & arrivals.is_end)
        tables = {WATERMARK: tracked.table, GROUPS: kept}
        if rows.num_rows or fires.any():
            tables[GROUPS] = self._kept(layout, groups)
        return Step(state=tables, outputs={RESULTS: _results(layout, groups, fires)})

    @property
    def _each(self) -> Each:
        assert isinstance(self.trigger, Each)
        return self.trigger

    def _layout(self, rows: pa.Schema) -> Layout:
        time = pa.timestamp("us", "UTC")
        return Layout(rows=rows, by=self.by, time=time, aggregates=self.aggregates)

    def _cut(self, kept: pa.Table, rows: pa.Table) -> _Cut:
        """Cut each key's rows into groups, the first of which goes on with the one that is kept."""
        kept_codes, row_codes = key_codes([kept, rows], self.by)
        order = np.argsort(row_codes, kind="stable")
        code = row_codes[order]
        carried = np.zeros(max(kept_codes.max(initial=-1), code.max(initial=-1)) + 1, dtype=np.int64)
        carried[kept_codes] = _numbers(kept, "_row_count")
        key_starts = starts_of_changes(code)
        place = np.arange(len(code)) - np.repeat(key_starts, run_lengths(key_starts, len(code)))
        if self._each.rows is not None:
            closes = (carried[code] + place + 1) % self._each.rows == 0
        elif self._each.where is not None:
            flags = pc.fill_null(values_of(rows, self._each.where), False)
            closes = np.asarray(flags, dtype=bool)[order]
        else:
            closes = np.zeros(len(code), dtype=bool)
        closed = np.cumsum(closes) - closes
        group = closed - np.repeat(closed[key_starts], run_lengths(key_starts, len(code)))
        starts = starts_of_changes(code, group)
        codes = np.concatenate([kept_codes, code[starts]])
        numbers = _numbered(codes, np.concatenate([np.zeros_like(kept_codes), group[starts]]))
        return _Cut(
            order=order,
            starts=starts,
            lengths=run_lengths(starts, len(order)),
            closes=closes[starts + run_lengths(starts, len(order)) - 1],
            of_kept=numbers[: len(kept_codes)],
            of_added=numbers[len(kept_codes) :],
            codes=codes[np.unique(numbers, return_index=True)[1]],
        )

    def _groups(self, layout: Layout, kept: pa.Table, rows: pa.Table, cut: _Cut, log_time_us: int) -> _Groups:
        count = len(cut.codes)
        kept_count = _numbers(kept, "_row_count")
        row_count, since_us = np.zeros(count, dtype=np.int64), np.full(count, log_time_us, dtype=np.int64)
        row_count[cut.of_kept] = kept_count
        row_count[cut.of_added] += cut.lengths
        since_us[cut.of_kept] = np.where(kept_count > 0, _numbers(kept, "_since_us"), log_time_us)
        is_closed, closing_row = np.zeros(count, dtype=bool), np.full(count, len(cut.order), dtype=np.int64)
        is_closed[cut.of_added] = cut.closes
        last_rows = cut.order[cut.starts + cut.lengths - 1]
        closing_row[cut.of_added] = np.where(cut.closes, last_rows, len(cut.order))
        if self._each.every_us is not None:
            is_closed = (row_count > 0) & (log_time_us - since_us >= self._each.every_us)
        key_starts = starts_of_changes(cut.codes)
        is_last = np.zeros(count, dtype=bool)
        is_last[np.append(key_starts[1:], count)[: len(key_starts)] - 1] = True
        return _Groups(
            keys=_keys(kept.select(list(self.by)), rows.select(list(self.by)), cut),
            is_last=is_last,
            row_count=row_count,
            since_us=since_us,
            is_closed=is_closed,
            closing_row=closing_row,
            partials=self._partials(layout, kept, rows.take(pa.array(cut.order)), cut),
        )

    def _partials(self, layout: Layout, kept: pa.Table, rows: pa.Table, cut: _Cut) -> list[Partials]:
        partials = [
            united(aggregate, old, cut.of_kept, aggregate.gather(rows, cut.starts), cut.of_added)
            for aggregate, old in zip(layout.aggregates, layout.read_partials(kept), strict=True)
        ]
        if not self._each.accumulate:
            return partials
        key_starts = starts_of_changes(cut.codes)
        return [running(one, p, key_starts) for one, p in zip(layout.aggregates, partials, strict=True)]

    def _kept(self, layout: Layout, groups: _Groups) -> pa.Table:
        stays = np.flatnonzero(groups.is_last & (self._each.accumulate | ~groups.is_closed))
        columns = [
            *groups.keys.take(pa.array(stays)).columns,
            pa.array(np.where(groups.is_closed, 0, groups.row_count)[stays]),
            pa.array(groups.since_us[stays]),
            *(column for partials in groups.partials for column in take(partials, stays)),
        ]
        return pa.Table.from_arrays(columns, schema=_kept_schema(layout))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """How rows are cut into groups. Groups are numbered by key, then in the order in which they come."""

    order: Indices
    """Sorts rows by key; the runs are in this order."""
    starts: Indices
    lengths: Indices
    closes: Flags
    """Whether the last row of a run closes its group."""
    of_kept: Indices
    """The number of the group that each kept one is the beginning of."""
    of_added: Indices
    """The number of the group that each run is in."""
    codes: Indices
    """The key of each group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Groups:
    """All groups with what has come."""

    keys: pa.Table
    is_last: Flags
    """Whether it is the last one of its key."""
    row_count: Indices
    since_us: Indices
    is_closed: Flags
    closing_row: Indices
    """The place, in the order of arrival, of the row that closes the group; behind all, where none does."""
    partials: list[Partials]


def _kept_schema(layout: Layout) -> pa.Schema:
    own = [pa.field("_row_count", pa.int64()), pa.field("_since_us", pa.int64())]
    keys = [pa.field(name, layout.rows.field(name).type) for name in layout.by]
    return pa.schema([*keys, *own, *layout.partial_fields()])


def _keys(kept: pa.Table, rows: pa.Table, cut: _Cut) -> pa.Table:
    source = np.empty(len(cut.codes), dtype=np.int64)
    source[cut.of_added] = kept.num_rows + cut.order[cut.starts]
    source[cut.of_kept] = np.arange(kept.num_rows)
    return stacked([kept, rows]).take(pa.array(source))


def _numbered(codes: Indices, groups: Indices) -> Indices:
    """Numbers for pairs, in their order and without a gap."""
    order = np.lexsort((groups, codes))
    numbers = np.empty(len(order), dtype=np.int64)
    starts = starts_of_changes(codes[order], groups[order])
    numbers[order] = np.repeat(np.arange(len(starts)), run_lengths(starts, len(order)))
    return numbers


def _results(layout: Layout, groups: _Groups, fires: Flags) -> pa.Table:
    """The results of groups in the order in which they were closed, then of those that the end closes."""
    which = np.flatnonzero(fires)
    which = which[np.argsort(groups.closing_row[which], kind="stable")]
    return layout.results_table(
        groups.keys.take(pa.array(which)),
        pa.nulls(len(which), layout.results.field("window").type),
        [take(partials, which) for partials in groups.partials],
        np.where(groups.is_closed[which], EARLY, ON_TIME),
    )


def _numbers(table: pa.Table, column: str) -> Indices:
    return np.asarray(table[column], dtype=np.int64)
