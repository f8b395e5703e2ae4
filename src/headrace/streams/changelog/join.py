"""Two tables that change, joined: a changelog of the rows of the join.

With L and R the tables before a micro-batch, and l and r the changes in it, what changes in the join is

    l ⋈ (R + r)  +  L ⋈ r

and weights are multiplied. So a change of one row on either side gives just the results that it is part of,
and costs no more than to read the rows of its key. Changes that undo each other are left out.

In a left or full join, a row without a partner gives a result of its own, in which the other side is NULL.
That changes with the row, and when the first partner of its key comes, or the last goes. NULL in a column of
the key is equal to nothing: such a row has no partner, ever, so it is not kept.

| column of the input | |
|---|---|
| the columns of `by` | what the rows are joined on |
| `_is_right` | which table the change is of |
| the columns of both tables | NULL in changes of the other |
| `_weight`, `_changed_at`, `_hash` | see zset.py; `_hash` is that of `by` |

A row that goes without having come is kept with a negative weight, so that it may still come, and counted as
`unmatched`; it is what happens when a changelog is not read from its beginning.

State, divided by the hash: `left` and `right`, the rows of the tables with what they are joined on, and
`_weight`, how often there is such a row. Pure: no Spark, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.buckets.logic import RESULTS, Arrivals, Step, Tables
from headrace.streams.changelog.slots import SlottedTables, hashes_of
from headrace.streams.changelog.zset import (
    CHANGED_AT,
    HASH,
    WEIGHT,
    WEIGHT_TYPE,
    consolidated,
    newest_times,
    relaxed,
    row_codes,
    row_columns,
    weighted,
    weights_of,
    with_column,
)
from headrace.streams.windows.exact import in_one_piece
from headrace.streams.windows.runs import Indices, ranges, stacked

IS_RIGHT: Final = "_is_right"
LEFT: Final = "left"
RIGHT: Final = "right"
How = Literal["inner", "left", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedTables:
    """Steps a join of two tables."""

    by: tuple[str, ...]
    left: tuple[str, ...]
    """The columns of the left table in the rows, and in results."""
    right: tuple[str, ...]
    how: How = "inner"

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        told = [(CHANGED_AT, rows.field(CHANGED_AT).type)] if CHANGED_AT in rows.names else []
        columns = [pa.field(name, rows.field(name).type) for name in (*self.by, *self.left, *self.right)]
        return {RESULTS: pa.schema([*columns, (WEIGHT, WEIGHT_TYPE), *told])}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        rows = relaxed(arrivals.rows)
        if not rows.num_rows:
            return Step(state={})
        is_right = np.asarray(in_one_piece(rows[IS_RIGHT])).astype(bool)
        left, left_alone = self._side(rows.filter(pa.array(~is_right)), self.left)
        right, right_alone = self._side(rows.filter(pa.array(is_right)), self.right)
        schemas = {LEFT: self._kept_schema(left), RIGHT: self._kept_schema(right)}
        hashes = np.concatenate([hashes_of(left), hashes_of(right)])
        opened = SlottedTables.open(state, schemas, hashes)
        sides = _Sides(
            by=self.by,
            left=_Side.of(opened.kept[LEFT], left),
            right=_Side.of(opened.kept[RIGHT], right),
        )
        unmatched = self._unmatched(sides, left_alone, right_alone)
        parts = [part for part in (self._matched(sides), *unmatched) if part.num_rows]
        schema = self.output_schemas(rows.schema)[RESULTS]
        results = pa.concat_tables([schema.empty_table(), *(self._wide(part, schema) for part in parts)])
        if sides.both_change or any(part.num_rows for part in unmatched):
            # A partner of nothing but NULLs looks like none.
            results = consolidated(results.combine_chunks())
        tables = {LEFT: sides.left.after, RIGHT: sides.right.after}
        owed = sides.left.owed_count + sides.right.owed_count
        return Step(
            state=opened.close(tables),
            outputs={RESULTS: results},
            counts={"unmatched": owed} if owed else {},
        )

    def _side(self, rows: pa.Table, columns: tuple[str, ...]) -> tuple[pa.Table, pa.Table]:
        """The changes of a table, and those of rows that have no partner whatever comes."""
        told = [name for name in (WEIGHT, CHANGED_AT, HASH) if name in rows.schema.names]
        net = consolidated(rows.select([*self.by, *columns, *told]))
        nulls = reduce(pc.or_, (pc.is_null(net[name]) for name in self.by))
        return net.filter(pc.invert(nulls)), net.filter(nulls)

    def _kept_schema(self, rows: pa.Table) -> pa.Schema:
        return pa.schema([field for field in rows.schema if field.name not in {CHANGED_AT, HASH}])

    def _matched(self, sides: _Sides) -> pa.Table:
        """What changes among the results that both tables are part of."""
        left, right = sides.left, sides.right
        parts = [
            self._pairs(left.net, right.after, sides.codes(left.net, right.after), times_of=LEFT),
            self._pairs(left.before, right.net, sides.codes(left.before, right.net), times_of=RIGHT),
        ]
        return pa.concat_tables(parts)

    def _pairs(
        self, left: pa.Table, right: pa.Table, codes: tuple[Indices, Indices], *, times_of: str
    ) -> pa.Table:
        """Each row of the left with each of the right that has the same key."""
        left_at, right_at = matches(*codes)
        lefts, rights = left.take(pa.array(left_at)), right.take(pa.array(right_at))
        columns = {name: lefts[name] for name in (*self.by, *self.left)}
        columns |= {name: rights[name] for name in self.right}
        paired = weighted(pa.table(columns), weights_of(lefts) * weights_of(rights))
        changes = lefts if times_of == LEFT else rights
        if CHANGED_AT in changes.schema.names:
            paired = with_column(paired, CHANGED_AT, changes[CHANGED_AT])
        return paired

    def _unmatched(self, sides: _Sides, left_alone: pa.Table, right_alone: pa.Table) -> list[pa.Table]:
        """What changes among the results that one table alone makes, where they are asked for."""
        made = []
        if self.how in {"left", "full"}:
            made += [left_alone, sides.unmatched(sides.left, sides.right)]
        if self.how == "full":
            made += [right_alone, sides.unmatched(sides.right, sides.left)]
        return made

    def _wide(self, part: pa.Table, schema: pa.Schema) -> pa.Table:
        columns = [
            part[field.name] if field.name in part.schema.names else pa.nulls(part.num_rows, field.type)
            for field in schema
        ]
        return pa.Table.from_arrays(columns, schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """A table, as far as it is touched: before the changes, the changes, and after them."""

    before: pa.Table
    net: pa.Table
    after: pa.Table

    @classmethod
    def of(cls, before: pa.Table, net: pa.Table) -> _Side:
        if not net.num_rows:
            return cls(before=before, net=net, after=before)
        added = net.select(before.schema.names)
        return cls(before=before, net=net, after=consolidated(stacked([before, added]).combine_chunks()))

    @property
    def owed_count(self) -> int:
        """Of how many rows that change more have gone than had come."""
        owed = self.after.filter(pa.array(weights_of(self.after) < 0))
        if not owed.num_rows:
            return 0
        owed_codes, codes = row_codes([owed, self.net], row_columns(owed.schema.names))
        return int(np.count_nonzero(np.isin(owed_codes, codes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    by: tuple[str, ...]
    left: _Side
    right: _Side

    @property
    def both_change(self) -> bool:
        """Whether changes of both tables have one key, so that they may undo each other."""
        left, right = self.codes(self.left.net, self.right.net)
        return bool(np.isin(left, right).any())

    def codes(self, left: pa.Table, right: pa.Table) -> tuple[Indices, Indices]:
        """A number for each row's key."""
        first, second = row_codes([left, right], self.by)
        return first, second

    def unmatched(self, side: _Side, other: _Side) -> pa.Table:
        """What changes among the rows that have no partner."""
        tables = [side.before, side.net, side.after, other.before, other.net, other.after]
        before, net, after, other_before, other_net, other_after = row_codes(tables, self.by)
        had, has = np.unique(other_before), np.unique(other_after)
        came, went = np.setdiff1d(has, had), np.setdiff1d(had, has)
        # The time of a partner that came or went is that of the result.
        parts = [side.net.filter(pa.array(~np.isin(net, np.concatenate([had, has]))))]
        for table, codes, keys, sign in ((side.before, before, came, -1), (side.after, after, went, 1)):
            chosen = np.flatnonzero(np.isin(codes, keys))
            rows = table.take(pa.array(chosen))
            rows = weighted(rows, sign * weights_of(rows))
            if CHANGED_AT in side.net.schema.names:
                rows = with_column(rows, CHANGED_AT, _times(other.net, other_net, codes[chosen]))
            parts.append(rows.select(side.net.schema.names))
        return pa.concat_tables(parts)


def matches(left: Indices, right: Indices) -> tuple[Indices, Indices]:
    """The places of all pairs that are equal, by the left."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    starts = np.searchsorted(ordered, left, side="left")
    counts = np.searchsorted(ordered, left, side="right") - starts
    return np.repeat(np.arange(len(left)), counts), order[ranges(starts, counts)]


def _times(changes: pa.Table, codes: Indices, wanted: Indices) -> pa.Array:
    """The newest time among the changes of each of these keys, of which all have some."""
    present, numbers = np.unique(codes, return_inverse=True)
    newest = newest_times(changes[CHANGED_AT], numbers, len(present))
    return newest.take(pa.array(np.searchsorted(present, wanted)))
