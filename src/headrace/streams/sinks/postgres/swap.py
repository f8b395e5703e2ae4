"""Swap the rows of a table of PostgreSQL for staged ones, in one transaction (see sinks/swaps.py).

The rows are deleted and inserted, rather than the tables renamed: a table that takes the place of another
has neither its rights, nor its views, nor its sequences. Other writers wait meanwhile; readers don't.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from psycopg import sql
from pyspark.sql.types import StructType

from headrace.errors import PipelineError
from headrace.failpoints import hit
from headrace.streams.sinks.ledger import NO_DIGEST, Batch
from headrace.streams.sinks.ledger_table import LEDGER_TABLE
from headrace.streams.sinks.postgres.connection import Connection, connect, explained
from headrace.streams.sinks.postgres.ledger import TableLedger
from headrace.streams.sinks.postgres.table import ensure_table, identifiers
from headrace.streams.sinks.records import DELETE_COLUMN
from headrace.streams.table import PostgresTable
from headrace.streams.topic import METADATA_COLUMN

_THERE = "SELECT to_regclass(%s) IS NOT NULL"
_REFERENCES = """
SELECT conrelid::regclass::text FROM pg_constraint
WHERE contype = 'f' AND confrelid = to_regclass(%s) AND conrelid <> confrelid ORDER BY 1
"""
_COLUMNS = """
SELECT attname FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
    AND attidentity = '' ORDER BY attnum
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSwap:
    """One swap of one table."""

    table: PostgresTable
    pipeline: str
    swap_id: str

    @property
    def staging(self) -> PostgresTable:
        """In the same schema, so that its ledger is in the same table."""
        return replace(self.table, table_name=f"headrace_swap_{self.swap_id[:16]}")

    def check(self, schema: StructType) -> None:
        """Raise where rows don't fit, or where other tables would lose rows."""
        columns = [field for field in schema.fields if field.name not in {DELETE_COLUMN, METADATA_COLUMN}]
        with self._connected("preparing to swap") as connection:
            ensure_table(connection, self.table, StructType(columns), pipeline=self.pipeline)
            referring = [name for (name,) in connection.execute(_REFERENCES, [_name(self.table)]).fetchall()]
            if referring:
                raise PipelineError(
                    f"the rows of the table {self.table.name} can't be swapped: {', '.join(referring)} "
                    "refers to them by a foreign key; drop that for the time of the swap, or replay into "
                    "another table with --into"
                )
            connection.commit()

    def make(self) -> None:
        """Create the staging table, with all that the live one has but its rows."""
        with self._connected("preparing to swap") as connection:
            connection.execute(
                sql.SQL("CREATE TABLE IF NOT EXISTS {} (LIKE {} INCLUDING ALL)").format(
                    _identifier(self.staging), _identifier(self.table)
                )
            )
            connection.commit()

    def is_made(self) -> bool:
        """Whether the staging table is there."""
        with self._connected("looking for the staged rows of") as connection:
            return _is_there(connection, self.staging)

    def commit(self, query_id: str) -> None:
        """Swap. The staging table goes in the same transaction, so that it is done where it is gone."""
        with self._connected("swapping the rows of") as connection:
            if not _is_there(connection, self.staging):
                return
            self._take_over(connection, query_id)
            live, staging = _identifier(self.table), _identifier(self.staging)
            columns = [name for (name,) in connection.execute(_COLUMNS, [_name(self.staging)]).fetchall()]
            connection.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(live))
            connection.execute(sql.SQL("DELETE FROM {}").format(live))
            connection.execute(
                sql.SQL("INSERT INTO {0} ({2}) SELECT {2} FROM {1}").format(
                    live, staging, identifiers(columns)
                )
            )
            connection.execute(sql.SQL("DROP TABLE {}").format(staging))
            hit("replay.swap")
            connection.commit()
            hit("replay.swapped")

    def _take_over(self, connection: Connection, query_id: str) -> None:
        """Shut out whoever writes the live table, and give it the ledger of the staging table."""
        ledger = TableLedger(
            schema_name=self.table.schema_name, pipeline=self.pipeline, target=self.table.name
        )
        run = Batch(pipeline=self.pipeline, query_id=query_id, batch_id=0, digest=NO_DIGEST, is_first=True)
        ledger.create(connection)
        ledger.begin_run(connection, run, str(uuid.uuid4()))
        table = sql.Identifier(self.table.schema_name, LEDGER_TABLE)
        connection.execute(
            sql.SQL("DELETE FROM {} WHERE pipeline = %s AND target = %s").format(table),
            (self.pipeline, self.table.name),
        )
        moved = connection.execute(
            sql.SQL("UPDATE {} SET target = %s WHERE pipeline = %s AND target = %s").format(table),
            (self.table.name, self.pipeline, self.staging.name),
        )
        if not moved.rowcount:
            # Nothing was replayed. Others are shut out all the same.
            ledger.begin_run(connection, run, str(uuid.uuid4()))

    @contextmanager
    def _connected(self, what: str) -> Iterator[Connection]:
        """A connection; what is not committed is rolled back when it is closed."""
        with (
            explained(self.table.dsn, f"{what} the table {self.table.name}"),
            closing(connect(self.table.dsn)) as connection,
        ):
            yield connection


def _identifier(table: PostgresTable) -> sql.Identifier:
    return sql.Identifier(table.schema_name, table.table_name)


def _name(table: PostgresTable) -> str:
    """As `to_regclass` reads it."""
    return _identifier(table).as_string()


def _is_there(connection: Connection, table: PostgresTable) -> bool:
    row = connection.execute(_THERE, [_name(table)]).fetchone()
    return row is not None and bool(row[0])
