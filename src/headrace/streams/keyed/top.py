"""The n greatest rows of each group, kept current: a leaderboard.

A result says what is at a rank now; it replaces what was said of the rank before:

| column | |
|---|---|
| the columns of `by` | the group |
| `rank` | from 1 on |
| the row's other columns | NULL where the rank is removed |
| `removed` | whether there is nothing at the rank any more |

Only ranks that change are told, at the end of a micro-batch. Of rows that are equal in what they are ordered
by, the one that came first is greater. NULL is less than any value, and NaN is greater.

Two things can make a row leave, other than greater rows. With `item`, a row replaces the earlier one of the
same item, such as a player's score. With `ttl`, a row leaves when the watermark is a ttl later than it; a row
that would have left already when it comes is late. At the end of the input, the newest event stands for the
watermark.

State: `rows` has the rows' own columns, in the order of arrival, and `_rank` as it was told, 0 for none.
Without `item` and `ttl` only the greatest rows are kept, else all that have not left: any of them may become
one of the greatest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import LATE, RESULTS, Arrivals, Step, Tables
from headrace.streams.time.bounds import END_US
from headrace.streams.time.policies import Policy
from headrace.streams.time.watermarks import Tracked, track
from headrace.streams.windows.exact import column_type, in_one_piece
from headrace.streams.windows.kept_state import check_types
from headrace.streams.windows.keys import key_codes
from headrace.streams.windows.late import LatePolicy, Update, drop
from headrace.streams.windows.order import is_ordered
from headrace.streams.windows.rank import greatest
from headrace.streams.windows.results import (
    WATERMARK,
    LateRows,
    Layout,
    time_type,
    times_us,
    watermark_gauge,
)
from headrace.streams.windows.runs import Flags, Indices, stacked

ROWS: Final = "rows"
_RANK: Final = "_rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopRows:
    """Steps leaderboards. `time` and `ttl_us` are given together, or not at all."""

    by: tuple[str, ...]
    n: int
    order_by: tuple[str, ...]
    watermark: Policy
    smallest: bool = False
    """Whether the smallest rows are meant instead; NULL comes last all the same."""
    item: tuple[str, ...] = ()
    time: str | None = None
    ttl_us: int | None = None
    late: LatePolicy = drop

    def __post_init__(self) -> None:
        if self.n < 1:
            raise PipelineError(f"top() was asked for {self.n!r} rows: ask for at least one")
        if not self.order_by:
            raise PipelineError("top() needs a column to order by")
        if (self.time is None) != (self.ttl_us is None):
            raise PipelineError("top() needs both an event time and a ttl, or neither of them")
        if isinstance(self.late, Update):
            raise PipelineError(
                "top() always tells what has changed; its late rows can be dropped, or go to a topic"
            )

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        for name in self.order_by:
            if not is_ordered(found := column_type(rows, name)):
                raise PipelineError(
                    f"top() can't order by {name!r}, a column of {found}: order by plain values"
                )
        for name in self.item:
            column_type(rows, name)
        for name in ("rank", "removed"):
            if name in rows.names:
                raise PipelineError(f"top() gives a column {name!r}: rename the one that the rows have")
        keys = [pa.field(name, column_type(rows, name)) for name in self.by]
        others = [pa.field(field.name, field.type) for field in rows if field.name not in self.by]
        results = pa.schema([*keys, ("rank", pa.int32()), *others, ("removed", pa.bool_())])
        if self.time is None:
            return {RESULTS: results}
        return {RESULTS: results, LATE: self._layout(rows, self.time).late}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        tracked = track(self.watermark, state.get(WATERMARK), arrivals)
        rows = arrivals.rows
        kept = state.get(ROWS)
        if kept is None:
            kept = _unranked(rows.slice(0, 0))
        check_types(kept, rows.schema)
        late = self._late_rows(rows, tracked)
        if late is not None:
            rows = rows.filter(pa.array(late.has_time & ~late.is_late))
        new = _unranked(rows)
        board = stacked([kept, new]).select(new.schema.names).combine_chunks()
        codes = key_codes([board], self.by)[0]
        stays = self._stays(board, arrivals, tracked)
        ranks = self._ranks(board, codes, stays)
        results = self._results(arrivals.rows.schema, board, codes, ranks)
        tables = {WATERMARK: tracked.table, ROWS: kept}
        if rows.num_rows or not stays.all():
            remains = stays if self.item or self.time else stays & (ranks > 0)
            tables[ROWS] = _with_ranks(board, ranks).filter(pa.array(remains))
        if late is None or self.time is None:
            return Step(state=tables, outputs={RESULTS: results})
        layout = self._layout(arrivals.rows.schema, self.time)
        return Step(
            state=tables,
            outputs={RESULTS: results, **late.outputs(arrivals.rows, layout, self.late)},
            counts=late.counts(self.late),
            gauges=watermark_gauge(tracked.after_us),
            time_report=tracked.report,
        )

    def _layout(self, rows: pa.Schema, time: str) -> Layout:
        return Layout(rows=rows, by=self.by, time=time_type(rows, time), aggregates=())

    def _late_rows(self, rows: pa.Table, tracked: Tracked) -> LateRows | None:
        if self.time is None or self.ttl_us is None:
            return None
        time_us, has_time = times_us(rows, self.time)
        return LateRows(
            is_late=has_time & (time_us + self.ttl_us <= tracked.before_us),
            has_time=has_time,
            start_us=time_us,
            end_us=time_us + self.ttl_us,
            watermark_us=tracked.before_us,
        )

    def _stays(self, board: pa.Table, arrivals: Arrivals, tracked: Tracked) -> Flags:
        """Which rows have not left."""
        stays = np.ones(board.num_rows, dtype=bool)
        if self.item:
            (codes,) = key_codes([board], [*self.by, *self.item])
            # The last one of each item, by looking for the first one from behind.
            stays[:] = False
            stays[board.num_rows - 1 - np.unique(codes[::-1], return_index=True)[1]] = True
        if self.time is not None and self.ttl_us is not None:
            now_us = tracked.after_us
            if now_us >= END_US:
                newest = [
                    one.event_time_us_max for one in arrivals.progress if one.event_time_us_max is not None
                ]
                now_us = max([tracked.before_us, *newest])
            stays &= times_us(board, self.time)[0] + self.ttl_us > now_us
        return stays

    def _ranks(self, board: pa.Table, codes: Indices, stays: Flags) -> Indices:
        """The rank of each row; 0 where it has none."""
        which = np.flatnonzero(stays)
        columns = [in_one_piece(board[name]).take(pa.array(which)) for name in self.order_by]
        best = which[greatest(columns, codes[which], self.n, smallest=self.smallest)]
        begins = np.ones(len(best), dtype=bool)
        begins[1:] = codes[best][1:] != codes[best][:-1]
        starts = np.flatnonzero(begins)
        ranks = np.zeros(board.num_rows, dtype=np.int64)
        ranks[best] = np.arange(len(best)) - starts[np.cumsum(begins) - 1] + 1
        return ranks

    def _results(self, rows: pa.Schema, board: pa.Table, codes: Indices, ranks: Indices) -> pa.Table:
        """The ranks that have changed, by group."""
        told = np.asarray(board[_RANK], dtype=np.int64)
        places, told_places = codes * (self.n + 1) + ranks, codes * (self.n + 1) + told
        is_changed = (ranks > 0) & (ranks != told)
        is_removed = (told > 0) & ~np.isin(told_places, places[ranks > 0])
        which = np.concatenate([np.flatnonzero(is_changed), np.flatnonzero(is_removed)])
        removed = np.arange(len(which)) >= np.count_nonzero(is_changed)
        rank = np.where(removed, told[which], ranks[which])
        order = np.lexsort((rank, codes[which]))
        which, removed, rank = which[order], removed[order], rank[order]
        schema = self.output_schemas(rows)[RESULTS]
        # NULL where a row would be taken from gives NULL in all of its columns.
        told_of, blanked = pa.array(which), pa.array(which, mask=removed)
        own = {"rank": pa.array(rank, pa.int32()), "removed": pa.array(removed)}
        columns = [
            own[name] if name in own else board[name].take(told_of if name in self.by else blanked)
            for name in schema.names
        ]
        return pa.Table.from_arrays(columns, schema=schema)


def _unranked(rows: pa.Table) -> pa.Table:
    return rows.append_column(_RANK, pa.array(np.zeros(rows.num_rows, dtype=np.int64)))


def _with_ranks(board: pa.Table, ranks: Indices) -> pa.Table:
    return board.set_column(board.schema.get_field_index(_RANK), _RANK, pa.array(ranks))
