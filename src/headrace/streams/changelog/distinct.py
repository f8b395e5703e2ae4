"""How many different values a column has. Pure: no Spark, no I/O."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.changelog.zset import row_codes
from headrace.streams.windows.aggregate import Partials, Starts
from headrace.streams.windows.exact import column_type
from headrace.streams.windows.runs import run_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class CountDistinct:
    """The number of different values; NULL is none."""

    name: str
    column: str

    def result_type(self, rows: pa.Schema) -> pa.DataType:
        column_type(rows, self.column)
        return pa.int64()

    def partial_types(self, rows: pa.Schema) -> tuple[pa.DataType, ...]:
        return (self.result_type(rows),)

    def gather(self, rows: pa.Table, starts: Starts) -> Partials:
        is_value = np.asarray(rows[self.column].is_valid()).astype(bool)
        (codes,) = row_codes([rows], [self.column])
        runs = run_numbers(starts, rows.num_rows)[is_value]
        width = int(codes.max(initial=0)) + 1
        # As one number each, pairs are told apart much faster than as two.
        pairs = np.unique(runs.astype(np.int64) * width + codes[is_value])
        return (pa.array(np.bincount(pairs // width, minlength=len(starts)), pa.int64()),)

    def merge(self, partials: Partials, starts: Starts) -> Partials:
        del partials, starts
        raise PipelineError(
            f"how many different values {self.column} has can't be told from parts: use it in hr.aggregate, "
            "or hr.approximate_distinct"
        )

    def finish(self, partials: Partials) -> pa.Array:
        return partials[0]
