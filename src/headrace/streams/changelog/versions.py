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

State: `rows`, the current versions, with `valid_from`. Pure: no Spark, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

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
from headrace.streams.changelog.unsent import UNAVAILABLE
from headrace.streams.changelog.zset import CHANGED_AT, HASH, relaxed, row_codes, without
from headrace.streams.topic import METADATA_COLUMN
from headrace.streams.windows.runs import stacked

VALID_FROM: Final = "valid_from"
VALID_TO: Final = "valid_to"
DELETED: Final = "_delete"

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersions:
    """Steps the history of a table."""

    key: tuple[str, ...]
    unavailable: str | None = UNAVAILABLE

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        time = rows.field(CHANGED_AT).type
        told = [(VALID_FROM, time), (VALID_TO, time), (DELETED, pa.bool_())]
        return {RESULTS: pa.schema([*table_schema(rows), *told])}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        rows = relaxed(without(arrivals.rows, METADATA_COLUMN))
        if not rows.num_rows:
            return Step(state={})
        check_deletes(rows, self.key)
        schema = table_schema(rows.schema)
        kept_schema = schema.append(pa.field(VALID_FROM, rows.schema.field(CHANGED_AT).type))
        kinds = rows[KIND].to_pylist()
        opened = SlottedTables.open(state, {ROWS: kept_schema}, hashes_of(rows), everything=TRUNCATE in kinds)
        kept = opened.kept[ROWS]
        kept_codes, codes = (each.tolist() for each in row_codes([kept, rows], self.key))
        versions = _Versions(
            names=tuple(schema.names),
            unavailable=self.unavailable,
            current=dict(zip(kept_codes, kept.to_pylist(), strict=True)),
        )
        for kind, code, row in zip(kinds, codes, rows.to_pylist(), strict=True):
            versions.take(kind, code, row)
        results = pa.Table.from_pylist(
            list(versions.changed.values()), self.output_schemas(rows.schema)[RESULTS]
        )
        after = pa.Table.from_pylist(list(versions.current.values()), kept.schema)
        return Step(
            state=opened.close({ROWS: stacked([after]) if versions.changed else kept}),
            outputs={RESULTS: results},
            counts={"unavailable": versions.unknown_count} if versions.unknown_count else {},
        )


@dataclass(slots=True)
class _Versions:
    """The versions of the rows that are touched."""

    names: tuple[str, ...]
    unavailable: str | None
    current: dict[int, Row]
    """By the number of the key."""
    changed: dict[tuple[int, Any], Row] = field(default_factory=dict)
    """What is to be written, by the number of the key and when the version came."""
    unknown_count: int = 0

    def take(self, kind: str, code: int, row: Row) -> None:
        """Take in what came next."""
        if kind == UPSERT:
            self._upsert(code, self._filled(code, row))
        elif kind == DELETE:
            self._close(code, row[CHANGED_AT])
        else:
            for each in tuple(self.current):
                self._close(each, row[CHANGED_AT])

    def _upsert(self, code: int, row: Row) -> None:
        at = row[CHANGED_AT]
        before = self.current.get(code)
        if before is not None:
            if all(_same(before[name], row[name]) for name in self.names):
                return
            at = max(at, before[VALID_FROM])
            if at > before[VALID_FROM]:
                self._close(code, at)
        own = {name: row[name] for name in self.names}
        self.current[code] = {**own, VALID_FROM: at, HASH: row[HASH]}
        self.changed[code, at] = {**own, VALID_FROM: at, VALID_TO: None, DELETED: False}

    def _close(self, code: int, at: Any) -> None:
        before = self.current.pop(code, None)
        if before is None:
            return
        came = before[VALID_FROM]
        own = {name: before[name] for name in self.names}
        ended = {VALID_TO: max(at, came), DELETED: at <= came}
        self.changed[code, came] = {**own, VALID_FROM: came, **ended}

    def _filled(self, code: int, row: Row) -> Row:
        """The row with the values that were not sent."""
        marks = {self.unavailable, (self.unavailable or "").encode()}
        missing = (
            [name for name in self.names if isinstance(row[name], str | bytes) and row[name] in marks]
            if self.unavailable
            else []
        )
        if not missing:
            return row
        before = self.current.get(code)
        self.unknown_count += len(missing) if before is None else 0
        return {**row, **{name: None if before is None else before[name] for name in missing}}


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) or (one != one and other != other)  # noqa: PLR0124 - only NaN is not itself
