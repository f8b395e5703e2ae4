"""The greatest rows of a window, exactly: `greatest_rows(3, order_by="amount", columns=["id", "amount"])`.

The partial of a window is a list of at most n structs, the greatest first. Of rows that are equal in what
they are ordered by, the one that came first is greater; with `ties`, all of them count that are equal to the
last of the n, and the list is as much longer. NULL is less than any value, and NaN is greater, as in Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import PipelineError
from headrace.streams.windows.aggregate import Partials, Starts
from headrace.streams.windows.exact import column_type, in_one_piece
from headrace.streams.windows.order import is_ordered, order_codes
from headrace.streams.windows.runs import Indices, run_lengths, run_numbers, starts_of_changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Top:
    """The n greatest rows of a window: list<struct<columns>>, the greatest first."""

    name: str
    n: int
    order_by: tuple[str, ...]
    columns: tuple[str, ...]
    smallest: bool = False
    """Whether the smallest rows are meant instead; NULL then comes last all the same."""
    ties: bool = False
    """Whether rows that are equal to the last of them count, too."""

    def result_type(self, rows: pa.Schema) -> pa.DataType:
        self.partial_types(rows)
        return pa.list_(_struct(rows, self.columns))

    def partial_types(self, rows: pa.Schema) -> tuple[pa.DataType, ...]:
        for column in self.order_by:
            if not is_ordered(found := column_type(rows, column)):
                raise PipelineError(
                    f"greatest_rows() can't order by {column!r}, a column of {found}: order by plain values"
                )
        return (pa.list_(_struct(rows, self.columns)), pa.list_(_struct(rows, self.order_by)))

    def gather(self, rows: pa.Table, starts: Starts) -> Partials:
        shown, ordered = (_packed(rows.select(list(names))) for names in (self.columns, self.order_by))
        return self._greatest(shown, ordered, run_numbers(starts, len(rows)), len(starts))

    def merge(self, partials: Partials, starts: Starts) -> Partials:
        shown, ordered = partials
        lengths = np.asarray(pc.fill_null(shown.value_lengths(), 0))
        runs = np.repeat(run_numbers(starts, len(shown)), lengths)
        return self._greatest(shown.flatten(), ordered.flatten(), runs, len(starts))

    def finish(self, partials: Partials) -> pa.Array:
        return partials[0]

    def _greatest(
        self, shown: pa.StructArray, ordered: pa.StructArray, runs: Indices, count: int
    ) -> Partials:
        columns = [ordered.field(name) for name in self.order_by]
        kept = greatest(columns, runs, self.n, smallest=self.smallest, ties=self.ties)
        offsets = pa.array(np.searchsorted(runs[kept], np.arange(count + 1)), pa.int32())
        indices = pa.array(kept)
        first, second = (pa.ListArray.from_arrays(offsets, part.take(indices)) for part in (shown, ordered))
        return (first, second)


def greatest_rows(
    n: int,
    *,
    order_by: str | Sequence[str],
    columns: Sequence[str],
    smallest: bool = False,
    ties: bool = False,
    name: str = "top",
) -> Top:
    """The n greatest rows of a window by `order_by`, with these columns of theirs.

    With `ties`, there are more of them where several are equal to the last.
    """
    if n < 1:
        raise PipelineError(f"greatest_rows() was asked for {n!r} rows: ask for at least one")
    names = (order_by,) if isinstance(order_by, str) else tuple(order_by)
    if not names or not columns:
        raise PipelineError("greatest_rows() needs a column to order by, and at least one to show")
    return Top(name=name, n=n, order_by=names, columns=tuple(columns), smallest=smallest, ties=ties)


def greatest(
    columns: Sequence[pa.Array], groups: Indices, n: int, *, smallest: bool = False, ties: bool = False
) -> Indices:
    """Where the n greatest rows of each group are, by the columns in turn; by group, the greatest first.

    With `ties`, also those that are equal to the last of the n.
    """
    sign = 1 if smallest else -1
    codes = []
    for column in columns:
        code = order_codes(column)
        codes.append(np.where(code < 0, np.iinfo(np.int64).max, sign * code))
    order = np.lexsort((*reversed(codes), groups))
    starts = starts_of_changes(groups[order])
    place = np.arange(len(order)) - np.repeat(starts, run_lengths(starts, len(order)))
    if ties and len(order):
        # Equal rows are all at the place of the first of them.
        is_other = np.ones(len(order), dtype=bool)
        is_other[1:] = np.any([code[order][1:] != code[order][:-1] for code in (groups, *codes)], axis=0)
        firsts = np.flatnonzero(is_other)
        place = np.repeat(place[firsts], run_lengths(firsts, len(order)))
    return order[place < n]


def _struct(rows: pa.Schema, names: Sequence[str]) -> pa.DataType:
    return pa.struct([(name, column_type(rows, name)) for name in names])


def _packed(rows: pa.Table) -> pa.StructArray:
    columns = [in_one_piece(column) for column in rows.columns]
    return pa.StructArray.from_arrays(columns, fields=[pa.field(f.name, f.type) for f in rows.schema])
