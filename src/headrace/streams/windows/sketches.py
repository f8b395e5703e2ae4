"""Sketches: distinct counts and heavy hitters in a few kilobytes, however many values there are.

Partials are sketches of the library datasketches in their own serialised form, one binary for each window;
NULL is one of no values.

- Distinct values: an HLL sketch, which Spark's `hll_sketch_estimate` and `hll_union` can read. The estimate
  is within `relative_error` of the true count in two cases of three, within twice that in 95 of 100, within
  three times that in 997 of 1,000; a handful of values is counted exactly. It is the estimate of a union,
  never the one that goes by the order of values (HIP): so where the stream was cut does not show.
- Heavy hitters: a sketch of frequent items. Every value that makes up more than `relative_error` of all rows
  is in it. A value's true count is between `count - error` and `count`; up to 0.75 * 2**k different values
  are counted exactly, where 3.5 / 2**k is the relative error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import datasketches
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import PipelineError
from headrace.streams.windows.aggregate import Partials, Starts
from headrace.streams.windows.exact import column_type, values_of
from headrace.streams.windows.runs import run_lengths, run_numbers, starts_of_changes

_LG_K_MIN: Final = 7
_LG_K_MAX: Final = 18
_LG_ITEMS_MIN: Final = 5
_LG_ITEMS_MAX: Final = 20
_EMPTY: Final = "\0headrace.empty"
"""What the empty string is counted as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproximateDistinct:
    """How many different values a column has, about. NULLs don't count."""

    name: str
    column: str
    lg_k: int

    def result_type(self, rows: pa.Schema) -> pa.DataType:
        self.partial_types(rows)
        return pa.int64()

    def partial_types(self, rows: pa.Schema) -> tuple[pa.DataType, ...]:
        _hashable(pa.nulls(0, column_type(rows, self.column)), self.column)
        return (pa.binary(),)

    def gather(self, rows: pa.Table, starts: Starts) -> Partials:
        column = _hashable(values_of(rows, self.column), self.column)
        values = column.to_pylist()
        return (pa.array([self._sketch(values[run]) for run in slices(starts, len(values))], pa.binary()),)

    def merge(self, partials: Partials, starts: Starts) -> Partials:
        packed = partials[0].to_pylist()
        return (pa.array([self._merged(packed[run]) for run in slices(starts, len(packed))], pa.binary()),)

    def finish(self, partials: Partials) -> pa.Array:
        return pa.array([self._estimate(packed) for packed in partials[0].to_pylist()], pa.int64())

    def _sketch(self, values: Iterable[Any]) -> bytes:
        sketch = datasketches.hll_sketch(self.lg_k, datasketches.HLL_8)
        update = sketch.update
        for value in values:
            if value is not None:
                # The library takes the empty string for no value.
                update(_EMPTY if value == "" else value)
        return bytes(sketch.serialize_compact())

    def _merged(self, parts: list[bytes | None]) -> bytes | None:
        if len(parts) == 1:
            return parts[0]
        union = datasketches.hll_union(self.lg_k)
        for part in parts:
            if part is not None:
                union.update(datasketches.hll_sketch.deserialize(part))
        return bytes(union.get_result(datasketches.HLL_8).serialize_compact())

    def _estimate(self, packed: bytes | None) -> int:
        if packed is None:
            return 0
        sketch = datasketches.hll_sketch.deserialize(packed)
        union = datasketches.hll_union(self.lg_k)
        # Twice, because a sketch that was never merged estimates by the order of its values.
        union.update(sketch)
        union.update(sketch)
        return round(float(union.get_estimate()))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyHitters:
    """The most frequent values of a column: list<struct<value, count, error>>, the most frequent one first.

    NULLs don't count. Values with equal counts come in the order of their text. The second column of partials
    is all NULL: it is there for its type, which is that of the values.
    """

    name: str
    column: str
    n: int
    lg_size: int

    def result_type(self, rows: pa.Schema) -> pa.DataType:
        return pa.list_(hit_type(self.partial_types(rows)[1]))

    def partial_types(self, rows: pa.Schema) -> tuple[pa.DataType, ...]:
        return (pa.binary(), counted_type(rows, self.column, "heavy_hitters"))

    def gather(self, rows: pa.Table, starts: Starts) -> Partials:
        column = values_of(rows, self.column)
        packed = [self._sketch(texts, weights) for texts, weights in counted_texts(column, starts)]
        return (pa.array(packed, pa.binary()), pa.nulls(len(packed), column.type))

    def merge(self, partials: Partials, starts: Starts) -> Partials:
        packed = partials[0].to_pylist()
        merged = [self._merged(packed[run]) for run in slices(starts, len(packed))]
        return (pa.array(merged, pa.binary()), pa.nulls(len(merged), partials[1].type))

    def finish(self, partials: Partials) -> pa.Array:
        kind = partials[1].type
        parse: Callable[[str], Any] = int if pa.types.is_integer(kind) else str
        found = [[_named(*hit, parse) for hit in self._hits(packed)] for packed in partials[0].to_pylist()]
        return pa.array(found, pa.list_(hit_type(kind)))

    def _sketch(self, texts: list[str], weights: list[int]) -> bytes:
        sketch = datasketches.frequent_strings_sketch(self.lg_size)
        for text, weight in zip(texts, weights, strict=True):
            sketch.update(text, weight)
        return bytes(sketch.serialize())

    def _merged(self, parts: list[bytes | None]) -> bytes | None:
        if len(parts) == 1:
            return parts[0]
        sketch = datasketches.frequent_strings_sketch(self.lg_size)
        for part in parts:
            if part is not None:
                sketch.merge(datasketches.frequent_strings_sketch.deserialize(part))
        return bytes(sketch.serialize())

    def _hits(self, packed: bytes | None) -> list[tuple[str, int, int]]:
        if packed is None:
            return []
        sketch = datasketches.frequent_strings_sketch.deserialize(packed)
        everything = sketch.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES, 0)
        hits = sorted((-upper, text, lower) for text, _, lower, upper in everything)
        return [(text, -upper, -upper - lower) for upper, text, lower in hits[: self.n]]


