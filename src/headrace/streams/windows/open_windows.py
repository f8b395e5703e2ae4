"""Windows that have not ended yet, for triggers that fire before the end.

    _key, _end_us      the number of the key, and when the window ends; rows are in the order of both
    _rows              how many rows have come
    _fired_rows        how many had come when it last fired; 0 where it has not
    _since_us          the log's time when it last fired, or else when its first rows came
    _given_<name>      only where changes are retracted: the results that were given last

Nothing of this is kept where windows fire on time only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.windows.exact import in_one_piece
from headrace.streams.windows.kept_state import check_types
from headrace.streams.windows.places import Places
from headrace.streams.windows.results import Layout
from headrace.streams.windows.runs import Flags, Indices
from headrace.streams.windows.triggers import Early

_NUMBERS: Final = ("_key", "_end_us", "_rows", "_fired_rows", "_since_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWindows:
    """Windows in the order of their key, then of their end."""

    keys: Indices
    ends_us: Indices
    rows: Indices
    fired_rows: Indices
    since_us: Indices
    given: tuple[pa.Array, ...]
    """The last results of each aggregate, where they are wanted; null where there are none yet."""

    def taken(self, which: Indices) -> OpenWindows:
        """Some of the windows, in their order."""
        places = pa.array(which)
        return OpenWindows(
            keys=self.keys[which],
            ends_us=self.ends_us[which],
            rows=self.rows[which],
            fired_rows=self.fired_rows[which],
            since_us=self.since_us[which],
            given=tuple(column.take(places) for column in self.given),
        )

    def due(self, trigger: Early, log_time_us: int) -> Flags:
        """Which of them fire now."""
        fresh = self.rows - self.fired_rows
        if trigger.rows is not None:
            return fresh >= trigger.rows
        assert trigger.every_us is not None, "a trigger has one of both"
        return (fresh > 0) & (log_time_us - self.since_us >= trigger.every_us)

    def after_firing(self, which: Indices, log_time_us: int, results: list[pa.Array]) -> OpenWindows:
        """The same after some have fired with these results."""
        fired_rows, since_us = self.fired_rows.copy(), self.since_us.copy()
        fired_rows[which] = self.rows[which]
        since_us[which] = log_time_us
        mask = np.zeros(len(self.keys), dtype=bool)
        mask[which] = True
        given = tuple(
            pc.replace_with_mask(old, pa.array(mask), new)
            for old, new in zip(self.given, results[: len(self.given)], strict=True)
        )
        return replace(self, fired_rows=fired_rows, since_us=since_us, given=given)


def with_rows(
    known: OpenWindows, keys: Indices, ends_us: Indices, rows: Indices, log_time_us: int
) -> OpenWindows:
    """The windows after so many rows have come for windows of keys, each of which is named once."""
    places, is_known = Places(known.keys, known.ends_us).find(keys, ends_us)
    all_rows = known.rows.copy()
    all_rows[places[is_known]] += rows[is_known]
    news = np.flatnonzero(~is_known)
    together = OpenWindows(
        keys=np.concatenate([known.keys, keys[news]]),
        ends_us=np.concatenate([known.ends_us, ends_us[news]]),
        rows=np.concatenate([all_rows, rows[news]]),
        fired_rows=np.concatenate([known.fired_rows, np.zeros_like(news)]),
        since_us=np.concatenate([known.since_us, np.full_like(news, log_time_us)]),
        given=tuple(pa.concat_arrays([column, pa.nulls(len(news), column.type)]) for column in known.given),
    )
    return together.taken(np.lexsort((together.ends_us, together.keys)))


def read_open(table: pa.Table | None, layout: Layout) -> OpenWindows:
    """The open windows of a state; none at first."""
    schema = _schema(layout)
    if table is None:
        table = schema.empty_table()
    check_types(table, schema)
    keys, ends_us, rows, fired_rows, since_us = (np.asarray(in_one_piece(table[name])) for name in _NUMBERS)
    given = tuple(
        in_one_piece(table[field.name])
        if field.name in table.schema.names
        else pa.nulls(table.num_rows, field.type)
        for field in list(schema)[len(_NUMBERS) :]
    )
    return OpenWindows(
        keys=keys, ends_us=ends_us, rows=rows, fired_rows=fired_rows, since_us=since_us, given=given
    )


def write_open(windows: OpenWindows, layout: Layout) -> pa.Table:
    """The table of state."""
    numbers = (windows.keys, windows.ends_us, windows.rows, windows.fired_rows, windows.since_us)
    return pa.Table.from_arrays([*map(pa.array, numbers), *windows.given], schema=_schema(layout))


def _schema(layout: Layout) -> pa.Schema:
    given = layout.aggregates if layout.retract else ()
    return pa.schema(
        [
            *(pa.field(name, pa.int64()) for name in _NUMBERS),
            *(pa.field(f"_given_{one.name}", one.result_type(layout.rows)) for one in given),
        ]
    )
