"""Tables of PostgreSQL as a kind of store."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.postgres.read import has_rows, read
from headrace.streams.sinks.postgres.swap import PostgresSwap
from headrace.streams.sinks.postgres.writer import PostgresWriter
from headrace.streams.table import PostgresTable


class PostgresStore:
    """See Store."""

    def writer(self, table: PostgresTable, context: WriteContext) -> PostgresWriter:
        """A writer of batches."""
        return PostgresWriter(table, context)

    def swap(self, table: PostgresTable, *, pipeline: str, swap_id: str) -> PostgresSwap:
        """A swap of its rows."""
        return PostgresSwap(table=table, pipeline=pipeline, swap_id=swap_id)

    def has_rows(self, table: PostgresTable) -> bool:
        """Whether it is there and has a row."""
        return has_rows(table)

    def refuse_missing(self, table: PostgresTable, *, pipeline: str) -> None:
        """Reading it says so by itself."""

    def read(self, session: SparkSession, table: PostgresTable, schema: StructType) -> DataFrame:
        """These columns of its rows."""
        return read(session, table, schema)

    def written_count(self, table: PostgresTable, rows: DataFrame) -> int:
        """All of them are copied."""
        del table
        return rows.count()


STORE: Final = PostgresStore()
