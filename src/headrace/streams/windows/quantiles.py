"""Percentiles of a column, exact for few values and within a known error for many.

The percentile p of n values is the one at rank ceil(p * n), at least 1, counted from the smallest: always a
value that is there, as Spark's percentile_approx gives. NaN is greater than all other values, as in Spark.

A window's values are kept in levels. A value of level i stands for 2**i values. When a level has more than
LEVEL_SIZE_MAX values, they are sorted, and every second one goes up a level, where it stands for its
neighbour, too: the first of each pair one time, the second the next time, in turn. That is a KLL sketch
without its coins. Those of Spark, and of the library datasketches, toss them, so that a batch that is run
again after a crash would give other results.

Each time a level is thinned out, a rank changes by at most what one of its values stands for. So the rank of
what is given differs from the one that was asked for by at most a share of log2(n / LEVEL_SIZE_MAX) /
LEVEL_SIZE_MAX of n: 1 % for a million values, much less in practice. Up to LEVEL_SIZE_MAX values it is exact.

A partial is one binary: the number of levels in a byte; for each level how many values it has, as a
little-endian unsigned integer of 32 bits, of which the highest says which ones go up next; and the values as
little-endian doubles, level by level. NULL is a window of no values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import PipelineError
from headrace.streams.windows.aggregate import Partials, Starts
from headrace.streams.windows.exact import column_type, not_a_number, values_of
from headrace.streams.windows.runs import run_numbers

Doubles = npt.NDArray[np.float64]

LEVEL_SIZE_MAX: Final = 1_024

_ODD: Final = 1 << 31
_NOTHING: Final = np.empty(0, dtype="<f8")


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
        return (pa.binary(),)

    def gather(self, rows: pa.Table, starts: Starts) -> Partials:
        numbers = pc.cast(values_of(rows, self.column), pa.float64(), safe=False)
        run = run_numbers(starts, len(rows))[np.asarray(pc.is_valid(numbers), dtype=bool)]
        values = np.asarray(pc.drop_null(numbers)).astype("<f8", copy=False)
        bounds = np.searchsorted(run, np.arange(len(starts) + 1)).tolist()
        packed = [_Levels([(values[start:end], False)]).packed() for start, end in pairwise(bounds)]
        return (pa.array(packed, pa.binary()),)

    def merge(self, partials: Partials, starts: Starts) -> Partials:
        packed = partials[0].to_pylist()
        bounds = pairwise([*starts.tolist(), len(packed)])
        return (pa.array([_merged(packed[start:end]) for start, end in bounds], pa.binary()),)

    def finish(self, partials: Partials) -> pa.Array:
        found = [_percentiles(packed, self.ranks) for packed in partials[0].to_pylist()]
        if self.is_list:
            return pa.array(found, pa.list_(pa.float64()))
        values = [None if one is None else one[0] for one in found]
        return pa.array(values, pa.float64())


def percentile(column: str, p: float, *, name: str | None = None) -> Percentiles:
    """The percentile of a column: `percentile("amount", 0.99)`; exact up to 1,024 values of a window."""
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


class _Levels:
    """The values of a window, level by level, each with whether the odd ones go up next."""

    def __init__(self, levels: Iterable[tuple[Doubles, bool]]) -> None:
        """Thin out levels that are too large."""
        self.levels: list[tuple[Doubles, bool]] = []
        going_up = _NOTHING
        waiting = list(levels)
        while waiting or len(going_up):
            values, is_odd = waiting.pop(0) if waiting else (_NOTHING, False)
            values, going_up = np.concatenate([values, going_up]) if len(going_up) else values, _NOTHING
            if len(values) > LEVEL_SIZE_MAX:
                ordered = np.sort(values)
                pairs = len(ordered) // 2 * 2
                going_up, values = ordered[int(is_odd) : pairs : 2], ordered[pairs:]
                is_odd = not is_odd
            self.levels.append((values, is_odd))

    def packed(self) -> bytes:
        """As a partial."""
        counts = [len(values) | (_ODD if is_odd else 0) for values, is_odd in self.levels]
        parts = [bytes([len(counts)]), np.array(counts, dtype="<u4").tobytes()]
        return b"".join([*parts, *(values.tobytes() for values, _ in self.levels)])

    @staticmethod
    def unpacked(packed: bytes) -> list[tuple[Doubles, bool]]:
        """The levels of a partial."""
        count = packed[0]
        told = np.frombuffer(packed, "<u4", count, offset=1)
        values = np.frombuffer(packed, "<f8", offset=1 + 4 * count)
        bounds = np.cumsum(told & (_ODD - 1))[:-1]
        return list(zip(np.split(values, bounds), ((told & _ODD) > 0).tolist(), strict=True))


def _merged(parts: list[bytes | None]) -> bytes | None:
    known = [part for part in parts if part is not None]
    if len(known) <= 1:
        return known[0] if known else None
    each = [_Levels.unpacked(part) for part in known]
    levels = []
    for same in zip_longest(*each, fillvalue=(_NOTHING, False)):
        is_odd = sum(is_odd for _, is_odd in same) % 2 == 1
        levels.append((np.concatenate([values for values, _ in same]), is_odd))
    return _Levels(levels).packed()


def _percentiles(packed: bytes | None, ranks: tuple[float, ...]) -> list[float] | None:
    """The percentiles of one window; None where it has no values."""
    levels = [] if packed is None else _Levels.unpacked(packed)
    values = np.concatenate([_NOTHING, *(values for values, _ in levels)])
    if not len(values):
        return None
    weights = np.repeat([1 << level for level in range(len(levels))], [len(values) for values, _ in levels])
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    places = [max(1, int(np.ceil(rank * int(reached[-1])))) for rank in ranks]
    found: list[float] = values[order][np.searchsorted(reached, places)].tolist()
    return found
