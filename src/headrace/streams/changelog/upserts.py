"""From the changes of a table to what a store needs to keep a copy of it: rows to write, and keys to delete.

In a micro-batch each key has one row at the end of it, or none: it is written, or the key is deleted, once,
whatever came between. A key that has more than one row at once is none: that is an error.

Results have the columns of the rows, and `_delete`; of a row to delete, only the key's columns have values.
Nothing is kept in state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import RESULTS, Arrivals, Step, Tables
from headrace.streams.changelog.zset import WEIGHT, consolidated, relaxed, row_codes, row_columns, weights_of
from headrace.streams.topic import METADATA_COLUMN
from headrace.streams.windows.runs import Flags, Indices

DELETE: Final = "_delete"
"""Whether the row with this key goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upserts:
    """Steps what is to be written of a changelog."""

    key: tuple[str, ...]

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        fields = [pa.field(name, rows.field(name).type) for name in _columns(rows)]
        return {RESULTS: pa.schema([*fields, (DELETE, pa.bool_())])}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        del state
        names = _columns(arrivals.rows.schema)
        net = consolidated(relaxed(arrivals.rows.select([*names, WEIGHT])))
        if not net.num_rows:
            return Step(state={})
        weights = weights_of(net)
        (codes,) = row_codes([net], self.key)
        _, numbers = np.unique(codes, return_inverse=True)
        is_written = weights > 0
        self._check(net, numbers, np.where(is_written, weights, 0))
        is_deleted = ~np.isin(numbers, numbers[is_written]) & _is_first(numbers)
        chosen = np.flatnonzero(is_written | is_deleted)
        deleted = is_deleted[chosen]
        there, blanked = pa.array(chosen), pa.array(chosen, mask=deleted)
        columns = [net[name].take(there if name in self.key else blanked) for name in names]
        schema = self.output_schemas(arrivals.rows.schema)[RESULTS]
        return Step(
            state={}, outputs={RESULTS: pa.Table.from_arrays([*columns, pa.array(deleted)], schema=schema)}
        )

    def _check(self, net: pa.Table, numbers: Indices, counts: Indices) -> None:
        per_key = np.bincount(numbers, weights=counts)
        if per_key.max(initial=0) > 1:
            place = int(np.flatnonzero(numbers == per_key.argmax())[0])
            key = net.select(list(self.key)).slice(place, 1).to_pylist()[0]
            raise PipelineError(
                f"hr.upserts: the table has {int(per_key.max())} rows of the key {key} at once: name as key "
                "the columns that tell its rows apart"
            )


def _columns(rows: pa.Schema) -> list[str]:
    return [name for name in row_columns(rows.names) if name != METADATA_COLUMN]


def _is_first(numbers: Indices) -> Flags:
    is_first = np.zeros(len(numbers), dtype=bool)
    is_first[np.unique(numbers, return_index=True)[1]] = True
    return is_first
