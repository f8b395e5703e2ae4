"""Values that a capture has left out, because they are large and have not changed.

In their place Debezium sends a text, `__debezium_unavailable_value`; in that of bytes, its bytes; in that of
a list of either, a list of one; and in that of a list of whole numbers, the text's bytes. Such a value is the
one of the version before, of the same key. Where none is known it is NULL, and counted.

Pure: no Spark, no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.changelog.zset import row_codes, with_column
from headrace.streams.windows.exact import in_one_piece
from headrace.streams.windows.runs import Flags, Indices

UNAVAILABLE: Final = "__debezium_unavailable_value"
_NOWHERE: Final = -1


def filled(
    rows: pa.Table, kept: pa.Table, *, key: Sequence[str], names: Sequence[str], kinds: Sequence[str]
) -> tuple[pa.Table, int]:
    """The versions with the values that were not sent, and how many are not known.

    `kept` are the current rows before them, `names` the columns of the table, and `kinds` says of each
    version whether it is an "upsert", a "delete", or the end of all rows before it.
    """
    marked = {name: is_marked(in_one_piece(rows[name])) for name in names}
    columns = [name for name, flags in marked.items() if flags.any()]
    if not columns:
        return rows, 0
    kept_codes, codes = row_codes([kept, rows], key)
    unknown_count = 0
    for name in columns:
        places, count = _sources(kept_codes, codes, kinds, marked[name])
        unknown_count += count
        both = pa.concat_arrays([in_one_piece(kept[name]), in_one_piece(rows[name])])
        rows = with_column(rows, name, both.take(pa.array(places, mask=places == _NOWHERE)))
    return rows, unknown_count


def _sources(kept_codes: Indices, codes: Indices, kinds: Sequence[str], marked: Flags) -> tuple[Indices, int]:
    """Where each version's value is, among those that are kept and the versions; how many are nowhere."""
    touched = np.flatnonzero(np.isin(kept_codes, codes))
    known = dict(zip(kept_codes[touched].tolist(), touched.tolist(), strict=True))
    first, unknown_count = len(kept_codes), 0
    places = np.arange(first, first + len(codes))
    for number, (kind, code) in enumerate(zip(kinds, codes.tolist(), strict=True)):
        if kind == "upsert":
            if marked[number]:
                unknown_count += code not in known
                places[number] = known.get(code, _NOWHERE)
            known[code] = int(places[number])
        elif kind == "delete":
            known.pop(code, None)
        else:
            known.clear()
    return places, unknown_count


def is_marked(column: pa.Array) -> Flags:
    """Which values were not sent."""
    mark = _mark(column.type)
    if mark is None:
        return np.zeros(len(column), dtype=bool)
    if not isinstance(mark, list):
        return np.asarray(pc.fill_null(pc.equal(column, mark), False)).astype(bool)
    flags = np.asarray(pc.fill_null(pc.equal(pc.list_value_length(column), len(mark)), False)).astype(bool)
    flags[flags] = [value == mark for value in column.filter(pa.array(flags)).to_pylist()]
    return flags


def _mark(kind: pa.DataType) -> Any:
    """What is sent in the place of a value of this type; None if nothing is."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return UNAVAILABLE
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return UNAVAILABLE.encode()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if pa.types.is_integer(kind.value_type):
            return list(UNAVAILABLE.encode())
        inner = _mark(kind.value_type)
        return None if inner is None or isinstance(inner, list) else [inner]
    return None
