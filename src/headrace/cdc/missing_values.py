"""Asks a table for values that an update did not repeat."""

from __future__ import annotations

from psycopg import sql
from psycopg.errors import UndefinedColumn, UndefinedTable

from headrace.cdc.chunks import parse_rows
from headrace.cdc.connection import Connection, explained
from headrace.cdc.last_values import MissingValues

Values = dict[str, bytes | None]


def read_missing(connection: Connection, dsn: str, missing: MissingValues) -> Values | None:
    """The texts that the row has now; None where it is gone, or the column or the table is."""
    relation = missing.relation
    if not missing.key or not all(isinstance(value, bytes) for value in missing.key.values()):
        return None
    conditions = [
        sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value.decode()))
        for name, value in missing.key.items()
        if isinstance(value, bytes)
    ]
    # As ONLY would, which gives nothing of a table with partitions: rows of tables that inherit from it are
    # others, whatever their keys.
    query = sql.SQL(
        "COPY (SELECT {} FROM {} WHERE {} AND (tableoid = {oid} OR (SELECT relkind = 'p' FROM "
        "pg_catalog.pg_class WHERE oid = {oid}))) TO STDOUT"
    ).format(
        sql.SQL(", ").join(sql.Identifier(name) for name in missing.columns),
        sql.Identifier(relation.schema, relation.name),
        sql.SQL(" AND ").join(conditions),
        oid=sql.Literal(relation.oid),
    )
    with explained(dsn, f"reading a row of {relation.schema}.{relation.name}"):
        try:
            with connection.cursor() as cursor, cursor.copy(query) as copy:
                rows = [row for block in copy for row in parse_rows(bytes(block))]
        except (UndefinedTable, UndefinedColumn):
            return None
    return dict(zip(missing.columns, rows[0], strict=True)) if rows else None
