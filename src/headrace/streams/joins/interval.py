"""Rows of two streams that have the same key, and times that are near: see `Within`.

With W the join's time before a micro-batch and W' the one after (see sides):

1. A row at t < W is late: what it could belong to may be forgotten. All other rows that belong together come
   together, once, whatever the order in which they come.
2. Each new row is put together with all rows of the other side that it belongs to, those that are kept and
   those that are new; at once.
3. A row that can't get company any more, since what can still come is W' or later, is forgotten. If it has
   had none, and the join gives such rows, it is given then, with nulls in the place of the other side.

So a row of the left at t waits until t + after < W', and one of the right until t + before < W'. A row whose
key is null belongs to none; where the join gives such rows, it is given at once.

| how | gives |
|---|---|
| `inner` | pairs |
| `left`, `right`, `full` | pairs, and rows of the left, of the right, of both that had no company |
| `semi` | rows of the left, once, as soon as they have company |
| `anti` | rows of the left that had none |

State: what `sides` keeps, and the rows of each side that can still get company: see runs. A mark says that a
row has had some; it is kept where the join needs to know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import LATE, RESULTS, Arrivals, Step, Tables
from headrace.streams.joins.probe import has_key, same_keys
from headrace.streams.joins.runs import Pages, Read, Run, RunRows, Runs
from headrace.streams.joins.sides import HASH, IS_RIGHT, LEFT, RIGHT, SIDES, TIME, JoinTime, track_sides
from headrace.streams.joins.within import HOWS, How, Within
from headrace.streams.time.policies import Policy
from headrace.streams.windows.exact import column_type, in_one_piece
from headrace.streams.windows.late import LatePolicy, Update, drop
from headrace.streams.windows.results import LateRows, Layout, time_type, times_us, watermark_gauge
from headrace.streams.windows.runs import Flags, Indices

SIDE_COLUMN: Final = "join_side"
"""In late rows: the side that they are of."""
OTHER: Final = {LEFT: RIGHT, RIGHT: LEFT}

_GIVES_ALONE: Final = {LEFT: {"left", "full", "anti"}, RIGHT: {"right", "full"}}
_ONCE: Final = {"semi", "anti"}
"""Where a row of the left that has had company is of no interest any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalJoin:
    """Steps joins."""

    by: tuple[str, ...]
    left: tuple[str, ...]
    """The columns of the left that are given, without those of the key."""
    right: tuple[str, ...]
    within: Within
    how: How
    watermarks: Mapping[str, Policy]
    """Of each side."""
    late: LatePolicy = drop

    def __post_init__(self) -> None:
        if self.how not in HOWS:
            raise PipelineError(f"join: how is {self.how!r}; there are {', '.join(HOWS)}")
        if isinstance(self.late, Update):
            raise PipelineError(
                "join: what has come out alone can't be taken back, so late rows can't update: use hr.drop, "
                "or hr.side_output(topic)"
            )

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        """Results, and late rows."""
        return {RESULTS: self._results(rows), LATE: self._layout(rows).late}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        """Step one bucket."""
        time = track_sides(self.watermarks, state, arrivals)
        rows = arrivals.rows.combine_chunks()
        time_us, has_time = times_us(rows, TIME)
        is_late = has_time & (time_us < time.before_us)
        late = self._late(rows, time, time_us, has_time, is_late)
        pages = Pages(state)
        joining = _Joining(self, rows.schema, pages, time)
        taken = rows.filter(pa.array(has_time & ~is_late))
        joining.take(taken, time_us[has_time & ~is_late])
        results = joining.run()
        layout = self._layout(rows.schema)
        return Step(
            state={**time.tables, **pages.tables},
            outputs={RESULTS: results, **late.outputs(self._told(rows), layout, self.late)},
            counts=late.counts(self.late),
            gauges=watermark_gauge(time.after_us),
            time_report=time.report,
        )

    def columns_of(self, side: str) -> tuple[str, ...]:
        """What is kept of the rows of a side."""
        return (*self.by, *(self.left if side == LEFT else self.right))

    def reach_us(self, side: str) -> tuple[int, int]:
        """How far before, and after, a row of the side the rows are that it belongs to."""
        before_us, after_us = self.within.before_us, self.within.after_us
        return (before_us, after_us) if side == LEFT else (after_us, before_us)

    def result(self, rows: pa.Schema, found: Mapping[str, pa.Table]) -> pa.Table:
        """Results of rows of the sides at the same places; a side that is missing is null."""
        schema = self._results(rows)
        some = next(iter(found.values()))
        columns = []
        for each in schema:
            has = [table for table in found.values() if each.name in table.schema.names]
            columns.append(has[0][each.name] if has else pa.nulls(some.num_rows, each.type))
        return pa.Table.from_arrays(columns, schema=schema)

    def _results(self, rows: pa.Schema) -> pa.Schema:
        given = (*self.by, *self.left, *(self.right if self.how not in {"semi", "anti"} else ()))
        return pa.schema([pa.field(name, column_type(rows, name)) for name in given])

    def _layout(self, rows: pa.Schema) -> Layout:
        given = [pa.field(name, column_type(rows, name)) for name in (*self.by, *self.left, *self.right)]
        own = pa.schema([*given, pa.field(SIDE_COLUMN, pa.string())])
        return Layout(rows=own, by=self.by, time=time_type(rows, TIME), aggregates=())

    def _told(self, rows: pa.Table) -> pa.Table:
        """Rows as late ones are told."""
        sides = np.where(np.asarray(rows[IS_RIGHT], dtype=bool), RIGHT, LEFT)
        return rows.append_column(SIDE_COLUMN, pa.array(sides, pa.string()))

    def _late(
        self, rows: pa.Table, time: JoinTime, time_us: Indices, has_time: Flags, is_late: Flags
    ) -> LateRows:
        is_right = np.asarray(rows[IS_RIGHT], dtype=bool)
        back_us = np.where(is_right, self.within.after_us, self.within.before_us)
        return LateRows(
            is_late=is_late,
            has_time=has_time,
            start_us=time_us - np.maximum(back_us, 0),
            end_us=time_us,
            watermark_us=time.before_us,
        )


