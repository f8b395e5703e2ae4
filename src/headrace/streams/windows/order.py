"""The order of a column's values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.windows.runs import Indices


def is_ordered(kind: pa.DataType) -> bool:
    """Whether the values can be sorted: those of structs, lists and maps can't."""
    return not pa.types.is_nested(kind)


def order_codes(column: pa.Array) -> Indices:
    """A number for each value, greater for greater values and the same for equal ones.

    NULL is less than all values, and NaN is greater than all others, as in Spark.
    """
    if pa.types.is_floating(column.type):
        values = np.asarray(pc.fill_null(column, 0), dtype=np.float64)
        codes = np.unique(values, return_inverse=True)[1].astype(np.int64)
    else:
        encoded = column.dictionary_encode()
        order = np.asarray(pc.sort_indices(encoded.dictionary), dtype=np.int64)
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        codes = (
            ranks[np.asarray(pc.fill_null(encoded.indices, 0))]
            if len(ranks)
            else np.zeros(len(column), np.int64)
        )
    codes[~np.asarray(pc.is_valid(column))] = -1
    return codes
