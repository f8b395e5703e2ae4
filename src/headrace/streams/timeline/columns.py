"""Columns of Arrow as plain values: times as microseconds, keys as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.timeline.timeline import Key


def window_bounds(table: pa.Table) -> tuple[list[int | None], list[int | None]]:
    """The bounds of the column `window`."""
    window = table.column("window")
    if not pa.types.is_struct(window.type):
        return [None] * len(table), [None] * len(table)
    start, end = (times_of(pc.struct_field(window, bound)) for bound in ("start", "end"))
    return start, end


def times_of(times: Any) -> list[int | None]:
    """A column of timestamps in microseconds."""
    # Not as Python's times, which end with the year 9999.
    found: list[int | None] = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64()).to_pylist()
    return found


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """A column as Python has it, as far as Python can."""
    try:
        found: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        # A time beyond the year 9999.
        found = column.cast(pa.int64()).to_pylist()
    return found


def keys_of(rows: pa.Table, by: Sequence[str]) -> Iterator[Key]:
    """The key of each row."""
    columns = [values_of(rows.column(name)) for name in by]
    for number in range(len(rows)):
        yield tuple(key_text(column[number]) for column in columns)


def key_order(key: Key) -> tuple[tuple[bool, str], ...]:
    """By which keys are sorted: nulls first."""
    return tuple((value is not None, value or "") for value in key)


def key_text(value: object) -> str | None:
    """A value of a key as text, the same for values that are equal as keys."""
    if value is None:
        return None
    # Zero has two signs.
    return str(value + 0.0) if isinstance(value, float) else str(value)