@dataclass(slots=True)
class _Joining:
    """One step of a bucket."""

    logic: IntervalJoin
    schema: pa.Schema
    pages: Pages
    time: JoinTime
    new: dict[str, RunRows] = field(default_factory=dict)
    """Of each side the rows that have come, those without a key left out, in the order of an index."""
    runs: dict[str, Runs] = field(default_factory=dict)
    results: list[pa.Table] = field(default_factory=list)

    def take(self, rows: pa.Table, time_us: Indices) -> None:
        """Take the micro-batch's rows in."""
        is_right = np.asarray(rows[IS_RIGHT], dtype=bool)
        keyed = has_key(rows, self.logic.by)
        hashes = np.asarray(in_one_piece(rows[HASH]), dtype=np.int64)
        for side in SIDES:
            is_own = is_right if side == RIGHT else ~is_right
            names = list(self.logic.columns_of(side))
            own = np.flatnonzero(is_own & keyed)
            self.new[side] = RunRows(
                rows=rows.select(names).take(pa.array(own)),
                hashes=hashes[own],
                times_us=time_us[own],
                marks=np.zeros(len(own), dtype=bool),
            ).ordered()
            schema = pa.schema([self.schema.field(name) for name in names])
            self.runs[side] = Runs(self.pages, side, schema)
            if self.logic.how in _GIVES_ALONE[side] and not keyed.all():
                self._give({side: rows.select(names).filter(pa.array(is_own & ~keyed))})

    def run(self) -> pa.Table:
        """The results."""
        self._match_new()
        for side in SIDES:
            for run in self.runs[side]:
                self._match_kept(side, run)
        if self.logic.how == "semi":
            self._give({LEFT: self.new[LEFT].rows.filter(pa.array(self.new[LEFT].marks))})
        for side in SIDES:
            self._give_alone(side)
            self._keep(side)
        none = self.logic.output_schemas(self.schema)[RESULTS].empty_table()
        return pa.concat_tables([none, *self.results])

    def _match_new(self) -> None:
        """New rows with new rows."""
        left, right = self.new[LEFT], self.new[RIGHT]
        if not len(left) or not len(right):
            return
        found = right.index.find(left.hashes, *self._range(LEFT, left.times_us))
        if self.logic.how in _ONCE:
            left.marks[found.any(self._same_keys(left.columns, right.columns))] = True
            return
        for mine, theirs in found.pairs():
            is_same = self._give_pairs({LEFT: (left.columns, mine), RIGHT: (right.columns, theirs)})
            left.marks[mine[is_same]] = True
            right.marks[theirs[is_same]] = True

    def _match_kept(self, side: str, run: Run) -> None:
        """The rows of a run of this side with the new rows of the other."""
        new, runs = self.new[OTHER[side]], self.runs[side]
        if not len(new):
            return
        from_us, to_us = self._range(OTHER[side], new.times_us)
        if run.newest_us < from_us.min() or run.oldest_us > to_us.max():
            return
        found = runs.index(run).find(new.hashes, from_us, to_us)
        kept = runs.reader(run)
        if self.logic.how in _ONCE and side == RIGHT:
            new.marks[found.any(self._same_keys(new.columns, kept), among=~new.marks)] = True
        elif self.logic.how in _ONCE:
            self._mark_once(run, found.all())
        else:
            for who, places in found.pairs():
                is_same = self._give_pairs({side: (kept, places), OTHER[side]: (new.columns, who)})
                new.marks[who[is_same]] = True
                if self._needs_marks(side):
                    runs.mark(run, places[is_same])

    def _mark_once(self, run: Run, places: Indices) -> None:
        """Mark rows of a run of the left that have company among the new rows; one each is enough."""
        runs, new = self.runs[LEFT], self.new[RIGHT]
        places = places[~runs.marks(run)[places]]
        index = runs.index(run)
        found = new.index.find(index.hashes[places], *self._range(LEFT, index.times_us[places]))
        kept = runs.reader(run)
        is_same = self._same_keys(lambda who, names: kept(places[who], names), new.columns)
        first = runs.mark(run, places[found.any(is_same)])
        if self.logic.how == "semi":
            self._give({LEFT: runs.rows(run, first)})

    def _give_alone(self, side: str) -> None:
        """The rows that can't get company any more, and have had none."""
        if self.logic.how not in _GIVES_ALONE[side]:
            return
        new, ends_us = self.new[side], self.logic.reach_us(side)[1]
        is_over = new.times_us + ends_us < self.time.after_us
        self._give({side: new.rows.filter(pa.array(is_over & ~new.marks))})
        for run in self.runs[side]:
            if (
                self.time.before_us <= run.newest_us + ends_us
                and run.oldest_us + ends_us < self.time.after_us
            ):
                until_us = self.runs[side].index(run).times_us + ends_us
                is_over = (until_us >= self.time.before_us) & (until_us < self.time.after_us)
                places = np.flatnonzero(is_over & ~self.runs[side].marks(run))
                self._give({side: self.runs[side].rows(run, places)})

    def _keep(self, side: str) -> None:
        """Forget what can't get company any more, and keep what is new."""
        runs, new = self.runs[side], self.new[side]
        ends_us = self.logic.reach_us(side)[1]
        is_done_once = side == LEFT and self.logic.how in _ONCE

        def wanted(rows: RunRows, _is_first: bool) -> Flags:
            stays = rows.times_us + ends_us >= self.time.after_us
            return stays & ~rows.marks if is_done_once else stays

        for run in runs:
            if run.newest_us + ends_us < self.time.after_us:
                runs.remove(run)
            elif run.oldest_us + ends_us < self.time.after_us:
                stays = runs.index(run).times_us + ends_us >= self.time.after_us
                if np.count_nonzero(stays) * 2 < run.rows:
                    runs.rewrite([run], wanted)
        if not self._needs_marks(side):
            new = replace(new, marks=np.zeros(len(new), dtype=bool))
        runs.append(new.take(np.flatnonzero(wanted(new, False))))
        runs.tidy(wanted)
        runs.finish()

    def _range(self, side: str, times_us: Indices) -> tuple[Indices, Indices]:
        """The times of rows that rows of this side belong to."""
        before_us, after_us = self.logic.reach_us(side)
        return times_us - before_us, times_us + after_us

    def _needs_marks(self, side: str) -> bool:
        return self.logic.how in _GIVES_ALONE[side] or (side == LEFT and self.logic.how == "semi")

    def _same_keys(self, left: Read, right: Read) -> Callable[[Indices, Indices], Flags]:
        """Tells of pairs of rows whether they have the same key; the hash of it is the same."""
        by = self.logic.by
        return lambda mine, theirs: same_keys(left(mine, by), right(theirs, by), by)

    def _give_pairs(self, pairs: Mapping[str, tuple[Read, Indices]]) -> Flags:
        """Give the pairs of which both have the same key, and tell which. Only their columns are read."""
        (left, mine), (right, theirs) = pairs[LEFT], pairs[RIGHT]
        is_same = self._same_keys(left, right)(mine, theirs)
        if is_same.any():
            self._give({LEFT: left(mine[is_same], None), RIGHT: right(theirs[is_same], None)})
        return is_same

    def _give(self, found: Mapping[str, pa.Table]) -> None:
        if next(iter(found.values())).num_rows:
            self.results.append(self.logic.result(self.schema, found))
