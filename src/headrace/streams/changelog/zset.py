"""Rows with weights: which of them are equal, and what remains when they are added up.

Rows are equal as keys are: NULL equals NULL, NaN equals NaN, 0.0 equals -0.0. Pure: no Spark, no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.windows.exact import in_one_piece
from headrace.streams.windows.keys import key_codes
from headrace.streams.windows.runs import Indices

WEIGHT: Final = "_weight"
"""The column of weights."""
CHANGED_AT: Final = "_changed_at"
"""The column that says when a change happened, where it is known."""
HASH: Final = "_hash"
"""A hash of the key, by which state is divided."""

CHANGE_COLUMNS: Final = (WEIGHT, CHANGED_AT, HASH)
"""What is told with a row, and is no part of it."""
WEIGHT_TYPE: Final = pa.int32()


def row_columns(names: Sequence[str]) -> list[str]:
    """The columns that are part of the row."""
    return [name for name in names if name not in CHANGE_COLUMNS]


def row_codes(tables: Sequence[pa.Table], names: Sequence[str]) -> list[Indices]:
    """For each table a number for each row, the same for rows that are equal in these columns."""
    return key_codes([pa.table({name: _plain(table[name]) for name in names}) for table in tables], names)


def weights_of(rows: pa.Table) -> Indices:
    """The weights; NULL weighs nothing."""
    filled = pc.fill_null(in_one_piece(rows[WEIGHT]), 0)
    return np.asarray(filled).astype(np.int64)


def relaxed(rows: pa.Table) -> pa.Table:
    """The rows in one piece, with columns that may all be NULL: as a change has them."""
    return rows.combine_chunks().cast(pa.schema([pa.field(field.name, field.type) for field in rows.schema]))


def consolidated(rows: pa.Table) -> pa.Table:
    """Equal rows as one, with the sum of their weights, at the time of the newest; none that weighs nothing.

    They come in the order in which they were first seen.
    """
    if not rows.num_rows:
        return rows
    (codes,) = row_codes([rows], row_columns(rows.schema.names))
    _, firsts, numbers = np.unique(codes, return_index=True, return_inverse=True)
    weights = np.zeros(len(firsts), dtype=np.int64)
    np.add.at(weights, numbers, weights_of(rows))
    chosen = np.flatnonzero(weights)
    chosen = chosen[np.argsort(firsts[chosen])]
    made = weighted(rows.take(pa.array(firsts[chosen])), weights[chosen])
    if CHANGED_AT not in rows.schema.names:
        return made
    newest = newest_times(rows[CHANGED_AT], numbers, len(firsts))
    return with_column(made, CHANGED_AT, newest.take(pa.array(chosen)))


def newest_times(times: pa.ChunkedArray, numbers: Indices, count: int) -> pa.Array:
    """The newest time of each number from 0 on; NULL where there is none."""
    least = np.iinfo(np.int64).min
    newest = np.full(count, least)
    told = pc.fill_null(in_one_piece(times).cast(pa.int64()), least)
    np.maximum.at(newest, numbers, np.asarray(told))
    return pa.array(newest, pa.int64(), mask=newest == least).cast(times.type)


def weighted(rows: pa.Table, weights: Indices | int) -> pa.Table:
    """The rows with these weights."""
    column = np.full(rows.num_rows, weights) if isinstance(weights, int) else weights
    return with_column(rows, WEIGHT, pa.array(column).cast(WEIGHT_TYPE))


def with_column(rows: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The rows with this column, in the place of the one with the same name or at the end."""
    if name in rows.schema.names:
        return rows.set_column(rows.schema.get_field_index(name), name, values)
    return rows.append_column(name, values)


def without(rows: pa.Table, *names: str) -> pa.Table:
    """The rows without these columns, where they have them."""
    return rows.select([name for name in rows.schema.names if name not in names])


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Lists and maps as texts that are equal where they are."""
    if not _has_list(column.type):
        return column
    texts = [None if each is None else repr(each) for each in column.cast(_numeric(column.type)).to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _numeric(kind: pa.DataType) -> pa.DataType:
    """The type with whole numbers for times: Python's own don't reach beyond the year 9999."""
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.int32()
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _numeric(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_numeric(kind.key_type), _numeric(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _numeric(each.type)) for each in kind])
    return kind


def _has_list(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_list(kind[place].type) for place in range(kind.num_fields))
    return bool(pa.types.is_nested(kind))
