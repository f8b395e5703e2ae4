"""Rows as functions are given them: each is made once in a step, many at a time, and only if it is asked for.

A time that Python has no word for, because it is before the year 1 or after 9999, is given as a number: a
date as days since 1970, a timestamp as what the column counts since then. Functions can't fail for ever on
a row that they can't even be given.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.streams.patterns.so_far import Row
from headrace.streams.windows.runs import Indices

BLOCK_ROWS: Final = 1_024
"""How many rows are made at a time."""
_BEYOND_PYTHON: Final = (OverflowError, ValueError)


class PythonRows:
    """Makes the rows at some places of a table. For one thread only."""

    def __init__(self, table: pa.Table, source: Indices, asked: Indices) -> None:
        """`asked` are the places that may be asked for, in order; `source` tells where in the table."""
        self._table = table
        self._source = source
        self._asked = asked
        self._made: dict[int, Row] = {}

    def __getitem__(self, place: int) -> Row:
        found = self._made.get(place)
        if found is None:
            begin = int(np.searchsorted(self._asked, place))
            begin -= begin % BLOCK_ROWS
            places = self._asked[begin : begin + BLOCK_ROWS]
            rows = rows_of(self._table.take(pa.array(self._source[places])))
            self._made.update(zip(places.tolist(), rows, strict=True))
            found = self._made[place]
        return found


def rows_of(table: pa.Table) -> list[Row]:
    """Rows as Python has them."""
    columns = [values_of(table.column(name)) for name in table.schema.names]
    return [dict(zip(table.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column, those that Python does not have as numbers."""
    try:
        found: list[Any] = column.to_pylist()
    except _BEYOND_PYTHON:
        found = [_value(each) for each in column]
    return found


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except _BEYOND_PYTHON:
        if isinstance(scalar, pa.StructScalar):
            return {name: _value(scalar[name]) for name in scalar.type.names}
        if isinstance(scalar, pa.MapScalar):
            return [(_value(each["key"]), _value(each["value"])) for each in scalar.values]
        if isinstance(scalar, pa.ListScalar):
            return [_value(each) for each in scalar.values]
        return scalar.value


def covered(first: Indices, lengths: Indices, count: int) -> Indices:
    """The places, of `count` in all, that are in any of these stretches."""
    changes = np.zeros(count + 1, dtype=np.int64)
    np.add.at(changes, first, 1)
    np.add.at(changes, first + lengths, -1)
    return np.flatnonzero(np.cumsum(changes[:-1]) > 0)
