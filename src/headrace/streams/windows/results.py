"""The rows that windows give: results, and rows that came too late.

| results | |
|---|---|
| the columns of `by` | the key |
| `window` | struct<start, end> |
| one for each aggregate | |
| `firing` | "early", "on_time" or "late" |
| `retracted` | only where changes are retracted: whether the row takes back one that was given before |

| late rows | |
|---|---|
| the row's own columns | those with one of the names below give way |
| `window` | the last window that it belongs to; NULL where it has no event time |
| `late_by_ms` | how far the window's end is behind the watermark |
| `watermark` | the one by which the row was late |
| `reason` | "late", or "no event time" |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import LATE
from headrace.streams.time.bounds import BEGINNING_US, END_US, EVENT_TIME_US_MAX, EVENT_TIME_US_MIN
from headrace.streams.windows.aggregate import Aggregate, Partials
from headrace.streams.windows.exact import column_type, in_one_piece
from headrace.streams.windows.late import Drop, LatePolicy, after_all
from headrace.streams.windows.runs import Flags, Indices

WATERMARK: Final = "watermark"
"""The table of state in which the watermark is tracked."""
EARLY: Final = "early"
ON_TIME: Final = "on_time"
LATE_FIRING: Final = "late"
LATE_REASON: Final = "late"
NO_EVENT_TIME: Final = "no event time"

Names = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns of an operator's results, late rows and partials, for rows of a schema."""

    rows: pa.Schema
    by: tuple[str, ...]
    time: pa.DataType
    """The type of times in results."""
    aggregates: tuple[Aggregate, ...]
    retract: bool = False

    @property
    def results(self) -> pa.Schema:
        """The columns of results."""
        fields = [pa.field(name, column_type(self.rows, name)) for name in self.by]
        fields.append(pa.field("window", _window_type(self.time)))
        fields += [pa.field(one.name, one.result_type(self.rows)) for one in self.aggregates]
        fields.append(pa.field("firing", pa.string()))
        if self.retract:
            fields.append(pa.field("retracted", pa.bool_()))
        names = [field.name for field in fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise PipelineError(
                f"two columns of the results would be called {twice[0]!r}: rename one of them"
            )
        return pa.schema(fields)

    @property
    def late(self) -> pa.Schema:
        """The columns of late rows."""
        added = [
            pa.field("window", _window_type(self.time)),
            pa.field("late_by_ms", pa.int64()),
            pa.field("watermark", self.time),
            pa.field("reason", pa.string()),
        ]
        names = {field.name for field in added}
        return pa.schema([field for field in self.rows if field.name not in names] + added)

    def partial_fields(self) -> list[pa.Field]:
        """The columns of state in which partials are kept."""
        return [field for aggregate in self.aggregates for field in self._fields(aggregate)]

    def read_partials(self, state: pa.Table) -> list[Partials]:
        """Each aggregate's partials; NULL where the state was written before there was the aggregate."""
        return [
            tuple(_column(state, field) for field in self._fields(aggregate)) for aggregate in self.aggregates
        ]

    def results_table(
        self, keys: pa.Table, windows: pa.Array, partials: Sequence[Partials], firing: Names
    ) -> pa.Table:
        """Results, none of them retracted."""
        finished = [one.finish(p) for one, p in zip(self.aggregates, partials, strict=True)]
        columns = [*keys.select(list(self.by)).columns, windows, *finished, pa.array(firing, pa.string())]
        if self.retract:
            columns.append(pa.array(np.zeros(len(firing), dtype=bool)))
        return pa.Table.from_arrays(columns, schema=self.results)

    def _fields(self, aggregate: Aggregate) -> list[pa.Field]:
        kinds = aggregate.partial_types(self.rows)
        return [pa.field(f"_{aggregate.name}_{i}", kind) for i, kind in enumerate(kinds)]


def time_type(rows: pa.Schema, time: str) -> pa.DataType:
    """The type of event times, in microseconds."""
    found = column_type(rows, time)
    if not pa.types.is_timestamp(found):
        raise PipelineError(f"the event time {time!r} is a column of {found}: it must be a timestamp")
    return pa.timestamp("us", found.tz)


def times_us(rows: pa.Table, time: str) -> tuple[Indices, Flags]:
    """The event times in microseconds, and which rows have one; one that no calendar has does not count."""
    column = in_one_piece(rows[time])
    numbers = pc.fill_null(column.cast(time_type(rows.schema, time), safe=False).view(pa.int64()), 0)
    found_us = np.asarray(numbers, dtype=np.int64)
    is_possible = (found_us >= EVENT_TIME_US_MIN) & (found_us <= EVENT_TIME_US_MAX)
    return np.where(is_possible, found_us, 0), is_possible & np.asarray(column.is_valid(), dtype=bool)


def window_column(start_us: Indices, end_us: Indices, time: pa.DataType) -> pa.Array:
    """The column `window`."""
    bounds = [pa.array(values, pa.int64()).view(time) for values in (start_us, end_us)]
    return pa.StructArray.from_arrays(bounds, fields=list(_window_type(time)))


def firing_names(is_late: Flags, is_early: Flags) -> Names:
    """Which firing each result is of."""
    return np.where(is_early, EARLY, np.where(is_late, LATE_FIRING, ON_TIME))


def retracted(given: pa.Table) -> pa.Table:
    """Results as rows that take them back."""
    flags = pa.array(np.ones(given.num_rows, dtype=bool))
    return given.set_column(given.schema.get_field_index("retracted"), "retracted", flags)


def watermark_gauge(watermark_us: int) -> dict[str, int]:
    """The watermark as it is told in metrics, while it is a time."""
    return {"watermark_us": watermark_us} if BEGINNING_US < watermark_us < END_US else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRows:
    """Which of a micro-batch's rows came too late, and for which windows."""

    is_late: Flags
    has_time: Flags
    start_us: Indices
    end_us: Indices
    """Of the last window that a row belongs to; nothing where it is not late, or has no time."""
    watermark_us: int

    def outputs(self, rows: pa.Table, layout: Layout, policy: LatePolicy) -> dict[str, pa.Table]:
        """The output of late rows, if the policy has one and there are any."""
        which = np.flatnonzero(self.is_late | ~self.has_time)
        if isinstance(after_all(policy), Drop) or not len(which):
            return {}
        no_time = ~self.has_time[which]
        count = len(which)
        window = window_column(self.start_us[which], self.end_us[which], layout.time)
        mark = np.full(count, self.watermark_us, dtype=np.int64)
        added = {
            "window": pc.if_else(pa.array(no_time), pa.scalar(None, window.type), window),
            "late_by_ms": pa.array(
                (self.watermark_us - self.end_us[which]) // 1_000, pa.int64(), mask=no_time
            ),
            "watermark": pa.array(mark, pa.int64(), mask=mark == BEGINNING_US).view(layout.time),
            "reason": pa.array(np.where(no_time, NO_EVENT_TIME, LATE_REASON), pa.string()),
        }
        own = rows.take(pa.array(which))
        columns = [
            added.get(name, own[name] if name in own.schema.names else None) for name in layout.late.names
        ]
        return {LATE: pa.Table.from_arrays(columns, schema=layout.late)}

    def counts(self, policy: LatePolicy) -> dict[str, int]:
        """What is told in metrics; of each kind, where there is any."""
        late = int(np.count_nonzero(self.is_late & self.has_time))
        no_time = int(np.count_nonzero(~self.has_time))
        dropped = late + no_time if isinstance(after_all(policy), Drop) else 0
        told = {"late": late, "no_event_time": no_time, "dropped": dropped}
        return {name: count for name, count in told.items() if count}


def _window_type(time: pa.DataType) -> pa.DataType:
    return pa.struct([("start", time), ("end", time)])


def _column(state: pa.Table, field: pa.Field) -> pa.Array:
    if field.name not in state.schema.names:
        return pa.nulls(state.num_rows, field.type)
    return in_one_piece(state[field.name])
