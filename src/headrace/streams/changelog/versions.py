"""The history of a table: each version of a row, from when on and until when it was the current one.

This is what warehouses call a slowly changing dimension of type 2. The input is that of current.py. Results
are rows to write by the table's key and `valid_from`:

| column | |
|---|---|
| the columns of the table | as they were |
| `valid_from` | when the version came |
| `valid_to` | when another took its place, or the row was deleted; NULL while it is the current one |
| `_delete` | whether there is no such version after all, because it lasted no time |

All versions count, however they are cut into micro-batches. One that says what is known already is none. Of
several at one moment, as of one transaction, the last holds. Time does not go back: a version that claims to
be older than the one before it begins when that one did, and takes its place.

Versions are told by their places among the rows, and moved by Arrow: what is in them is not looked at.

State: `rows`, the current versions, with `valid_from`. Pure: no Spark, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.buckets.logic import RESULTS, Arrivals, Step, Tables
from headrace.streams.changelog.current import (
    DELETE,
    KIND,
    ROWS,
    TRUNCATE,
    UPSERT,
    check_deletes,
    table_schema,
)
from headrace.streams.changelog.slots import SlottedTables, hashes_of
from headrace.streams.changelog.unavailable import filled
from headrace.streams.changelog.zset import CHANGED_AT, HASH, relaxed, row_codes, with_column, without
from headrace.streams.topic import METADATA_COLUMN
from headrace.streams.windows.exact import in_one_piece
from headrace.streams.windows.runs import Flags, Indices, stacked

VALID_FROM: Final = "valid_from"
VALID_TO: Final = "valid_to"
DELETED: Final = "_delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersions:
    """Steps the history of a table."""

    key: tuple[str, ...]

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        time = rows.field(CHANGED_AT).type
        told = [(VALID_FROM, time), (VALID_TO, time), (DELETED, pa.bool_())]
        return {RESULTS: pa.schema([*table_schema(rows), *told])}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        rows = relaxed(without(arrivals.rows, METADATA_COLUMN))
        if not rows.num_rows:
            return Step(state={})
        check_deletes(rows, self.key)
        names = table_schema(rows.schema).names
        time = pa.field(VALID_FROM, rows.schema.field(CHANGED_AT).type)
        kinds: list[str] = rows[KIND].to_pylist()
        opened = SlottedTables.open(
            state,
            {ROWS: table_schema(rows.schema).append(time)},
            hashes_of(rows),
            everything=TRUNCATE in kinds,
        )
        kept = opened.kept[ROWS].combine_chunks()
        rows, unknown_count = filled(rows, kept, key=self.key, names=names, kinds=kinds)
        versions, is_touched = self._taken(kept, rows, names, kinds)
        both = stacked([kept.select([*names, HASH]), rows.select([*names, HASH])]).combine_chunks()
        touched = versions.current_rows(both, time.type).select(kept.schema.names)
        after = stacked([kept.filter(pa.array(~is_touched)), touched])
        return Step(
            state=opened.close({ROWS: after if versions.written else opened.kept[ROWS]}),
            outputs={RESULTS: versions.results(both.select(names), time.type)},
            counts={"unavailable": unknown_count} if unknown_count else {},
        )

    def _taken(
        self, kept: pa.Table, rows: pa.Table, names: list[str], kinds: list[str]
    ) -> tuple[_Versions, Flags]:
        """The versions after these rows were taken in, and which of the kept ones they are about."""
        kept_codes, codes = row_codes([kept, rows], self.key)
        kept_contents, contents = row_codes([kept, rows], names)
        is_touched = np.isin(kept_codes, codes) | (TRUNCATE in kinds)
        places = np.flatnonzero(is_touched)
        columns = (kept_codes[places], places, _whole(kept[VALID_FROM])[places], kept_contents[places])
        versions = _Versions(
            current={
                code: _Version(place=place, came=came, content=content)
                for code, place, came, content in zip(*(each.tolist() for each in columns), strict=True)
            }
        )
        told = zip(kinds, codes.tolist(), _whole(rows[CHANGED_AT]).tolist(), contents.tolist(), strict=True)
        for place, (kind, code, at, content) in enumerate(told, start=kept.num_rows):
            if kind == UPSERT:
                versions.upsert(code, _Version(place=place, came=at, content=content))
            elif kind == DELETE:
                versions.end(code, at)
            else:
                versions.end_all(at)
        return versions, is_touched


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    place: int
    """Where its row is."""
    came: int
    content: int
    """A number that rows have in common which are equal in all columns."""
    ended: int | None = None
    lasted: bool = True


@dataclass(slots=True)
class _Versions:
    """The versions of the rows that are touched."""

    current: dict[int, _Version]
    """By the number of the key."""
    written: dict[tuple[int, int], _Version] = field(default_factory=dict)
    """What is to be written, by the number of the key and when the version came."""

    def upsert(self, code: int, version: _Version) -> None:
        """Take in what the row of a key is now."""
        before = self.current.get(code)
        if before is not None:
            if before.content == version.content:
                return
            version = replace(version, came=max(version.came, before.came))
            if version.came > before.came:
                self.end(code, version.came)
        self.current[code] = self.written[code, version.came] = version

    def end(self, code: int, at: int) -> None:
        """The row of a key is gone."""
        before = self.current.pop(code, None)
        if before is not None:
            ended = replace(before, ended=max(at, before.came), lasted=at > before.came)
            self.written[code, before.came] = ended

    def end_all(self, at: int) -> None:
        """All rows are gone."""
        for each in tuple(self.current):
            self.end(each, at)

    def current_rows(self, rows: pa.Table, time: pa.DataType) -> pa.Table:
        """Those that are current, of all rows."""
        found = self.current.values()
        came = pa.array([each.came for each in found], pa.int64()).cast(time)
        return with_column(rows.take(_places(each.place for each in found)), VALID_FROM, came)

    def results(self, rows: pa.Table, time: pa.DataType) -> pa.Table:
        """What is to be written, of all rows."""
        found = self.written.values()
        made = rows.take(_places(each.place for each in found))
        for name, times in (
            (VALID_FROM, [each.came for each in found]),
            (VALID_TO, [each.ended for each in found]),
        ):
            made = with_column(made, name, pa.array(times, pa.int64()).cast(time))
        return with_column(made, DELETED, pa.array([not each.lasted for each in found], pa.bool_()))


def _places(places: Iterable[int]) -> pa.Array:
    return pa.array(list(places), pa.int64())


def _whole(times: pa.ChunkedArray) -> Indices:
    """Times as whole numbers, which reach beyond the year 9999."""
    return np.asarray(pc.fill_null(in_one_piece(times).cast(pa.int64()), 0))
