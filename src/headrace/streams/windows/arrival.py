"""The value of the row that came first, or last: `first("status")`, `last("status")`.

Rows come in the order of the log: by when their record was written, and records of the same moment by
partition and offset. That is the same whatever order partitions are read in, and however the stream is cut.
Rows that don't tell where they came from, because a pipeline has dropped the column `_kafka`, come in the
order in which the operator is given them.

The partial of a window is the value, and the place of its row; a place without a time is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.topic import METADATA_COLUMN
from headrace.streams.windows.aggregate import Partials, Starts
from headrace.streams.windows.exact import column_type, values_of
from headrace.streams.windows.runs import run_numbers, starts_of_changes

_PLACE: Final = (pa.int64(), pa.int32(), pa.int64())
"""When the record was written in microseconds, its partition, its offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByArrival:
    """The value of the first row of a window, or of the last; with NULLs left out, if that is asked for."""

    name: str
    column: str
    is_last: bool
    ignore_nulls: bool

    def result_type(self, rows: pa.Schema) -> pa.DataType:
        return column_type(rows, self.column)

    def partial_types(self, rows: pa.Schema) -> tuple[pa.DataType, ...]:
        return (self.result_type(rows), *_PLACE)

    def gather(self, rows: pa.Table, starts: Starts) -> Partials:
        values = values_of(rows, self.column)
        places = log_places(rows)
        if self.ignore_nulls:
            places = (pc.if_else(values.is_valid(), places[0], None), *places[1:])
        return self._chosen((values, *places), starts)

    def merge(self, partials: Partials, starts: Starts) -> Partials:
        return self._chosen(partials, starts)

    def finish(self, partials: Partials) -> pa.Array:
        return partials[0]

    def _chosen(self, partials: Partials, starts: Starts) -> Partials:
        """The partial of each run that came first, or last."""
        if not len(starts):
            return tuple(column.slice(0, 0) for column in partials)
        count = len(partials[0])
        numbers = [_numbers(column) for column in partials[1:]]
        is_none = np.asarray(partials[1].is_null())
        order = np.arange(count)
        if self.is_last:
            numbers, order = [-number for number in numbers], -order
        runs = run_numbers(starts, count)
        # Of equal places, the one that is first in the run came first.
        best = np.lexsort((order, *reversed(numbers), is_none, runs))
        chosen = pa.array(best[starts_of_changes(runs[best])])
        return tuple(column.take(chosen) for column in partials)


def first(column: str, *, ignore_nulls: bool = False, name: str | None = None) -> ByArrival:
    """The value of a window's first row, in the order of the log: `first("status")`."""
    return ByArrival(name=name or f"first_{column}", column=column, is_last=False, ignore_nulls=ignore_nulls)


def last(column: str, *, ignore_nulls: bool = False, name: str | None = None) -> ByArrival:
    """The value of a window's last row, in the order of the log: `last("status")`."""
    return ByArrival(name=name or f"last_{column}", column=column, is_last=True, ignore_nulls=ignore_nulls)


def log_places(rows: pa.Table) -> tuple[pa.Array, ...]:
    """Where each row stands in the log: when it was written, its partition and offset; zeros if unknown."""
    if METADATA_COLUMN not in rows.schema.names:
        return tuple(pa.array(np.zeros(len(rows), dtype=np.int64)).cast(kind) for kind in _PLACE)
    place = values_of(rows, METADATA_COLUMN)
    written = place.field("timestamp")
    fields = (
        written.cast(pa.timestamp("us", written.type.tz)),
        place.field("partition"),
        place.field("offset"),
    )
    return tuple(pc.fill_null(each.cast(kind), 0) for each, kind in zip(fields, _PLACE, strict=True))


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = np.asarray(pc.fill_null(column, 0)).astype(np.int64)
    return found
