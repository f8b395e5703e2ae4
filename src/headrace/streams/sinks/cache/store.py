"""Caches as a kind of store."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.streams.sinks.cache.read import has_rows, read
from headrace.streams.sinks.cache.swap import CacheSwap
from headrace.streams.sinks.cache.writer import CacheWriter
from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.table_rows import key_count
from headrace.streams.stores import Cache


class CacheStore:
    """See Store."""

    def writer(self, table: Cache, context: WriteContext) -> CacheWriter:
        """A writer of batches."""
        return CacheWriter(table, context)

    def swap(self, table: Cache, *, pipeline: str, swap_id: str) -> CacheSwap:
        """A swap of its rows."""
        return CacheSwap(cache=table, pipeline=pipeline, swap_id=swap_id)

    def has_rows(self, table: Cache) -> bool:
        """Whether it is there, which it is with its first row."""
        return has_rows(table)

    def refuse_missing(self, table: Cache, *, pipeline: str) -> None:
        """One that is not there is one without rows."""

    def read(self, session: SparkSession, table: Cache, schema: StructType) -> DataFrame:
        """These columns of its rows."""
        return read(session, table, schema)

    def written_count(self, table: Cache, rows: DataFrame) -> int:
        """The last row of each key."""
        return key_count(rows, table)


STORE: Final = CacheStore()
