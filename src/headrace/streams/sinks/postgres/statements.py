"""The statements by which a share gets into its table. No I/O.

Rows to be appended are copied straight into the table. Rows to be upserted are copied into a temporary table
first, each with its number; the last row of each key counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from psycopg import sql

from headrace.streams.sinks.postgres.table import identifiers
from headrace.streams.sinks.records import DELETE_COLUMN
from headrace.streams.table import PostgresTable

NUMBER_COLUMN: Final = "_headrace_number"

_SHARE: Final = sql.Identifier("pg_temp", "headrace_share")


def copy_rows(table: PostgresTable, columns: Sequence[str]) -> sql.Composed:
    """Take rows from the connection into the table."""
    return _copy(sql.Identifier(table.schema_name, table.table_name), columns)


def copy_share(columns: Sequence[str]) -> sql.Composed:
    """Take rows from the connection into the temporary table."""
    return _copy(_SHARE, columns)


def create_share(table: PostgresTable, columns: Sequence[str]) -> sql.Composed:
    """Make the temporary table, with the types of the table and none of its constraints."""
    return sql.SQL(
        "CREATE TEMPORARY TABLE headrace_share ON COMMIT DROP AS "
        "SELECT {columns}, false AS {delete}, 0::bigint AS {number} FROM {table} WITH NO DATA"
    ).format(
        columns=identifiers(columns),
        delete=sql.Identifier(DELETE_COLUMN),
        number=sql.Identifier(NUMBER_COLUMN),
        table=sql.Identifier(table.schema_name, table.table_name),
    )


def delete_rows(table: PostgresTable) -> sql.Composed:
    """Delete the rows whose last word is to go."""
    matches = sql.SQL(" AND ").join(
        sql.SQL("kept.{0} = last.{0}").format(sql.Identifier(key)) for key in table.key
    )
    return sql.SQL(
        "DELETE FROM {table} AS kept USING ({last}) AS last WHERE last.{delete} AND {matches}"
    ).format(
        table=sql.Identifier(table.schema_name, table.table_name),
        last=_last(table),
        delete=sql.Identifier(DELETE_COLUMN),
        matches=matches,
    )


def upsert_rows(table: PostgresTable, columns: Sequence[str]) -> sql.Composed:
    """Insert the others, or let them take the place of what is there."""
    others = [name for name in columns if name not in table.key]
    changes = sql.SQL(", ").join(
        sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others
    )
    action = sql.SQL("UPDATE SET {}").format(changes) if others else sql.SQL("NOTHING")
    return sql.SQL(
        "INSERT INTO {table} ({columns}) SELECT {columns} FROM ({last}) AS last "
        "WHERE last.{delete} IS NOT TRUE ON CONFLICT ({key}) DO {action}"
    ).format(
        table=sql.Identifier(table.schema_name, table.table_name),
        columns=identifiers(columns),
        last=_last(table),
        delete=sql.Identifier(DELETE_COLUMN),
        key=identifiers(table.key),
        action=action,
    )


def _last(table: PostgresTable) -> sql.Composed:
    return sql.SQL("SELECT DISTINCT ON ({key}) * FROM {share} ORDER BY {key}, {number} DESC").format(
        key=identifiers(table.key), share=_SHARE, number=sql.Identifier(NUMBER_COLUMN)
    )


def _copy(target: sql.Composable, columns: Sequence[str]) -> sql.Composed:
    return sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(target, identifiers(columns))
