"""How often given values occur, about, in the same space however many values there are: a count-min sketch.

The estimate of a value is never too low. With the given confidence, it is too high by at most
`relative_error` of all rows of the window that have a value; that share is told as `error`. The sketch of a
window takes `8 * e / relative_error * ln(1 / (1 - confidence))` bytes: 13 kB where nothing else is said.

The most frequent values, which need not be known beforehand, are what `heavy_hitters` is for.

Partials are sketches of the library datasketches in their own serialised form, one binary for each window;
NULL is one of no values. Their hashes have a fixed seed, and counts are added up, so that neither the order
of rows nor where the stream was cut shows. The second column of partials is all NULL: it is there for its
type, which is that of the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import datasketches
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.windows.aggregate import Partials, Starts
from headrace.streams.windows.exact import values_of
from headrace.streams.windows.sketches import counted_texts, counted_type, hit_type, slices

RELATIVE_ERROR_MIN: Final = 0.00001
CONFIDENCE_MAX: Final = 0.999999


@dataclass(frozen=True, slots=True, kw_only=True)
class CountMin:
    """How often values of a column occur: list<struct<value, count, error>>, in the order that was given."""

    name: str
    column: str
    values: tuple[str | int, ...]
    bucket_count: int
    hash_count: int

    def result_type(self, rows: pa.Schema) -> pa.DataType:
        return pa.list_(hit_type(self.partial_types(rows)[1]))

    def partial_types(self, rows: pa.Schema) -> tuple[pa.DataType, ...]:
        found = counted_type(rows, self.column, "estimated_counts")
        try:
            pa.array(self.values, found)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise PipelineError(
                f"estimated_counts() was asked for {list(self.values)!r}, but column {self.column!r} is "
                f"{found}: give values of that type"
            ) from error
        return (pa.binary(), found)

    def gather(self, rows: pa.Table, starts: Starts) -> Partials:
        column = values_of(rows, self.column)
        packed = [self._sketch(texts, weights) for texts, weights in counted_texts(column, starts)]
        return (pa.array(packed, pa.binary()), pa.nulls(len(packed), column.type))

    def merge(self, partials: Partials, starts: Starts) -> Partials:
        packed = partials[0].to_pylist()
        merged = [self._merged(packed[run]) for run in slices(starts, len(packed))]
        return (pa.array(merged, pa.binary()), pa.nulls(len(merged), partials[1].type))

    def finish(self, partials: Partials) -> pa.Array:
        found = [self._counts(packed) for packed in partials[0].to_pylist()]
        return pa.array(found, pa.list_(hit_type(partials[1].type)))

    def _empty(self) -> datasketches.count_min_sketch:
        return datasketches.count_min_sketch(self.hash_count, self.bucket_count)

    def _sketch(self, texts: list[str], weights: list[int]) -> bytes | None:
        if not texts:
            return None
        sketch = self._empty()
        for text, weight in zip(texts, weights, strict=True):
            sketch.update(_item(text), float(weight))
        return bytes(sketch.serialize())

    def _merged(self, parts: list[bytes | None]) -> bytes | None:
        filled = [part for part in parts if part is not None]
        if len(filled) <= 1:
            return filled[0] if filled else None
        sketch = self._empty()
        for part in filled:
            sketch.merge(datasketches.count_min_sketch.deserialize(part))
        return bytes(sketch.serialize())

    def _counts(self, packed: bytes | None) -> list[dict[str, Any]]:
        sketch = self._empty() if packed is None else datasketches.count_min_sketch.deserialize(packed)
        error = int(sketch.get_relative_error() * sketch.total_weight)
        counts = {value: int(sketch.get_estimate(_item(value))) for value in self.values}
        return [
            {"value": value, "count": count, "error": min(count, error)} for value, count in counts.items()
        ]


def estimated_counts(
    column: str,
    values: Sequence[str | int],
    *,
    relative_error: float = 0.005,
    confidence: float = 0.95,
    name: str | None = None,
) -> CountMin:
    """How often each of the given values occurs, about: `estimated_counts("merchant", ["a", "b"])`."""
    if isinstance(values, str) or not values or len(set(values)) < len(values):
        raise PipelineError(
            f"estimated_counts() was asked for {values!r}: give a list of values, each of them once"
        )
    if not RELATIVE_ERROR_MIN <= relative_error < 1:
        raise PipelineError(
            f"estimated_counts(relative_error={relative_error!r}): use {RELATIVE_ERROR_MIN} up to 1"
        )
    if not 0 < confidence <= CONFIDENCE_MAX:
        raise PipelineError(
            f"estimated_counts(confidence={confidence!r}): use more than 0, and at most {CONFIDENCE_MAX}"
        )
    return CountMin(
        name=name or f"counts_{column}",
        column=column,
        values=tuple(values),
        bucket_count=datasketches.count_min_sketch.suggest_num_buckets(relative_error),
        hash_count=datasketches.count_min_sketch.suggest_num_hashes(confidence),
    )


def _item(value: str | int) -> str:
    """The value as the library takes it: it would leave an empty text out, and may read "12" as a number."""
    return f"={value}"
