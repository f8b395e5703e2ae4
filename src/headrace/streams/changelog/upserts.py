"""From the changes of a table to what a store needs to keep a copy of it: rows to write, and keys to delete.

In a micro-batch each key has one row at the end of it, or none: it is written, or the key is deleted, once,
whatever came between. A key that has more than one row at once is none: that is an error, whether the rows
came together or not. So it is kept how many rows each key has; what is replaced by another row of the key
does not change that, and costs nothing.

A row that goes without having come leaves its key with less than no rows. That is kept, so that the row may
still come, and counted as `unmatched`.

Results have the columns of the rows, and `_delete`; of a row to delete, only the key's columns have values.

State, divided by the hash of the key: `counts`, the key's columns, and `_weight`, how many rows there are.
Pure: no Spark, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import RESULTS, Arrivals, Step, Tables
from headrace.streams.changelog.slots import SlottedTables, hashes_of
from headrace.streams.changelog.zset import (
    HASH,
    WEIGHT,
    consolidated,
    relaxed,
    row_codes,
    row_columns,
    weighted,
    weights_of,
)
from headrace.streams.topic import METADATA_COLUMN
from headrace.streams.windows.runs import Flags, Indices, stacked

DELETE: Final = "_delete"
"""Whether the row with this key goes."""
COUNTS: Final = "counts"

_TITLE: Final = "hr.upserts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upserts:
    """Steps what is to be written of a changelog."""

    key: tuple[str, ...]

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        fields = [pa.field(name, rows.field(name).type) for name in _columns(rows)]
        return {RESULTS: pa.schema([*fields, (DELETE, pa.bool_())])}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        names = _columns(arrivals.rows.schema)
        net = consolidated(relaxed(arrivals.rows.select([*names, WEIGHT, HASH])))
        if not net.num_rows:
            return Step(state={})
        weights = weights_of(net)
        (codes,) = row_codes([net], self.key)
        _, firsts, numbers = np.unique(codes, return_index=True, return_inverse=True)
        is_written = weights > 0
        keys = net.take(pa.array(firsts)).select([*self.key, WEIGHT, HASH])
        written = weighted(keys, _sums(numbers, np.where(is_written, weights, 0)))
        refuse_several(written, self.key, _TITLE)
        after, unmatched = self._counted(state, weighted(keys, _sums(numbers, weights)))
        is_deleted = ~np.isin(numbers, numbers[is_written]) & _is_first(numbers)
        chosen = np.flatnonzero(is_written | is_deleted)
        deleted = is_deleted[chosen]
        there, blanked = pa.array(chosen), pa.array(chosen, mask=deleted)
        columns = [net[name].take(there if name in self.key else blanked) for name in names]
        schema = self.output_schemas(arrivals.rows.schema)[RESULTS]
        return Step(
            state=after,
            outputs={RESULTS: pa.Table.from_arrays([*columns, pa.array(deleted)], schema=schema)},
            counts={"unmatched": unmatched} if unmatched else {},
        )

    def _counted(self, state: Tables, keys: pa.Table) -> tuple[dict[str, pa.Table], int]:
        """The state after these keys have got so many rows more or less, and how many have less than none."""
        changed = keys.filter(pa.array(weights_of(keys) != 0))
        if not changed.num_rows:
            return {}, 0
        schema = pa.schema([field for field in changed.schema if field.name != HASH])
        opened = SlottedTables.open(state, {COUNTS: schema}, hashes_of(changed))
        kept = opened.kept[COUNTS]
        after = consolidated(stacked([kept, changed.select(kept.schema.names)]).combine_chunks())
        refuse_several(after, self.key, _TITLE)
        return opened.close({COUNTS: after}), int(np.count_nonzero(weights_of(after) < 0))


def refuse_several(keys: pa.Table, names: Sequence[str], title: str) -> None:
    """Refuse a key that has several rows; `keys` are different, and weighted by how many rows each has."""
    counts = weights_of(keys)
    if counts.max(initial=0) > 1:
        key = keys.select(list(names)).slice(int(counts.argmax()), 1).to_pylist()[0]
        raise PipelineError(
            f"{title}: the table has {int(counts.max())} rows of the key {key} at once: name as key "
            "the columns that tell its rows apart"
        )


def _columns(rows: pa.Schema) -> list[str]:
    return [name for name in row_columns(rows.names) if name != METADATA_COLUMN]


def _sums(numbers: Indices, weights: Indices) -> Indices:
    """The sum of the weights of each number."""
    sums = np.zeros(int(numbers.max()) + 1, dtype=np.int64)
    np.add.at(sums, numbers, weights)
    return sums


def _is_first(numbers: Indices) -> Flags:
    is_first = np.zeros(len(numbers), dtype=bool)
    is_first[np.unique(numbers, return_index=True)[1]] = True
    return is_first
