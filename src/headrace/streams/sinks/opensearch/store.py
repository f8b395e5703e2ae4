"""Indexes of OpenSearch and Elasticsearch as a kind of store."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.errors import PipelineError
from headrace.search.served import ServedIndex as OpenIndex
from headrace.search.server import Server, connected
from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.opensearch import place
from headrace.streams.sinks.opensearch.read import read, refresh
from headrace.streams.sinks.opensearch.swap import ServedSwap
from headrace.streams.sinks.opensearch.writer import ServedWriter
from headrace.streams.sinks.table_rows import key_count
from headrace.streams.stores import ServedIndex


class ServedStore:
    """See Store."""

    def writer(self, table: ServedIndex, context: WriteContext) -> ServedWriter:
        """A writer of batches."""
        return ServedWriter(table, context)

    def swap(self, table: ServedIndex, *, pipeline: str, swap_id: str) -> ServedSwap:
        """A swap of its rows."""
        return ServedSwap(table=table, pipeline=pipeline, swap_id=swap_id)

    def has_rows(self, table: ServedIndex) -> bool:
        """Whether it is there and has a row."""
        with OpenIndex(table.url, table.index, server=(server := Server(table.url))) as index:
            if place.find(server, table.index) is None:
                return False
            refresh(server, table.index)
            return index.count() > 0

    def refuse_missing(self, table: ServedIndex, *, pipeline: str) -> None:
        """Raise where there is none on the server."""
        with connected(table.url) as server:
            if place.find(server, table.index) is None:
                raise PipelineError(
                    f"pipeline {pipeline} can't be verified: there is no index {table.index} by now"
                )

    def read(self, session: SparkSession, table: ServedIndex, schema: StructType) -> DataFrame:
        """These columns of its rows."""
        return read(session, table, schema)

    def written_count(self, table: ServedIndex, rows: DataFrame) -> int:
        """The last of each key is written."""
        return key_count(rows, table)


STORE: Final = ServedStore()
