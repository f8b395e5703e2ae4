"""A cache as a DataFrame, read by one task on an executor.

Redis answers part by part, so that it can do other work in between. A row that is there all the time is among
the answers, perhaps twice; one that comes, goes or changes meanwhile may be there as it was or as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import StructType

from headrace.errors import PipelineError
from headrace.streams.sinks.cache.connection import connected
from headrace.streams.sinks.cache.task import FIELD, VALUE
from headrace.streams.sinks.cache.values import columns_of
from headrace.streams.stores import Cache

ROWS_MAX: Final = 1000
"""About how many rows are asked for at once."""
SHOWN_BYTES_MAX: Final = 100
"""How much of a value an error shows."""


def read(session: SparkSession, cache: Cache, schema: StructType) -> DataFrame:
    """These columns of all rows."""
    task = ReadTask(cache=cache)
    pairs = session.range(0, 1, 1, 1).mapInArrow(task.run, f"{FIELD} string, {VALUE} string")
    return pairs.dropDuplicates([FIELD]).select(*columns_of(F.col(VALUE), schema))


def has_rows(cache: Cache) -> bool:
    """Whether the cache is there: a hash without fields is not."""
    with connected(cache.url, f"looking into the cache {cache.name}") as client:
        return bool(client.exists(cache.hash_name))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """Reads a cache. Travels to an executor."""

    cache: Cache

    def run(self, shares: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All fields with their values, for the one row that it is given."""
        if sum(share.num_rows for share in shares) == 0:
            return
        with connected(self.cache.url, f"reading the cache {self.cache.name}") as client:
            cursor = 0
            while True:
                cursor, found = client.hscan(self.cache.hash_name, cursor, count=ROWS_MAX)
                # Redis answers with a list where only fields are asked for.
                if isinstance(found, dict) and found:
                    self._refuse_foreign(cast("Mapping[bytes, bytes]", found))
                    columns = (list(found.keys()), list(found.values()))
                    arrays = [pa.array(column, pa.binary()).cast(pa.string()) for column in columns]
                    yield pa.RecordBatch.from_arrays(arrays, names=[FIELD, VALUE])
                if cursor == 0:
                    return

    def _refuse_foreign(self, found: Mapping[bytes, bytes]) -> None:
        """Raise for what no pipeline has written: nobody could say of which row it takes the place."""
        for name, value in found.items():
            if not _is_row(name, value):
                raise PipelineError(
                    f"the field {name.decode(errors='replace')} of the cache {self.cache.name} holds what no "
                    f"pipeline has written, {value[:SHOWN_BYTES_MAX].decode(errors='replace')!r}: remove it "
                    "with HDEL. If a row belongs there, `headrace views repair` then writes it anew"
                )


def _is_row(name: bytes, value: bytes) -> bool:
    try:
        name.decode()
        return isinstance(json.loads(value), dict)
    except ValueError:
        return False
