"""Aggregates with exact answers: count, sum, mean, min, max; nulls, NaN and types are as in Spark.

| aggregate | of | result | partial |
|---|---|---|---|
| `Count()` | all rows | bigint | rows |
| `Count(column=)` | rows in which it is not null | bigint | rows |
| `Sum` | integers; decimal(p, s); floating point | bigint; decimal(min(p + 10, 38), s); double | the sum |
| `Mean` | decimal(p, s); other numbers | decimal(p + 4, s + 4), up to 38 digits; double | sum, and count |
| `Min`, `Max` | whatever has an order | the column's type | the least, the greatest |

A partial is null where no value has come; only a count of nothing is 0. NaN is greater than all other
numbers, so `Max` gives it and `Min` does not, unless there is nothing else. A sum that does not fit its type
is an error, as in Spark: none is ever given that is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import PipelineError
from headrace.streams.windows.aggregate import Partials, Starts

_SURE_SUM_MAX: Final = 2.0**62
"""A sum of whole numbers that floating point sees below this certainly fits 64 bits."""


_SUM_DIGITS: Final = 10
"""How many digits more a sum of decimals has, and..."""
_MEAN_DIGITS: Final = 4
"""how many digits more a mean of them has behind the point: as in Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many rows there are, or how many have a value in a column."""

    name: str
    column: str | None = None

    def result_type(self, rows: pa.Schema) -> pa.DataType:
        if self.column is not None:
            column_type(rows, self.column)
        return pa.int64()

    def partial_types(self, rows: pa.Schema) -> tuple[pa.DataType, ...]:
        return (self.result_type(rows),)

    def gather(self, rows: pa.Table, starts: Starts) -> Partials:
        if self.column is None:
            return (pa.array(np.diff(starts, append=rows.num_rows), pa.int64()),)
        return (_counts(values_of(rows, self.column).is_valid(), starts),)

    def merge(self, partials: Partials, starts: Starts) -> Partials:
        return (_counts(pc.fill_null(partials[0], 0), starts),)

    def finish(self, partials: Partials) -> pa.Array:
        return pc.fill_null(partials[0], 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """The sum of a column's values; null where there are none."""

    name: str
    column: str

    def result_type(self, rows: pa.Schema) -> pa.DataType:
        kind = column_type(rows, self.column)
        if pa.types.is_integer(kind):
            return pa.int64()
        if pa.types.is_floating(kind):
            return pa.float64()
        if pa.types.is_decimal(kind):
            return pa.decimal128(min(kind.precision + _SUM_DIGITS, 38), kind.scale)
        raise not_a_number("Sum", self.column, kind)

    def partial_types(self, rows: pa.Schema) -> tuple[pa.DataType, ...]:
        return (self.result_type(rows),)

    def gather(self, rows: pa.Table, starts: Starts) -> Partials:
        kind = self.result_type(rows.schema)
        return (_sums(values_of(rows, self.column).cast(kind), starts, self.column),)

    def merge(self, partials: Partials, starts: Starts) -> Partials:
        return (_sums(partials[0], starts, self.column),)

    def finish(self, partials: Partials) -> pa.Array:
        return partials[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """The mean of a column's values; null where there are none. That of decimals is rounded half up."""

    name: str
    column: str

    def result_type(self, rows: pa.Schema) -> pa.DataType:
        total = self.partial_types(rows)[0]
        return _decimal_mean_type(total) if pa.types.is_decimal(total) else total

    def partial_types(self, rows: pa.Schema) -> tuple[pa.DataType, ...]:
        kind = column_type(rows, self.column)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return (pa.float64(), pa.int64())
        if pa.types.is_decimal(kind):
            return (pa.decimal256(kind.precision + _SUM_DIGITS, kind.scale), pa.int64())
        raise not_a_number("Mean", self.column, kind)

    def gather(self, rows: pa.Table, starts: Starts) -> Partials:
        # Floating point holds whole numbers beyond 2**53 to 53 bits only, which is all that the mean has.
        values = values_of(rows, self.column).cast(self.partial_types(rows.schema)[0], safe=False)
        return (_sums(values, starts, self.column), _counts(values.is_valid(), starts))

    def merge(self, partials: Partials, starts: Starts) -> Partials:
        return (
            _sums(partials[0], starts, self.column),
            _counts(pc.fill_null(partials[1], 0), starts),
        )

    def finish(self, partials: Partials) -> pa.Array:
        if pa.types.is_decimal(partials[0].type):
            return _decimal_means(partials, self.column)
        return pc.divide(partials[0], partials[1].cast(pa.float64()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Min:
    """The least of a column's values; null where there are none. NaN only where there is nothing else."""

    name: str
    column: str

    def result_type(self, rows: pa.Schema) -> pa.DataType:
        return _ordered_type("Min", rows, self.column)

    def partial_types(self, rows: pa.Schema) -> tuple[pa.DataType, ...]:
        return (self.result_type(rows),)

    def gather(self, rows: pa.Table, starts: Starts) -> Partials:
        return (_least(values_of(rows, self.column), starts),)

    def merge(self, partials: Partials, starts: Starts) -> Partials:
        return (_least(partials[0], starts),)

    def finish(self, partials: Partials) -> pa.Array:
        return partials[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Max:
    """The greatest of a column's values; null where there are none. NaN is greater than all other numbers."""

    name: str
    column: str

    def result_type(self, rows: pa.Schema) -> pa.DataType:
        return _ordered_type("Max", rows, self.column)

    def partial_types(self, rows: pa.Schema) -> tuple[pa.DataType, ...]:
        return (self.result_type(rows),)

    def gather(self, rows: pa.Table, starts: Starts) -> Partials:
        return (_greatest(values_of(rows, self.column), starts),)

    def merge(self, partials: Partials, starts: Starts) -> Partials:
        return (_greatest(partials[0], starts),)

    def finish(self, partials: Partials) -> pa.Array:
        return partials[0]


def column_type(rows: pa.Schema, column: str) -> pa.DataType:
    """The type of a column that an aggregate is of."""
    if rows.names.count(column) != 1:
        raise PipelineError(
            f"an aggregate is of column {column!r}, but the columns are {', '.join(rows.names)}"
        )
    return rows.field(column).type


def values_of(rows: pa.Table, column: str) -> pa.Array:
    """A column in one piece."""
    return in_one_piece(rows.column(column))


def in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    """All chunks as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def not_a_number(aggregate: str, column: str, kind: pa.DataType) -> PipelineError:
    """The error for an aggregate of numbers that was given something else."""
    return PipelineError(f"{aggregate} is of numbers, but column {column!r} is {kind}; cast it first")


def _ordered_type(aggregate: str, rows: pa.Schema, column: str) -> pa.DataType:
    kind = column_type(rows, column)
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise PipelineError(
            f"{aggregate} is of values that have an order, but column {column!r} is {kind}; take a field"
        )
    return kind


def _counts(values: pa.Array, starts: Starts) -> pa.Array:
    numbers = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return pa.array(np.add.reduceat(numbers, starts) if len(starts) else numbers[:0], pa.int64())


def _sums(values: pa.Array, starts: Starts, column: str) -> pa.Array:
    if not len(starts):
        return values.slice(0, 0)
    if pa.types.is_decimal(values.type):
        return _decimal_sums(values, starts, column)
    numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore", over="ignore"):
        sums = np.add.reduceat(numbers, starts)
        if pa.types.is_integer(values.type):
            _check_integer_sums(numbers, starts, column)
    return pa.array(sums, values.type, mask=_is_empty(values, starts))


def _check_integer_sums(numbers: npt.NDArray[Any], starts: Starts, column: str) -> None:
    about = np.abs(np.add.reduceat(numbers.astype(np.float64), starts))
    ends = np.append(starts[1:], len(numbers))
    for run in np.flatnonzero(about >= _SURE_SUM_MAX):
        total = sum(numbers[starts[run] : ends[run]].tolist())
        if not -(2**63) <= total < 2**63:
            raise _overflow(column, "bigint")


def _decimal_sums(values: pa.Array, starts: Starts, column: str) -> pa.Array:
    # Twice the bits on the way, so that a sum that does not fit is seen instead of wrapping around.
    wide = values.cast(pa.decimal256(76, values.type.scale))
    try:
        return _grouped(wide, starts, "sum").cast(values.type)
    except pa.ArrowInvalid as error:
        raise _overflow(column, str(values.type)) from error


def _decimal_mean_type(total: pa.DataType) -> pa.DataType:
    precision = total.precision - _SUM_DIGITS + _MEAN_DIGITS
    return pa.decimal128(min(precision, 38), min(total.scale + _MEAN_DIGITS, 38))


def _decimal_means(partials: Partials, column: str) -> pa.Array:
    kind = _decimal_mean_type(partials[0].type)
    last_digit = Decimal(1).scaleb(-kind.scale)
    with localcontext(Context(prec=100, rounding=ROUND_HALF_UP)):
        means = [
            None if total is None else (total / count).quantize(last_digit)
            for total, count in zip(*(partial.to_pylist() for partial in partials), strict=True)
        ]
    try:
        return pa.array(means, kind)
    except pa.ArrowInvalid as error:
        raise _overflow(column, str(kind)) from error


def _overflow(column: str, kind: str) -> PipelineError:
    return PipelineError(
        f"an aggregate of column {column!r} does not fit {kind}; cast the column to decimal or double"
    )


def _least(values: pa.Array, starts: Starts) -> pa.Array:
    return _extremes(values, starts, np.fmin, "min")


def _greatest(values: pa.Array, starts: Starts) -> pa.Array:
    return _extremes(values, starts, np.maximum, "max")


def _extremes(values: pa.Array, starts: Starts, least: np.ufunc, name: str) -> pa.Array:
    if not len(starts):
        return values.slice(0, 0)
    if not pa.types.is_floating(values.type):
        return _grouped(values, starts, name)
    # Null counts as what any value beats, and NaN must come through: for the least, NaN is ignored by `fmin`.
    worst = np.nan if name == "min" else -np.inf
    numbers = pc.fill_null(values, pa.scalar(worst, values.type)).to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):
        return pa.array(least.reduceat(numbers, starts), values.type, mask=_is_empty(values, starts))


def _is_empty(values: pa.Array, starts: Starts) -> npt.NDArray[np.bool_] | None:
    if values.null_count == 0:
        return None
    is_valid = values.is_valid().to_numpy(zero_copy_only=False)
    return ~np.logical_or.reduceat(is_valid, starts)


def _grouped(values: pa.Array, starts: Starts, function: str) -> pa.Array:
    runs = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(values)))
    grouped = pa.table({"run": runs, "value": values}).group_by("run", use_threads=False)
    # Groups come out in the order in which they are first seen, which is that of the runs.
    return in_one_piece(grouped.aggregate([("value", function)]).column(f"value_{function}"))
