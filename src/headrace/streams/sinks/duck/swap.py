"""Swap a table of DuckDB for a staged one in the same file, in one transaction (see sinks/swaps.py).

The live table is dropped, and the staged one gets its name. What a user has added to the live one would go
with it, so a table with indexes, constraints or defaults is refused. Views find the new one by its name.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql.types import StructType

from headrace.errors import PipelineError
from headrace.failpoints import hit
from headrace.streams.sinks.duck.applier import ledger_of
from headrace.streams.sinks.duck.columns import quoted
from headrace.streams.sinks.duck.connection import Connection, opened
from headrace.streams.sinks.duck.table import ensure_table, is_there, types_of
from headrace.streams.sinks.records import DELETE_COLUMN
from headrace.streams.stores import DuckdbTable
from headrace.streams.topic import METADATA_COLUMN

_ADDED = """
SELECT 'the index ' || index_name FROM duckdb_indexes()
WHERE database_name = current_database() AND schema_name = current_schema() AND table_name = $name
UNION ALL
SELECT 'the constraint ' || constraint_text FROM duckdb_constraints()
WHERE database_name = current_database() AND schema_name = current_schema() AND table_name = $name
UNION ALL
SELECT 'the default of ' || column_name FROM duckdb_columns()
WHERE database_name = current_database() AND schema_name = current_schema() AND table_name = $name
    AND column_default IS NOT NULL
ORDER BY 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DuckdbSwap:
    """One swap of one table."""

    table: DuckdbTable
    pipeline: str
    swap_id: str

    @property
    def staging(self) -> DuckdbTable:
        """In the same file, so that one transaction can rename it."""
        return self.table.elsewhere(f"headrace_swap_{self.swap_id[:16]}")

    def check(self, schema: StructType) -> None:
        """Raise where rows don't fit, or where a swap would lose what belongs to the table."""
        columns = [field for field in schema.fields if field.name not in {DELETE_COLUMN, METADATA_COLUMN}]
        types = types_of(StructType(columns), pipeline=self.pipeline)
        with self._transaction("preparing to swap") as connection:
            ensure_table(connection, self.table, types, pipeline=self.pipeline)
            added = [text for (text,) in connection.execute(_ADDED, {"name": self._live}).fetchall()]
            if added:
                raise PipelineError(
                    f"the table {self.table.name} can't be swapped: {', '.join(added)} would be lost; drop "
                    "what it is for the time of the swap, or replay into another table with --into"
                )
            connection.commit()

    def make(self) -> None:
        """Create the staging table, with the columns of the live one."""
        with self._transaction("preparing to swap") as connection:
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {quoted(self.staging.table_name)} AS "
                f"FROM {quoted(self._live)} LIMIT 0"
            )
            connection.commit()

    def is_made(self) -> bool:
        """Whether the staging table is there."""
        with self._transaction("looking for the staged rows of") as connection:
            return is_there(connection, self.staging.table_name)

    def commit(self, query_id: str) -> None:
        """Swap, unless that is done."""
        live, staged = ledger_of(self.table, self.pipeline), ledger_of(self.staging, self.pipeline)
        with self._transaction("swapping") as connection:
            live.create(connection)
            if live.swap_id(connection) == self.swap_id:
                return
            if not is_there(connection, self.staging.table_name):
                raise PipelineError(
                    f"the staged rows of the table {self.table.name} are gone, so that it can't be swapped: "
                    "begin the replay anew"
                )
            live.take(connection, staged, query_id, str(uuid.uuid4()), self.swap_id)
            connection.execute(f"DROP TABLE IF EXISTS {quoted(self._live)}")
            connection.execute(
                f"ALTER TABLE {quoted(self.staging.table_name)} RENAME TO {quoted(self._live)}"
            )
            hit("replay.swap")
            connection.commit()
            hit("replay.swapped")

    @property
    def _live(self) -> str:
        return self.table.table_name

    @contextmanager
    def _transaction(self, what: str) -> Iterator[Connection]:
        """A transaction; what is not committed is rolled back when the file is closed."""
        with opened(self.table.path, f"{what} the table {self._live}") as connection:
            connection.begin()
            yield connection
