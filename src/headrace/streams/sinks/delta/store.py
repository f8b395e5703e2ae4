"""Delta tables as a kind of store."""

from __future__ import annotations

from typing import Final

from deltalake import DeltaTable as Found
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.errors import PipelineError
from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.delta.read import read
from headrace.streams.sinks.delta.swap import DeltaSwap
from headrace.streams.sinks.delta.writer import DeltaWriter
from headrace.streams.sinks.table_rows import key_count
from headrace.streams.table import DeltaTable


class DeltaStore:
    """See Store."""

    def writer(self, table: DeltaTable, context: WriteContext) -> DeltaWriter:
        """A writer of batches."""
        return DeltaWriter(table, context)

    def swap(self, table: DeltaTable, *, pipeline: str, swap_id: str) -> DeltaSwap:
        """A swap of its rows."""
        return DeltaSwap(table=table, pipeline=pipeline, swap_id=swap_id)

    def has_rows(self, table: DeltaTable) -> bool:
        """Whether it is there and has a row."""
        return Found.is_deltatable(str(table.path)) and bool(Found(table.path).file_uris())

    def refuse_missing(self, table: DeltaTable, *, pipeline: str) -> None:
        """Raise where there is none in the directory."""
        if not (table.path / "_delta_log").is_dir():
            raise PipelineError(
                f"pipeline {pipeline} can't be verified: there is no Delta table in {table.path} by now"
            )

    def read(self, session: SparkSession, table: DeltaTable, schema: StructType) -> DataFrame:
        """These columns of its rows."""
        rows = read(session, table.path)
        # Delta says that there may be nulls within a value, where a pipeline may know that there are none.
        columns = schema.toNullable().fields
        return rows.select(*(rows[f"`{field.name}`"].cast(field.dataType) for field in columns))

    def written_count(self, table: DeltaTable, rows: DataFrame) -> int:
        """All of them; where files are merged, the last of each key."""
        return key_count(rows, table) if table.key else rows.count()


STORE: Final = DeltaStore()
