"""What operators keep of a key, out of the tables that a checkpoint holds. Pure: no Spark, no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import PipelineError
from headrace.streams.buckets.tables import BY_KEY, OPERATOR_KEY, read_kept

_TIMERS = "_timers"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRow:
    """A row of an operator's state."""

    operator: str
    table: str
    row: Mapping[str, Any]


def parse_key(given: Sequence[str]) -> dict[str | None, str]:
    """A key as it is given on a command line: `c1`, or `card_id=c1` for each of its columns."""
    if len(given) == 1 and "=" not in given[0]:
        return {None: given[0]}
    parsed: dict[str | None, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise PipelineError(f"{each!r} is no part of a key: write COLUMN=VALUE for each of its columns")
        parsed[name] = value
    return parsed


def kept_rows(
    tables: Iterable[tuple[str, bytes | bytearray]], key: Mapping[str | None, str], *, limit: int
) -> list[KeptRow]:
    """The rows of the tables that belong to a key, or all where it is empty; `limit` at most."""
    found: list[KeptRow] = []
    for name, blob in tables:
        table = read_kept(blob, f"the pipeline ({name})")
        metadata = table.schema.metadata or {}
        by = json.loads(metadata.get(BY_KEY, b"[]"))
        if not by or not set(by) <= set(table.column_names):
            continue
        chosen = _of_key(table, by, key).slice(0, limit - len(found))
        operator = metadata[OPERATOR_KEY].decode()
        found += [KeptRow(operator=operator, table=name, row=_shown(row)) for row in chosen.to_pylist()]
        if len(found) == limit:
            break
    return found


def _of_key(table: pa.Table, by: Sequence[str], key: Mapping[str | None, str]) -> pa.Table:
    for name, value in key.items():
        if name is None and len(by) > 1:
            raise PipelineError(f"a key has the columns {', '.join(by)}: write COLUMN=VALUE for each of them")
        column = by[0] if name is None else name
        if column not in by:
            raise PipelineError(f"{column!r} is no column of a key: there are {', '.join(by)}")
        table = table.filter(pc.equal(table.column(column).cast(pa.string()), value))
    return table


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not the user's; timers as they were set."""
    shown = {name: value for name, value in row.items() if not name.startswith("_")}
    if row.get(_TIMERS):
        shown["timers"] = {each["name"]: each["due_us"] for each in row[_TIMERS]}
    return shown
