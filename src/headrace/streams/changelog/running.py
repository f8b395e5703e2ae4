"""Aggregates that are kept current by adding what comes and taking away what goes: count, sum and mean.

Totals are kept exactly, as fractions, so that taking away undoes adding to the last digit, in any order: what
remains of a group is what its rows alone would give. NaN and the infinities are counted, because no
arithmetic takes them away again.

Types, nulls and what does not fit are as in windows/exact.py. Pure: no Spark, no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any, Final

import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.windows.exact import Count, Mean, Sum

Incremental = Count | Sum | Mean

KEPT_TYPE: Final = pa.struct(
    [
        ("total", pa.string()),
        ("count", pa.int64()),
        ("nan", pa.int64()),
        ("infinite", pa.int64()),
        ("minus_infinite", pa.int64()),
    ]
)
"""What is kept of a group: the total as a fraction, and how many values there are, and of which kind."""

_EXACT: Final = Context(prec=200, rounding=ROUND_HALF_UP)


@dataclass(slots=True)
class Total:
    """The values of a column, or of all rows, added up."""

    total: Fraction = Fraction(0)
    count: int = 0
    nan: int = 0
    infinite: int = 0
    minus_infinite: int = 0

    @classmethod
    def read(cls, kept: dict[str, Any] | None) -> Total:
        """What was kept, or nothing."""
        return cls() if kept is None else cls(**{**kept, "total": Fraction(kept["total"])})

    def kept(self) -> dict[str, Any]:
        """As it is kept."""
        return {
            "total": str(self.total),
            "count": self.count,
            "nan": self.nan,
            "infinite": self.infinite,
            "minus_infinite": self.minus_infinite,
        }

    def add(self, values: Sequence[Any], weights: Sequence[int], *, sums: bool) -> None:
        """Values that come, or go where the weight is negative; they are counted at least. None is none."""
        for value, weight in zip(values, weights, strict=True):
            if value is None:
                continue
            self.count += weight
            if not sums:
                continue
            if isinstance(value, float) and not math.isfinite(value):
                self._count_special(value, weight)
            else:
                self.total += weight * Fraction(value)

    def add_rows(self, weight: int) -> None:
        """Rows that come or go, whose values don't matter."""
        self.count += weight

    @property
    def is_nothing(self) -> bool:
        """Whether all that came has gone, and nothing else."""
        return self == Total()

    @property
    def as_float(self) -> float:
        """The total, rounded once."""
        if self.nan > 0 or (self.infinite > 0 and self.minus_infinite > 0):
            return math.nan
        if self.infinite > 0 or self.minus_infinite > 0:
            return math.inf if self.infinite > 0 else -math.inf
        return _float(self.total)

    def _count_special(self, value: float, weight: int) -> None:
        if math.isnan(value):
            self.nan += weight
        elif value > 0:
            self.infinite += weight
        else:
            self.minus_infinite += weight


def result_of(aggregate: Incremental, total: Total, kind: pa.DataType) -> Any:
    """The aggregate of what was added up; `kind` is the type of its results."""
    if isinstance(aggregate, Count):
        return max(total.count, 0)
    if total.count <= 0:
        return None
    divisor = total.count if isinstance(aggregate, Mean) else 1
    if pa.types.is_floating(kind):
        special = total.as_float
        return _float(total.total / divisor) if math.isfinite(special) else special
    exact = total.total / divisor
    if pa.types.is_integer(kind):
        if not -(2**63) <= exact < 2**63:
            raise _overflow(aggregate, "bigint")
        return int(exact)
    value = _decimal(exact, kind.scale)
    if len(value.as_tuple().digits) > kind.precision:
        raise _overflow(aggregate, str(kind))
    return value


def _float(exact: Fraction) -> float:
    try:
        # Python divides whole numbers of any size with one rounding.
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _decimal(exact: Fraction, scale: int) -> Decimal:
    quotient = _EXACT.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return quotient.quantize(Decimal(1).scaleb(-scale), context=_EXACT)


def _overflow(aggregate: Sum | Mean, kind: str) -> PipelineError:
    return PipelineError(
        f"an aggregate of column {aggregate.column!r} does not fit {kind}; cast the column to decimal or "
        "double"
    )
