"""Values that a capture has left out of a change event, because they are large and have not changed.

They hold the text `unavailable` in the place of a value; the one that is known stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.changelog.zset import row_codes, with_column
from headrace.streams.windows.runs import Flags

UNAVAILABLE: Final = "__debezium_unavailable_value"
"""What Debezium sends in the place of a large value that has not changed."""


def has_unsent(rows: pa.Table, names: Sequence[str], mark: str = UNAVAILABLE) -> Flags:
    """Which rows have a value that was not sent in one of these columns."""
    found = np.zeros(rows.num_rows, dtype=bool)
    for name in names:
        found |= is_unsent(rows, name, mark)
    return found


def fill_unsent(
    rows: pa.Table,
    kept: pa.Table,
    *,
    key: Sequence[str],
    names: Sequence[str],
    is_upsert: Sequence[bool],
    mark: str = UNAVAILABLE,
) -> tuple[pa.Table, int]:
    """The versions, in the order of the log, with the values that were not sent; and how many are not known.

    `kept` has the rows that are known, with the columns of `names` and the key. What is not known is null.
    """
    marked = {name: is_unsent(rows, name, mark) for name in names}
    columns = [name for name, is_marked in marked.items() if is_marked.any()]
    if not columns:
        return rows, 0
    kept_codes, codes = (each.tolist() for each in row_codes([kept, rows], key))
    unknown_count = 0
    for name in columns:
        known = dict(zip(kept_codes, kept[name].to_pylist(), strict=True))
        values = rows[name].to_pylist()
        for place in range(len(values)):
            if marked[name][place]:
                unknown_count += codes[place] not in known
                values[place] = known.get(codes[place])
            if is_upsert[place]:
                known[codes[place]] = values[place]
            else:
                known.pop(codes[place], None)
        rows = with_column(rows, name, pa.array(values, rows.schema.field(name).type))
    return rows, unknown_count


def is_unsent(rows: pa.Table, name: str, mark: str = UNAVAILABLE) -> Flags:
    """In which rows the value of a column was not sent."""
    kind = rows.schema.field(name).type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        found = pc.equal(rows[name], mark)
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        found = pc.equal(rows[name], mark.encode())
    else:
        return np.zeros(rows.num_rows, dtype=bool)
    flags: Flags = pc.fill_null(found, False).to_numpy().astype(bool)
    return flags
