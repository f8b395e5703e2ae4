"""From the versions of a table's rows to the changes of the table: it takes to know what was there before.

A topic of versions says what a row is now, or that it is gone, and not what it was. So the current row of
each key is kept, and a version becomes the change from that to it. A version that says what is known already
changes nothing: records that were sent twice do no harm.

| column of the input | |
|---|---|
| the columns of the table | those of the key are there in any case |
| `_kind` | "upsert", "delete" (only the key counts) or "truncate" (all rows are gone) |
| `_changed_at` | when it happened |
| `_hash` | a hash of the key |
| `_is_for_all` | whether it comes to all buckets |

All versions of a micro-batch become one change of each key. A truncation empties the table of all that was
known, and of what came before it from the same partition, or from one with a lower name: where the order
matters, and it does, a topic with truncations has one partition.

A column that was not sent, because it is large and has not changed, keeps the value that is known (see
unavailable.py).

State: `rows`, the current rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import RESULTS, Arrivals, Step, Tables
from headrace.streams.changelog.slots import SlottedTables, hashes_of
from headrace.streams.changelog.unavailable import filled
from headrace.streams.changelog.zset import (
    CHANGED_AT,
    HASH,
    WEIGHT,
    WEIGHT_TYPE,
    newest_times,
    relaxed,
    row_codes,
    weighted,
    with_column,
    without,
)
from headrace.streams.topic import METADATA_COLUMN
from headrace.streams.windows.exact import in_one_piece
from headrace.streams.windows.runs import Flags, Indices, stacked

KIND: Final = "_kind"
UPSERT: Final = "upsert"
DELETE: Final = "delete"
TRUNCATE: Final = "truncate"
ROWS: Final = "rows"

IS_FOR_ALL: Final = "_is_for_all"
"""Whether a row comes to all buckets."""

_APART: Final = (KIND, IS_FOR_ALL, CHANGED_AT, HASH, METADATA_COLUMN)


def table_schema(rows: pa.Schema) -> pa.Schema:
    """The columns of the table, of rows that are its versions."""
    return pa.schema([pa.field(field.name, field.type) for field in rows if field.name not in _APART])


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentRows:
    """Steps a table that is kept current."""

    key: tuple[str, ...]

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        changed_at = pa.field(CHANGED_AT, rows.field(CHANGED_AT).type)
        return {RESULTS: pa.schema([*table_schema(rows), (WEIGHT, WEIGHT_TYPE), changed_at])}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        schema = table_schema(arrivals.rows.schema)
        rows, truncated_at = _after_truncation(relaxed(without(arrivals.rows, METADATA_COLUMN)))
        check_deletes(rows, self.key)
        is_truncated = truncated_at is not None
        if not rows.num_rows and not is_truncated:
            return Step(state={})
        opened = SlottedTables.open(state, {ROWS: schema}, hashes_of(rows), everything=is_truncated)
        kept = opened.kept[ROWS].combine_chunks()
        known = kept.slice(0, 0) if is_truncated else kept
        kinds: list[str] = rows[KIND].to_pylist()
        rows, unknown_count = filled(rows, known, key=self.key, names=schema.names, kinds=kinds)
        last = rows.take(pa.array(self._last(rows)))
        is_there = np.asarray(pc.equal(in_one_piece(last[KIND]), UPSERT)).astype(bool)
        added = last.filter(pa.array(is_there)).select(kept.schema.names)
        stays = ~self._is_among(kept, last) & (not is_truncated)
        results = self._changes(kept.filter(pa.array(~stays)), last, is_there, truncated_at)
        after = stacked([kept.filter(pa.array(stays)), added]) if results.num_rows else opened.kept[ROWS]
        return Step(
            state=opened.close({ROWS: after}),
            outputs={RESULTS: results.cast(self.output_schemas(arrivals.rows.schema)[RESULTS])},
            counts={"unavailable": unknown_count} if unknown_count else {},
        )

    def _last(self, rows: pa.Table) -> Indices:
        """Where the last version of each key is, in the order of the versions."""
        (codes,) = row_codes([rows], self.key)
        places = rows.num_rows - 1 - np.unique(codes[::-1], return_index=True)[1]
        return np.sort(places)

    def _is_among(self, kept: pa.Table, rows: pa.Table) -> Flags:
        """Of which kept rows there is a version."""
        kept_codes, codes = row_codes([kept, rows], self.key)
        return np.isin(kept_codes, codes)

    def _changes(
        self, gone: pa.Table, last: pa.Table, is_there: Flags, truncated_at: pa.Scalar | None
    ) -> pa.Table:
        """What goes and what comes, but for what comes as it was."""
        names = [name for name in gone.schema.names if name != HASH]
        come = last.filter(pa.array(is_there))
        gone_rows, come_rows = gone.select(names), come.select(names)
        gone_codes, come_codes = row_codes([gone_rows, come_rows], names)
        goes, comes = ~np.isin(gone_codes, come_codes), ~np.isin(come_codes, gone_codes)
        times = self._times(gone, last, truncated_at)
        gone_rows = with_column(weighted(gone_rows, -1), CHANGED_AT, times)
        come_rows = with_column(weighted(come_rows, 1), CHANGED_AT, come[CHANGED_AT])
        return pa.concat_tables([gone_rows.filter(pa.array(goes)), come_rows.filter(pa.array(comes))])

    def _times(self, gone: pa.Table, last: pa.Table, truncated_at: pa.Scalar | None) -> pa.Array:
        """When each row went: at the version that took its place, or else when all went."""
        gone_codes, codes = row_codes([gone, last], self.key)
        count = int(max(gone_codes.max(initial=-1), codes.max(initial=-1))) + 1
        times = newest_times(last[CHANGED_AT], codes, count).take(pa.array(gone_codes))
        return times if truncated_at is None else pc.fill_null(times, truncated_at)


def check_deletes(rows: pa.Table, key: Sequence[str]) -> None:
    """Raise where a delete has no value in a column of the key: what it deletes is not known."""
    is_delete = pc.equal(in_one_piece(rows[KIND]), DELETE)
    for name in key:
        if pc.any(pc.and_(is_delete, pc.is_null(in_one_piece(rows[name])))).as_py():
            raise PipelineError(
                f"a delete has no value for {name}, which the rows of the table are told apart by "
                f"({', '.join(key)}): describe the topic with the whole key, hr.topic(..., key={list(key)}), "
                "and leave its columns as they are"
            )


def _after_truncation(rows: pa.Table) -> tuple[pa.Table, pa.Scalar | None]:
    """The versions since all rows were gone, and when that was, if it was."""
    places: Sequence[int] = np.flatnonzero(pc.equal(rows[KIND], TRUNCATE).to_numpy()).tolist()
    if not places:
        return rows, None
    return rows.slice(places[-1] + 1), rows[CHANGED_AT][places[-1]]
