"""Apply batches to a table of DuckDB, each in one transaction with the ledger's entry: the driver's side.

FILE.headrace/<pipeline>/<table>/<run>/    the batch's rows until they are in the table
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.streams.sinks.duck import statements
from headrace.streams.sinks.duck.connection import Connection, opened
from headrace.streams.sinks.duck.ledger import Run, TableLedger
from headrace.streams.sinks.duck.table import ensure_table, has_other_columns, is_there, types_of
from headrace.streams.sinks.ledger import Batch
from headrace.streams.sinks.lost import lost
from headrace.streams.sinks.records import DELETE_COLUMN
from headrace.streams.stores import DuckdbTable


def staging_of(table: DuckdbTable, pipeline: str) -> Path:
    """Where a batch's rows wait, in a directory for each run."""
    return table.path.with_name(f"{table.path.name}.headrace") / pipeline / quote(table.table_name, safe="")


def ledger_of(table: DuckdbTable, pipeline: str) -> TableLedger:
    """What was written to the table by the pipeline. A file may be moved, so its name is not part of it."""
    return TableLedger(pipeline=pipeline, target=table.table_name, place=f"the {table.noun} {table.name}")


class DuckdbApplier:
    """See Applier."""

    def __init__(self, table: DuckdbTable, pipeline: str) -> None:
        self._table = table
        self._pipeline = pipeline
        self._ledger = ledger_of(table, pipeline)
        self._types: dict[str, str] = {}
        self._has_deletes = False
        self._run: Run | None = None

    def settle(self, schema: StructType) -> pa.Schema:
        """What the rows' columns become. The table is made when the run begins, unless it was lost."""
        columns = StructType([field for field in schema.fields if field.name != DELETE_COLUMN])
        self._types = types_of(columns, pipeline=self._pipeline)
        self._has_deletes = DELETE_COLUMN in schema.names
        return pa.schema(to_arrow_schema(schema, timezone="UTC"))

    def begin_run(self, batch: Batch) -> None:
        """Shut out all earlier runs, and make the table if it is missing."""
        with opened(self._table.path, f"preparing the table {self._table.table_name}") as connection:
            connection.begin()
            self._ledger.create(connection)
            has_table = is_there(connection, self._table.table_name)
            self._run = self._ledger.begin_run(connection, batch, str(uuid.uuid4()), has_table=has_table)
            ensure_table(connection, self._table, self._types, pipeline=self._pipeline)
            connection.commit()

    def is_written(self, batch: Batch) -> bool:
        """Whether the batch is there."""
        with opened(self._table.path, f"looking into the table {self._table.table_name}") as connection:
            return self._is_written(connection, batch)

    def apply(self, batch: Batch, files: Sequence[Path]) -> None:
        """Upsert the files' rows by key, and write the ledger's entry."""
        with opened(self._table.path, f"writing to the table {self._table.table_name}") as connection:
            connection.begin()
            if self._is_written(connection, batch):
                return
            for statement in self._upsert(connection) if files else ():
                connection.execute(statement, {"files": [str(file) for file in files]})
            self._ledger.write(connection, batch)
            connection.commit()

    def close(self) -> None:
        """The file is open only while a batch is written."""

    def _upsert(self, connection: Connection) -> list[str]:
        """By which the rows get in. Somebody may have changed the table since the last batch."""
        name = self._table.table_name
        if not is_there(connection, name):
            raise lost(self._pipeline, self._ledger.place, "there is no such table any more")
        return statements.upsert(
            name,
            list(self._types),
            self._table.key,
            deletes=self._has_deletes,
            has_others=has_other_columns(connection, name, self._types),
        )

    def _is_written(self, connection: Connection, batch: Batch) -> bool:
        assert self._run is not None, "a run has begun before its first batch"
        return self._ledger.is_written(connection, batch, self._run)
