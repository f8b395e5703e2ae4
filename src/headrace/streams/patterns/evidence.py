"""Matches as rows.

| | |
|---|---|
| the columns of `by` | the key |
| `start`, `end` | the times of its first row and its last; if it has waited until its time was over, that |
| `outcome` | "match"; "timed_out", where such attempts are asked for; "cut_off" in the output of that name |
| `evidence` | the rows that were taken, in their order: an array of struct<matched: the name, row: the row> |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.patterns.walk import Outcome
from headrace.streams.time.bounds import EVENT_TIME_US_MAX
from headrace.streams.topic import METADATA_COLUMN
from headrace.streams.windows.exact import column_type, in_one_piece
from headrace.streams.windows.runs import Indices

CUT_OFF: Final = "cut_off"
"""The output of attempts that reached their limit of rows."""
MADE_PREFIX: Final = "_argument_"
"""How columns are called that were made for an operator, and are not the user's."""
OUTCOME_NAMES: Final = {
    Outcome.MATCHED: "match",
    Outcome.TIMED_OUT: "timed_out",
    Outcome.CUT_OFF: "cut_off",
}
_OWN: Final = ("start", "end", "outcome", "evidence", "id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An attempt that is told of."""

    outcome: Outcome
    bits: tuple[int, ...]
    """Of the names by which rows were taken."""
    places: tuple[int, ...]
    """Of these rows."""


def own_names(rows: pa.Schema) -> list[str]:
    """The columns of rows that are the user's."""
    return [name for name in rows.names if name != METADATA_COLUMN and not name.startswith(MADE_PREFIX)]


def check_key(by: Sequence[str]) -> None:
    """Refuse a key that has a column of a match's own."""
    if clash := set(by).intersection(_OWN):
        raise PipelineError(f"hr.match makes the column {min(clash)} itself: rename the one in by")


def match_schema(rows: pa.Schema, by: Sequence[str], time: pa.DataType) -> pa.Schema:
    """The columns of matches."""
    check_key(by)
    row = pa.struct([pa.field(name, rows.field(name).type) for name in own_names(rows)])
    return pa.schema(
        [
            *(pa.field(name, column_type(rows, name)) for name in by),
            pa.field("start", time),
            pa.field("end", time),
            pa.field("outcome", pa.string()),
            pa.field("evidence", pa.list_(pa.struct([("matched", pa.string()), ("row", row)]))),
        ]
    )


def match_table(  # noqa: PLR0913 - each is given by name
    schema: pa.Schema,
    told: Sequence[Told],
    *,
    names: Sequence[str],
    rows: pa.Table,
    time_us: Indices,
    by: Sequence[str],
    within_us: int | None,
    is_until_over: bool,
) -> pa.Table:
    """Matches, of which `rows` has the rows that were taken, one match behind the other; each has some."""
    if not told:
        return schema.empty_table()
    lengths = np.asarray([len(each.places) for each in told], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    start_us = np.minimum.reduceat(time_us, starts)
    end_us = np.maximum.reduceat(time_us, starts)
    is_over = [
        each.outcome is Outcome.TIMED_OUT or (is_until_over and each.outcome is Outcome.MATCHED)
        for each in told
    ]
    if within_us is not None:
        deadline_us = np.minimum(time_us[starts] + within_us, EVENT_TIME_US_MAX)
        end_us = np.where(is_over, deadline_us, end_us)
    entry = schema.field("evidence").type.value_type
    row_type = entry.field("row").type
    row = pa.StructArray.from_arrays(
        [in_one_piece(rows[each.name]).cast(each.type) for each in row_type], fields=list(row_type)
    )
    matched = pa.array([names[bit] for each in told for bit in each.bits], pa.string())
    entries = pa.StructArray.from_arrays([matched, row], fields=list(entry))
    offsets = pa.array(np.append(starts, len(time_us)), pa.int32())
    time = schema.field("start").type
    columns = [
        *(in_one_piece(rows[name].take(pa.array(starts))) for name in by),
        pa.array(start_us, pa.int64()).view(time),
        pa.array(end_us, pa.int64()).view(time),
        pa.array([OUTCOME_NAMES[each.outcome] for each in told], pa.string()),
        pa.ListArray.from_arrays(offsets, entries),
    ]
    return pa.Table.from_arrays(columns, schema=schema)
