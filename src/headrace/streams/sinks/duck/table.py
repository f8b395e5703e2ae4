"""A table of DuckDB as rows need it: created if it is missing, and checked if it is there."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from headrace.errors import PipelineError
from headrace.streams.sinks.duck import statements
from headrace.streams.sinks.duck.columns import Found, duckdb_type, misfits
from headrace.streams.sinks.duck.connection import Connection
from headrace.streams.stores import DuckdbTable

_THERE = """
SELECT count(*) FROM duckdb_tables()
WHERE database_name = current_database() AND schema_name = current_schema() AND table_name = ?
"""
_COLUMNS = """
SELECT column_name, data_type, NOT is_nullable AND column_default IS NULL FROM duckdb_columns()
WHERE database_name = current_database() AND schema_name = current_schema() AND table_name = ?
ORDER BY column_index
"""


def is_there(connection: Connection, table: str) -> bool:
    """Whether there is such a table."""
    row = connection.execute(_THERE, [table]).fetchone()
    return row is not None and row[0] > 0


def types_of(schema: StructType, *, pipeline: str) -> dict[str, str]:
    """The types that the columns get."""
    return {field.name: duckdb_type(field.name, field.dataType, pipeline=pipeline) for field in schema.fields}


def check_table(
    connection: Connection, table: DuckdbTable, types: Mapping[str, str], *, pipeline: str
) -> None:
    """Raise where rows don't fit a table that is there."""
    columns = connection.execute(_COLUMNS, [table.table_name]).fetchall()
    found = [Found(name=name, type=kind, is_required=bool(required)) for name, kind, required in columns]
    reasons = misfits(_as_written(connection, types), found)
    if reasons:
        raise PipelineError(
            f"pipeline {pipeline} can't write the table {table.name}: {'; '.join(reasons)}. Change the table "
            "or what the pipeline returns, or write another table"
        )


def has_other_columns(connection: Connection, table: str, types: Mapping[str, str]) -> bool:
    """Whether the table has more columns than these."""
    return len(connection.execute(_COLUMNS, [table]).fetchall()) > len(types)


def ensure_table(
    connection: Connection, table: DuckdbTable, types: Mapping[str, str], *, pipeline: str
) -> None:
    """Create the table if it is missing; else raise where the rows don't fit."""
    if is_there(connection, table.table_name):
        check_table(connection, table, types, pipeline=pipeline)
    else:
        connection.execute(statements.create_table(table.table_name, types))


def _as_written(connection: Connection, types: Mapping[str, str]) -> dict[str, str]:
    """The types in DuckDB's own words, in which it tells those of a table."""
    asked = ", ".join(f"typeof(CAST(NULL AS {kind}))" for kind in types.values())
    row = connection.execute(f"SELECT {asked}").fetchone()
    assert row is not None, "a SELECT without FROM has one row"
    return dict(zip(types, map(str, row), strict=True))
