"""Tables of DuckDB as a kind of store."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.duck.applier import DuckdbApplier, staging_of
from headrace.streams.sinks.duck.read import has_rows, read, refuse_missing
from headrace.streams.sinks.duck.swap import DuckdbSwap
from headrace.streams.sinks.staged import StagedWriter
from headrace.streams.sinks.table_rows import key_count
from headrace.streams.stores import DuckdbTable


class DuckdbStore:
    """See Store."""

    def writer(self, table: DuckdbTable, context: WriteContext) -> StagedWriter:
        """A writer of batches."""
        applier = DuckdbApplier(table, context.pipeline)
        return StagedWriter(table, context, applier, staging_of(table, context.pipeline))

    def swap(self, table: DuckdbTable, *, pipeline: str, swap_id: str) -> DuckdbSwap:
        """A swap of its rows."""
        return DuckdbSwap(table=table, pipeline=pipeline, swap_id=swap_id)

    def has_rows(self, table: DuckdbTable) -> bool:
        """Whether it is there and has a row."""
        return has_rows(table)

    def refuse_missing(self, table: DuckdbTable, *, pipeline: str) -> None:
        """Raise where there is no such file."""
        refuse_missing(table, pipeline=pipeline)

    def read(self, session: SparkSession, table: DuckdbTable, schema: StructType) -> DataFrame:
        """These columns of its rows."""
        return read(session, table, schema)

    def written_count(self, table: DuckdbTable, rows: DataFrame) -> int:
        """The last row of each key."""
        return key_count(rows, table)


STORE: Final = DuckdbStore()
