"""Looks for texts in all columns of tables of PostgreSQL, whatever their types are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from psycopg import sql

from headrace.events.projections.connections import Connection
from headrace.events.projections.traces import Trace

COLUMNS: Final = """
SELECT nspname, relname, attname, atttypid = 'bytea'::regtype
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    JOIN pg_attribute ON attrelid = pg_class.oid
WHERE relkind IN ('r', 'm', 'p') AND NOT relispartition AND attnum > 0 AND NOT attisdropped
  AND (nspname = ANY(%s) OR nspname = %s AND relname IN ('effects', 'dead_letters'))
ORDER BY nspname, relname, attnum
"""
COUNT: Final = "count(*) FILTER (WHERE EXISTS (SELECT FROM unnest(%s::{type}[]) AS word WHERE {found} > 0))"
# What is not bytes is looked at as JSON, which says the same in arrays, documents and composite values.
IN_BYTES: Final = "position(word IN {column})"
IN_VALUE: Final = "strpos(to_jsonb({column})::text, word)"


def find_texts(
    connection: Connection, schemas: Sequence[str], control: str, texts: Sequence[str]
) -> Iterator[Trace]:
    """Where texts stand in all tables of some schemas, and in those of effects and dead letters."""
    in_bytes, in_values = [each.encode() for each in _spelt(texts)], [_quoted(each) for each in _spelt(texts)]
    rows = connection.execute(COLUMNS, (list(schemas), control)).fetchall()
    for (schema, table), found in groupby(rows, key=lambda row: (row[0], row[1])):
        columns = [(name, is_bytes) for _, _, name, is_bytes in found]
        counted = sql.SQL(", ").join(_counted(name, is_bytes=is_bytes) for name, is_bytes in columns)
        values = [in_bytes if is_bytes else in_values for _, is_bytes in columns]
        question = sql.SQL("SELECT {} FROM {}").format(counted, sql.Identifier(schema, table))
        counts = connection.execute(question, values).fetchone() or ()
        for (name, _), count in zip(columns, counts, strict=True):
            if count:
                yield Trace(table=f"{schema}.{table}", column=name, row_count=count)


def _counted(column: str, *, is_bytes: bool) -> sql.Composed:
    found = sql.SQL(IN_BYTES if is_bytes else IN_VALUE).format(column=sql.Identifier(column))
    return sql.SQL(COUNT).format(type=sql.SQL("bytea" if is_bytes else "text"), found=found)


def _spelt(texts: Sequence[str]) -> list[str]:
    """As they are, and as documents have them."""
    return sorted({way for text in texts for way in (text, _quoted(text), json.dumps(text)[1:-1])})


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
