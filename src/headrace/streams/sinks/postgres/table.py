"""A table of PostgreSQL as rows need it: created if it is missing, and checked if it is there."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql
from pyspark.sql.types import StructType

from headrace.errors import PipelineError
from headrace.streams.sinks.postgres.columns import Found, misfits, postgres_type
from headrace.streams.sinks.postgres.connection import Connection, is_there, lock_creation
from headrace.streams.table import PostgresTable

_COLUMNS = """
SELECT a.attname, regexp_replace(format_type(a.atttypid, a.atttypmod), '\\(.*?\\)', ''),
    a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
"""
_KEYS = """
SELECT array_agg(a.attname::text)
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL unnest(i.indkey[0:i.indnkeyatts - 1]) AS k(attnum)
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
WHERE n.nspname = %s AND c.relname = %s AND i.indisunique AND i.indisvalid AND i.indimmediate
    AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""


def ensure_table(connection: Connection, table: PostgresTable, schema: StructType, *, pipeline: str) -> None:
    """Create the table if it is missing; else raise where the rows don't fit."""
    place = (table.schema_name, table.table_name)
    if not is_there(connection, *place):
        lock_creation(connection)
        if not is_there(connection, *place):
            connection.execute(_create(table, schema, pipeline))
            return
    columns = connection.execute(_COLUMNS, place).fetchall()
    found = [Found(name=name, type=kind, is_required=required) for name, kind, required in columns]
    reasons = misfits(schema, found, pipeline=pipeline)
    keys = [set(key) for (key,) in connection.execute(_KEYS, place).fetchall()]
    if table.key and set(table.key) not in keys:
        reasons.append(
            f"it has no unique index on ({', '.join(table.key)}): create one, or name the columns of another "
            "as the key"
        )
    if reasons:
        raise PipelineError(
            f"pipeline {pipeline} can't write the table {table.name}: {'; '.join(reasons)}. Change the table "
            "or what the pipeline returns, or write another table"
        )


def _create(table: PostgresTable, schema: StructType, pipeline: str) -> sql.Composed:
    lines: list[sql.Composable] = [
        sql.SQL("{} {}").format(
            sql.Identifier(field.name),
            # One of a few names that columns.py knows.
            sql.SQL(postgres_type(field.name, field.dataType, pipeline=pipeline)),
        )
        for field in schema.fields
    ]
    if table.key:
        lines.append(sql.SQL("PRIMARY KEY ({})").format(identifiers(table.key)))
    return sql.SQL("CREATE TABLE {} ({})").format(
        sql.Identifier(table.schema_name, table.table_name), sql.SQL(", ").join(lines)
    )


def identifiers(names: Sequence[str]) -> sql.Composed:
    """Quoted names, with commas between them."""
    return sql.SQL(", ").join(map(sql.Identifier, names))
