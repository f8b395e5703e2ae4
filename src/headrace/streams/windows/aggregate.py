"""What an aggregate is to a window: partial results that can be merged.

Rows are sorted so that those which belong together are a run: run i reaches from `starts[i]` up to
`starts[i + 1]`, the last one to the end; no run is empty. Within a run, rows keep the order of arrival.

    gather   rows     -> a partial for each run
    merge    partials -> a partial for each run of partials
    finish   partials -> a result for each

Partials are columns of Arrow, so that they are kept in state, and merged many at a time. Merging is
associative: where a stream is cut into micro-batches does not show, but for the last digits of sums of
floating-point numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Starts = npt.NDArray[np.int64]
Partials = tuple[pa.Array, ...]


class Aggregate(Protocol):
    """An aggregate of one or more columns. A value: it travels to Spark's workers."""

    @property
    def name(self) -> str:
        """The column of its results."""

    def result_type(self, rows: pa.Schema) -> pa.DataType:
        """The type of its results for rows of this schema."""

    def partial_types(self, rows: pa.Schema) -> tuple[pa.DataType, ...]:
        """The types of its partials' columns for rows of this schema."""

    def gather(self, rows: pa.Table, starts: Starts) -> Partials:
        """A partial for each run of rows."""

    def merge(self, partials: Partials, starts: Starts) -> Partials:
        """A partial for each run of partials."""

    def finish(self, partials: Partials) -> pa.Array:
        """A result for each partial. NULL where an aggregate of Spark would be."""


def columns_of(aggregate: Aggregate) -> Iterator[str]:
    """The columns that it is computed of."""
    for name in ("column", "columns", "order_by"):
        told: str | Sequence[str] | None = getattr(aggregate, name, None)
        if isinstance(told, str):
            yield told
        else:
            yield from told or ()
