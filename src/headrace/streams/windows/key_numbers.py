"""Keys in state: each is kept once, and known by its number elsewhere.

The table has the columns of the key, and `_number`, which is its row. New keys are added at the end. When
half of them are not used any more, the others are numbered anew, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.streams.windows.exact import column_type
from headrace.streams.windows.kept_state import check_keys, check_types
from headrace.streams.windows.keys import key_codes
from headrace.streams.windows.runs import Indices

NUMBER: Final = "_number"


def read_keys(kept: pa.Table | None, rows: pa.Schema, by: Sequence[str]) -> pa.Table:
    """The table of keys of a state; empty at first."""
    schema = key_schema(rows, by)
    if kept is None:
        return schema.empty_table()
    check_keys(kept, by, [NUMBER])
    check_types(kept, schema)
    return kept


def key_schema(rows: pa.Schema, by: Sequence[str]) -> pa.Schema:
    """The columns of the table of keys."""
    return pa.schema(
        [pa.field(NUMBER, pa.int64()), *(pa.field(name, column_type(rows, name)) for name in by)]
    )


def find_keys(known: pa.Table, rows: pa.Table, by: Sequence[str]) -> tuple[pa.Table, Indices]:
    """The table with the keys of these rows in it, too, and the number of each row's key."""
    known_codes, row_codes = key_codes([known, rows], by)
    numbers = np.full(max(known_codes.max(initial=-1), row_codes.max(initial=-1)) + 1, -1, dtype=np.int64)
    numbers[known_codes] = np.arange(len(known_codes))
    # Written backwards, so that what stays is where each is first seen.
    first_rows = np.zeros(len(numbers), dtype=np.int64)
    first_rows[row_codes[::-1]] = np.arange(len(row_codes))[::-1]
    is_added = np.zeros(len(numbers), dtype=bool)
    is_added[row_codes] = True
    added = np.flatnonzero(is_added & (numbers < 0))
    if not len(added):
        return known, numbers[row_codes]
    added = added[np.argsort(first_rows[added])]
    numbers[added] = len(known_codes) + np.arange(len(added))
    firsts = rows.select(list(by)).take(pa.array(first_rows[added]))
    columns = [pa.array(numbers[added]), *firsts.columns]
    new = pa.Table.from_arrays(columns, schema=key_schema(rows.schema, by))
    return pa.concat_tables([known, new]).combine_chunks(), numbers[row_codes]


def fewer_keys(known: pa.Table, used: Indices) -> tuple[pa.Table, Indices] | None:
    """Without the keys that are not used, if they are half of all or more: the table, and new numbers by old.

    `used` are numbers, each any number of times.
    """
    is_used = np.zeros(known.num_rows, dtype=bool)
    is_used[used] = True
    kept = np.flatnonzero(is_used)
    if known.num_rows == 0 or 2 * len(kept) > known.num_rows:
        return None
    numbers = np.cumsum(is_used) - 1
    table = known.take(pa.array(kept)).set_column(0, NUMBER, pa.array(np.arange(len(kept))))
    return table, numbers
