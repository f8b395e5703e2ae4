"""Numbers for keys, so that grouping is sorting of integers.

Keys are equal as in Spark's groupBy: NULL equals NULL, NaN equals NaN, 0.0 equals -0.0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import PipelineError
from headrace.streams.windows.exact import in_one_piece
from headrace.streams.windows.runs import Indices


def key_codes(tables: Sequence[pa.Table], by: Sequence[str]) -> list[Indices]:
    """For each table the number of each row's key; the same key has the same number in all of them.

    The order of numbers depends on the keys and on where they are first seen, and on nothing else.
    """
    lengths = [table.num_rows for table in tables]
    codes = np.zeros(sum(lengths), dtype=np.int64)
    for name in by:
        column = pa.concat_arrays([in_one_piece(table[name]) for table in tables])
        for part in _plain(column, name):
            codes = _combined(codes, part)
    return np.split(codes, np.cumsum(lengths)[:-1])


def _plain(column: pa.Array, name: str) -> list[pa.Array]:
    """The column as columns of plain values."""
    if pa.types.is_struct(column.type):
        inner = [part for field in column.flatten() for part in _plain(field, name)]
        return [column.is_valid(), *inner]
    if pa.types.is_nested(column.type):
        raise PipelineError(f"{name!r} can't be a key, because it is a {column.type}: keys are plain values")
    if pa.types.is_floating(column.type):
        # Zero has two signs, and NaN has many forms.
        nan = pa.scalar(float("nan"), column.type)
        return [pc.if_else(pc.is_nan(column), nan, pc.add(column, pa.scalar(0.0, column.type)))]
    return [column]


def _combined(codes: Indices, column: pa.Array) -> Indices:
    encoded = column.dictionary_encode(null_encoding="encode")
    added = np.asarray(encoded.indices, dtype=np.int64)
    if not codes.any():
        return added
    mixed = codes * len(encoded.dictionary) + added
    # Numbered anew each time, so that many columns don't overflow.
    return np.asarray(pa.array(mixed).dictionary_encode().indices, dtype=np.int64)
