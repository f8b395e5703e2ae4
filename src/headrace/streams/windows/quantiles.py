"""Percentiles of a column, exact for few values and estimated for many.

The partial of a window, in four columns:

    values     binary   `=` and the values themselves (little-endian doubles), while they are few;
                        `~` and a t-digest of the library datasketches, when there are more than VALUES_MAX
    below      bigint   how many values are -Infinity
    above      bigint   how many are Infinity
    nan        bigint   how many are NaN, which counts as greater than all other values, as in Spark

The percentile p of n values is the one at rank ceil(p * n), at least 1, counted from the smallest: always a
value that is there, as Spark's percentile_approx gives. From a digest it is an estimate: the rank of what is
given differs from p by at most about 0.5 % of n, and by much less near 0 and 1.

KLL sketches, which Spark has too, were decided against: theirs toss coins, so that a batch that is run again
after a crash would give other results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import datasketches
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import PipelineError
from headrace.streams.windows.aggregate import Partials, Starts
from headrace.streams.windows.exact import column_type, not_a_number, values_of
from headrace.streams.windows.runs import run_numbers

Doubles = npt.NDArray[np.float64]

VALUES_MAX: Final = 512
"""Up to so many values of a window are kept themselves, and percentiles are exact."""
DIGEST_SIZE: Final = 400
"""The t-digest's k: larger is more exact, and takes more state; it has at most twice as many centroids."""

_EXACT: Final = b"="
_DIGEST: Final = b"~"


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Percentiles of a column of numbers. NULLs don't count; NULL where there is no value."""

    name: str
    column: str
    ranks: tuple[float, ...]
    is_list: bool
    """Whether the result is a list with an entry for each rank, or the one entry itself."""

    def result_type(self, rows: pa.Schema) -> pa.DataType:
        self.partial_types(rows)
        return pa.list_(pa.float64()) if self.is_list else pa.float64()

    def partial_types(self, rows: pa.Schema) -> tuple[pa.DataType, ...]:
        found = column_type(rows, self.column)
        if not (pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found)):
            raise not_a_number("a percentile", self.column, found)
        return (pa.binary(), pa.int64(), pa.int64(), pa.int64())

    def gather(self, rows: pa.Table, starts: Starts) -> Partials:
        numbers = pc.cast(values_of(rows, self.column), pa.float64(), safe=False)
        run = run_numbers(starts, len(rows))[np.asarray(pc.is_valid(numbers))]
        values = np.asarray(pc.drop_null(numbers))
        unusual = [values == -np.inf, values == np.inf, np.isnan(values)]
        finite = np.isfinite(values)
        bounds = np.searchsorted(run[finite], np.arange(len(starts) + 1))
        return (
            pa.array(_packed(values[finite], bounds), pa.binary()),
            *(pa.array(np.bincount(run[which], minlength=len(starts)), pa.int64()) for which in unusual),
        )

    def merge(self, partials: Partials, starts: Starts) -> Partials:
        packed = partials[0].to_pylist()
        merged = [_merged(packed[start:end]) for start, end in pairwise([*starts.tolist(), len(packed)])]
        counts = [np.asarray(pc.fill_null(column, 0)) for column in partials[1:]]
        summed = [np.add.reduceat(column, starts) if len(starts) else column for column in counts]
        return (pa.array(merged, pa.binary()), *(pa.array(column, pa.int64()) for column in summed))

    def finish(self, partials: Partials) -> pa.Array:
        found = [
            _percentiles(self.ranks, *one)
            for one in zip(*(column.to_pylist() for column in partials), strict=True)
        ]
        if self.is_list:
            return pa.array(found, pa.list_(pa.float64()))
        return pa.array([None if one is None else one[0] for one in found], pa.float64())


def percentile(column: str, p: float, *, name: str | None = None) -> Percentiles:
    """The percentile of a column: `percentile("amount", 0.99)`; exact up to 512 values of a window."""
    return Percentiles(name=name or f"percentile_{column}", column=column, ranks=_checked([p]), is_list=False)


def percentiles(column: str, ps: Sequence[float], *, name: str | None = None) -> Percentiles:
    """Several percentiles of a column, as a list in the order in which they are asked for."""
    return Percentiles(name=name or f"percentiles_{column}", column=column, ranks=_checked(ps), is_list=True)


def _checked(ps: Sequence[float]) -> tuple[float, ...]:
    if not ps:
        raise PipelineError(
            "percentiles() was asked for none: give it numbers from 0 to 1, such as [0.5, 0.99]"
        )
    for p in ps:
        if not 0 <= p <= 1:
            raise PipelineError(f"{p!r} is no percentile: give a number from 0 to 1, such as 0.99")
    return tuple(float(p) for p in ps)


def _packed(values: Doubles, bounds: npt.NDArray[np.int64]) -> list[bytes]:
    return [_pack(values[start:end]) for start, end in pairwise(bounds.tolist())]


def _pack(values: Doubles) -> bytes:
    if len(values) <= VALUES_MAX:
        return _EXACT + values.astype("<f8").tobytes()
    digest = datasketches.tdigest_double(DIGEST_SIZE)
    digest.update(values)
    return _DIGEST + bytes(digest.serialize())


def _unpacked(packed: bytes) -> Doubles:
    return np.frombuffer(packed, "<f8", offset=1)


def _merged(parts: list[bytes | None]) -> bytes | None:
    if len(parts) == 1:
        return parts[0]
    exact = [_unpacked(part) for part in parts if part is not None and part[:1] == _EXACT]
    values = np.concatenate(exact) if exact else np.empty(0)
    digests = [part for part in parts if part is not None and part[:1] == _DIGEST]
    if not digests:
        return _pack(values)
    merged = datasketches.tdigest_double.deserialize(digests[0][1:])
    for part in digests[1:]:
        merged.merge(datasketches.tdigest_double.deserialize(part[1:]))
    merged.update(values)
    return _DIGEST + bytes(merged.serialize())


def _percentiles(
    ranks: tuple[float, ...], packed: bytes | None, below: int | None, above: int | None, nan: int | None
) -> list[float] | None:
    """The percentiles of one window; None where it has no values."""
    below, above, nan = below or 0, above or 0, nan or 0
    find = _finder(packed or _EXACT)
    count = below + find.count + above + nan
    if not count:
        return None
    places = [max(1, int(np.ceil(rank * count))) - below for rank in ranks]
    unusual = (-np.inf, np.inf, np.nan)
    return [
        find.value(place)
        if 1 <= place <= find.count
        else unusual[int(place > 0) + int(place > find.count + above)]
        for place in places
    ]


@dataclass(frozen=True, slots=True)
class _Finder:
    """Finds the finite value of a rank, counted from 1."""

    count: int
    value: Callable[[int], float]


def _finder(packed: bytes) -> _Finder:
    if packed[:1] == _EXACT:
        values = np.sort(_unpacked(packed))
        return _Finder(len(values), lambda place: float(values[place - 1]))
    digest = datasketches.tdigest_double.deserialize(packed[1:])
    count = int(digest.get_total_weight())
    return _Finder(count, lambda place: float(digest.get_quantile((place - 0.5) / count)))
