"""Search indexes in a directory as a kind of store."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.errors import PipelineError
from headrace.search import layout
from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.search.read import has_rows, read
from headrace.streams.sinks.search.swap import IndexSwap
from headrace.streams.sinks.search.writer import IndexWriter
from headrace.streams.sinks.table_rows import key_count
from headrace.streams.stores import EmbeddedIndex


class IndexStore:
    """See Store."""

    def writer(self, table: EmbeddedIndex, context: WriteContext) -> IndexWriter:
        """A writer of batches."""
        return IndexWriter(table, context)

    def swap(self, table: EmbeddedIndex, *, pipeline: str, swap_id: str) -> IndexSwap:
        """A swap of its rows."""
        return IndexSwap(table=table, pipeline=pipeline, swap_id=swap_id)

    def has_rows(self, table: EmbeddedIndex) -> bool:
        """Whether it is there and has a row."""
        return has_rows(table)

    def refuse_missing(self, table: EmbeddedIndex, *, pipeline: str) -> None:
        """Raise where there is none in the directory."""
        if layout.place(table.path) is None:
            raise PipelineError(
                f"pipeline {pipeline} can't be verified: there is no search index in {table.path} by now"
            )

    def read(self, session: SparkSession, table: EmbeddedIndex, schema: StructType) -> DataFrame:
        """These columns of its rows."""
        return read(session, table, schema)

    def written_count(self, table: EmbeddedIndex, rows: DataFrame) -> int:
        """The last of each key is staged."""
        return key_count(rows, table)


STORE: Final = IndexStore()
