"""Aggregates of a table that changes, kept current: a changelog of groups.

The changes of a micro-batch are added up first. Each group that they touch gives what it was with weight -1,
and what it is with +1, unless that is the same; a group without rows is none.

Count, sum and mean are kept current by what comes and goes. All other aggregates are computed from the values
of the group that are there, so these are kept: least and greatest values, different ones, the greatest rows.
Either way the result depends on the rows that are there, and on nothing else: not on their order, nor on what
was there before. Rows that are equal in what they are ordered by are ordered by their other values. So an
aggregate by arrival is refused: which row of a table came last is not told by the rows that are there.

State, divided by the hash of the group:

| table | |
|---|---|
| `groups` | the group's columns, `rows`, and what is kept of each count, sum and mean (see running.py) |
| `values` | the group's columns, those that other aggregates are of, and `_weight`, how often there is such |

A row that goes without having come leaves its group with less than no rows, or with less than none of a
value. That is kept, so that the row may still come, and counted as `unmatched`; it is what happens when a
changelog is not read from its beginning. So a group is forgotten only when it has no rows and all its totals
are nothing.

Pure: no Spark, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import RESULTS, Arrivals, Step, Tables
from headrace.streams.changelog.running import KEPT_TYPE, Incremental, Total, result_of
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
    weighted,
    weights_of,
    with_column,
    without,
)
from headrace.streams.windows.aggregate import Aggregate, columns_of
from headrace.streams.windows.arrival import ByArrival
from headrace.streams.windows.exact import Count, Mean, Sum, column_type, in_one_piece
from headrace.streams.windows.order import is_ordered, order_codes
from headrace.streams.windows.runs import Flags, Indices, stacked, starts_of_changes

GROUPS: Final = "groups"
VALUES: Final = "values"
_ROWS: Final = "rows"
_KEPT: Final = "_kept_{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedTable:
    """Steps the aggregates of a table."""

    by: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]

    def __post_init__(self) -> None:
        for each in self.aggregates:
            if isinstance(each, ByArrival):
                which, other = ("last", "") if each.is_last else ("first", ", smallest=True")
                raise PipelineError(
                    f"hr.aggregate: {each.name} is the {which} value to come, and the rows of a table that "
                    f"changes have no such order: say by what they are ordered, with hr.greatest_rows(1, "
                    f'order_by="...", columns=["{each.column}"]{other})'
                )

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        told = [(CHANGED_AT, rows.field(CHANGED_AT).type)] if CHANGED_AT in rows.names else []
        return {RESULTS: pa.schema([*self._result_fields(rows), (WEIGHT, WEIGHT_TYPE), *told])}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        rows = arrivals.rows.schema
        net = self._net(arrivals.rows)
        if not net.num_rows:
            return Step(state={})
        opened = SlottedTables.open(state, self._kept_schemas(rows), hashes_of(net))
        touched = _Touched.of(net, self.by)
        groups, group_places = touched.of_table(opened.kept[GROUPS])
        after = self._groups_after(groups, group_places, net, touched)
        values = opened.kept.get(VALUES)
        values_after = None if values is None else self._values_after(values, net)
        results = self._changes(
            self._results(rows, groups, values), self._results(rows, after, values_after), net, touched
        )
        counts, is_left = np.asarray(after[_ROWS]), self._is_left(after)
        tables = {GROUPS: stacked([touched.rest_of(opened.kept[GROUPS]), after.filter(pa.array(is_left))])}
        if values_after is not None:
            tables[VALUES] = values_after
        owed = np.flatnonzero((counts < 0) | (is_left & (counts == 0)))
        unmatched = len(np.union1d(owed, touched.owed(values_after)))
        return Step(
            state=opened.close(tables),
            outputs={RESULTS: results.cast(self.output_schemas(rows)[RESULTS])},
            counts={"unmatched": unmatched} if unmatched else {},
        )

    @property
    def _incremental(self) -> list[Incremental]:
        return [each for each in self.aggregates if isinstance(each, Count | Sum | Mean)]

    @property
    def _others(self) -> list[Aggregate]:
        return [each for each in self.aggregates if not isinstance(each, Count | Sum | Mean)]

    def _result_fields(self, rows: pa.Schema) -> list[pa.Field]:
        keys = [pa.field(name, column_type(rows, name)) for name in self.by]
        return [*keys, *(pa.field(each.name, each.result_type(rows)) for each in self.aggregates)]

    def _arguments(self, aggregates: Sequence[Aggregate]) -> list[str]:
        found = (name for each in aggregates for name in columns_of(each))
        return list(dict.fromkeys(name for name in found if name not in self.by))

    def _kept_schemas(self, rows: pa.Schema) -> dict[str, pa.Schema]:
        keys = [pa.field(name, column_type(rows, name)) for name in self.by]
        totals = [pa.field(_KEPT.format(each.name), KEPT_TYPE) for each in self._incremental]
        schemas = {GROUPS: pa.schema([*keys, (_ROWS, pa.int64()), *totals])}
        if self._others:
            values = [pa.field(name, column_type(rows, name)) for name in self._arguments(self._others)]
            schemas[VALUES] = pa.schema([*keys, *values, (WEIGHT, WEIGHT_TYPE)])
        return schemas

    def _net(self, rows: pa.Table) -> pa.Table:
        """The changes in what matters here."""
        told = [name for name in (WEIGHT, CHANGED_AT, HASH) if name in rows.schema.names]
        return consolidated(relaxed(rows.select([*self.by, *self._arguments(self.aggregates), *told])))

    def _groups_after(self, groups: pa.Table, places: Indices, net: pa.Table, touched: _Touched) -> pa.Table:
        """The groups that are touched, one row each, with the changes in them."""
        weights = weights_of(net).tolist()
        members = touched.members()
        # What is kept of each, by the group's number; nothing of those that are new.
        known = dict(zip(places.tolist(), range(groups.num_rows), strict=True))
        counts = groups[_ROWS].to_pylist()
        rows = [
            (counts[known[number]] if number in known else 0) + sum(weights[place] for place in places_of)
            for number, places_of in enumerate(members)
        ]
        firsts = net.take(pa.array(touched.firsts)).select([*self.by, HASH])
        columns: dict[str, Any] = {name: firsts[name] for name in self.by}
        columns[_ROWS] = pa.array(rows, pa.int64())
        for each in self._incremental:
            kept = groups[_KEPT.format(each.name)].to_pylist()
            values = None if each.column is None else net[each.column].to_pylist()
            made = []
            for number, places_of in enumerate(members):
                total = Total.read(kept[known[number]] if number in known else None)
                changed = [weights[place] for place in places_of]
                if values is None:
                    total.add_rows(sum(changed))
                else:
                    total.add(
                        [values[place] for place in places_of], changed, sums=not isinstance(each, Count)
                    )
                made.append(total.kept())
            columns[_KEPT.format(each.name)] = pa.array(made, KEPT_TYPE)
        columns[HASH] = firsts[HASH]
        return pa.table(columns)

    def _is_left(self, groups: pa.Table) -> Flags:
        """Which groups have to be kept: of those without rows, the ones whose totals are not nothing."""
        is_left: Flags = np.asarray(groups[_ROWS]) != 0
        empty = np.flatnonzero(~is_left)
        for each in self._incremental:
            totals = groups[_KEPT.format(each.name)].take(pa.array(empty)).to_pylist()
            is_left[empty] |= np.array([not Total.read(one).is_nothing for one in totals], dtype=bool)
        return is_left

    def _values_after(self, values: pa.Table, net: pa.Table) -> pa.Table:
        return consolidated(stacked([values, net.select(values.schema.names)]).combine_chunks())

    def _results(self, rows: pa.Schema, groups: pa.Table, values: pa.Table | None) -> pa.Table:
        """The aggregates of the groups that have rows, and their `_hash`."""
        there = groups.filter(pa.array(np.asarray(groups[_ROWS]) > 0)).combine_chunks()
        gathered = {} if values is None else self._gathered(rows, there, values)
        columns: list[Any] = [in_one_piece(there[name]) for name in self.by]
        for each in self.aggregates:
            kind = each.result_type(rows)
            if isinstance(each, Count | Sum | Mean):
                kept = there[_KEPT.format(each.name)].to_pylist()
                made = [result_of(each, Total.read(one), kind) for one in kept]
                columns.append(pa.array(made, kind))
            else:
                columns.append(gathered[each.name].cast(kind))
        return pa.Table.from_arrays(columns, schema=pa.schema(self._result_fields(rows)))

    def _gathered(self, rows: pa.Schema, groups: pa.Table, values: pa.Table) -> dict[str, pa.Array]:
        """The aggregates that are computed from values, for each of the groups."""
        group_codes, codes = row_codes([groups, values], self.by)
        numbers = np.full(int(max(group_codes.max(initial=-1), codes.max(initial=-1))) + 1, -1)
        numbers[group_codes] = np.arange(len(group_codes))
        places, weights = numbers[codes], weights_of(values)
        wanted = np.flatnonzero((places >= 0) & (weights > 0))
        names = self._arguments(self._others)
        order = wanted[np.lexsort((*_canonical(values.take(pa.array(wanted)), names), places[wanted]))]
        order = np.repeat(order, weights[order])
        ordered = values.take(pa.array(order)).combine_chunks()
        starts = starts_of_changes(places[order]) if len(order) else np.zeros(0, dtype=np.int64)
        run_of = np.full(groups.num_rows, -1)
        run_of[places[order][starts]] = np.arange(len(starts))
        taken = pa.array(run_of, mask=run_of < 0)
        found = {}
        for each in self._others:
            if len(starts):
                found[each.name] = each.finish(each.gather(ordered, starts)).take(taken)
            else:
                found[each.name] = pa.nulls(groups.num_rows, each.result_type(rows))
        return found

    def _changes(self, before: pa.Table, after: pa.Table, net: pa.Table, touched: _Touched) -> pa.Table:
        """What the groups were, and what they are, but for what has not changed."""
        changes = pa.concat_tables([weighted(before, -1), weighted(after, 1)])
        if CHANGED_AT in net.schema.names:
            newest = newest_times(net[CHANGED_AT], touched.numbers, len(touched.firsts))
            numbers = np.concatenate([touched.number_of(before), touched.number_of(after)])
            changes = with_column(changes, CHANGED_AT, newest.take(pa.array(numbers)))
        return consolidated(changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Touched:
    """The groups that changes touch, numbered as they come."""

    net: pa.Table
    by: tuple[str, ...]
    numbers: Indices
    """Of each change: that of its group."""
    firsts: Indices
    """Of each group: where its first change is."""

    @classmethod
    def of(cls, net: pa.Table, by: tuple[str, ...]) -> _Touched:
        (codes,) = row_codes([net], by)
        _, firsts, numbers = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        return cls(net=net, by=by, numbers=ranks[numbers], firsts=firsts[order])

    def members(self) -> list[list[int]]:
        """Of each group: where its changes are."""
        order = np.argsort(self.numbers, kind="stable")
        bounds = np.searchsorted(self.numbers[order], np.arange(1, len(self.firsts)))
        return [part.tolist() for part in np.split(order, bounds)]

    def number_of(self, table: pa.Table) -> Indices:
        """The number of each row's group; -1 where it is not touched."""
        own, codes = row_codes([self.net, table], self.by)
        numbers = np.full(int(max(own.max(initial=-1), codes.max(initial=-1))) + 1, -1)
        numbers[own] = self.numbers
        found: Indices = numbers[codes]
        return found

    def of_table(self, table: pa.Table) -> tuple[pa.Table, Indices]:
        """The rows of the table that are of these groups, and of which."""
        numbers = self.number_of(table)
        return table.filter(pa.array(numbers >= 0)).combine_chunks(), numbers[numbers >= 0]

    def owed(self, values: pa.Table | None) -> Indices:
        """The groups of which values have gone that had not come."""
        if values is None:
            return np.zeros(0, dtype=np.int64)
        numbers = self.number_of(values.filter(pa.array(weights_of(values) < 0)))
        return np.unique(numbers[numbers >= 0])

    def rest_of(self, table: pa.Table) -> pa.Table:
        """The other rows of the table."""
        return table.filter(pa.array(self.number_of(table) < 0))


def _canonical(values: pa.Table, names: Sequence[str]) -> list[Indices]:
    """What to order values by so that the order depends on nothing but them; the last counts most."""
    codes = []
    for name in reversed(names):
        column = in_one_piece(without(values, WEIGHT)[name])
        codes.append(order_codes(column) if is_ordered(column.type) else np.zeros(len(column), np.int64))
    return codes