def approximate_distinct(
    column: str, *, relative_error: float = 0.02, name: str | None = None
) -> ApproximateDistinct:
    """How many different values a column has, about: `approximate_distinct("user")`."""
    for lg_k in range(_LG_K_MIN, _LG_K_MAX + 1):
        if abs(datasketches.hll_sketch.get_rel_err(False, True, lg_k, 1)) <= relative_error:
            return ApproximateDistinct(name=name or f"distinct_{column}", column=column, lg_k=lg_k)
    raise PipelineError(
        f"approximate_distinct() can't keep a relative error of {relative_error!r}: the smallest is 0.003"
    )


def heavy_hitters(
    column: str, n: int = 10, *, relative_error: float = 0.005, name: str | None = None
) -> HeavyHitters:
    """The n most frequent values of a column with their counts: `heavy_hitters("merchant", 10)`."""
    if n < 1:
        raise PipelineError(f"heavy_hitters() was asked for {n!r} values: ask for at least one")
    for lg_size in range(_LG_ITEMS_MIN, _LG_ITEMS_MAX + 1):
        if datasketches.frequent_strings_sketch.get_epsilon_for_lg_size(lg_size) <= relative_error:
            return HeavyHitters(name=name or f"heavy_{column}", column=column, n=n, lg_size=lg_size)
    raise PipelineError(
        f"heavy_hitters() can't keep a relative error of {relative_error!r}: the smallest is 0.000004"
    )


def counted_type(rows: pa.Schema, column: str, function: str) -> pa.DataType:
    """The type of a column whose values are counted as texts; raise where they can't be."""
    found = column_type(rows, column)
    if not (pa.types.is_integer(found) or pa.types.is_string(found) or pa.types.is_large_string(found)):
        raise PipelineError(
            f"{function}() can't count the values of {column!r}, a column of {found}: "
            "it takes strings and integers; cast the column to a string"
        )
    return found


def counted_texts(column: pa.Array, starts: Starts) -> list[tuple[list[str], list[int]]]:
    """The different values of each run, as texts, and how often there is each. NULLs don't count."""
    encoded = column.dictionary_encode()
    valid = np.asarray(pc.is_valid(column))
    run = run_numbers(starts, len(column))[valid]
    code = np.asarray(pc.drop_null(encoded.indices))
    order = np.lexsort((code, run))
    run, code = run[order], code[order]
    pairs = starts_of_changes(run, code)
    texts = pc.cast(encoded.dictionary, pa.string()).take(pa.array(code[pairs])).to_pylist()
    weights = run_lengths(pairs, len(run)).tolist()
    bounds = np.searchsorted(run[pairs], np.arange(len(starts) + 1)).tolist()
    return [(texts[start:end], weights[start:end]) for start, end in pairwise(bounds)]


def slices(starts: Starts, count: int) -> list[slice]:
    """Where each run is."""
    return [slice(*run) for run in pairwise([*starts.tolist(), count])]


def hit_type(kind: pa.DataType) -> pa.DataType:
    """A value, its count, and by how much that may be too high."""
    return pa.struct([("value", kind), ("count", pa.int64()), ("error", pa.int64())])


def _named(text: str, count: int, error: int, parse: Callable[[str], Any]) -> dict[str, Any]:
    return {"value": parse(text), "count": count, "error": error}


def _hashable(column: pa.Array, name: str) -> pa.Array:
    """The column as values that a sketch can take: integers, doubles or strings."""
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pc.cast(column, pa.int64(), safe=False)
    if pa.types.is_timestamp(kind):
        return pc.cast(column, pa.int64())
    if pa.types.is_date32(kind):
        return pc.cast(pc.cast(column, pa.int32()), pa.int64())
    if pa.types.is_decimal(kind):
        return pc.cast(column, pa.string())
    raise PipelineError(
        f"approximate_distinct() can't count the values of {name!r}, a column of {kind}: "
        "it takes numbers, strings, booleans, dates and timestamps; cast the column to a string"
    )
