"""A search index as a DataFrame, read by one task on an executor, as of one commit.

Rows travel as the JSON that the index keeps of them; Spark reads it by the types of the columns that are
asked for, which are those that it was written from (see sinks/index_rows.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.search import layout
from headrace.search.embedded import EmbeddedIndex as OpenIndex
from headrace.streams.sinks.index_rows import from_documents
from headrace.streams.stores import EmbeddedIndex

ROWS_MAX: Final = 10_000
"""How many rows are handed to Spark at once."""
AT_ONCE_MAX: Final = 100_000
"""How many rows are looked up at once; a larger index is read in pieces."""


def read(
    session: SparkSession, table: EmbeddedIndex, schema: StructType, *, at_once: int = AT_ONCE_MAX
) -> DataFrame:
    """These columns of all rows, as they are when they are read."""
    task = ReadTask(path=table.path, at_once=at_once)
    return from_documents(session.range(0, 1, 1, 1).mapInArrow(task.run, "row string"), schema)


def has_rows(table: EmbeddedIndex) -> bool:
    """Whether the index is there and has a row."""
    if layout.place(table.path) is None:
        return False
    with OpenIndex(table.path) as index:
        return index.count() > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """Reads an index. Travels to an executor."""

    path: Path
    at_once: int

    def run(self, shares: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows of the index, for the one row that it is given."""
        if sum(share.num_rows for share in shares) == 0:
            return
        with OpenIndex(self.path) as index:
            texts = index.texts(self.at_once)
            while rows := list(islice(texts, ROWS_MAX)):
                yield pa.RecordBatch.from_pydict({"row": pa.array(rows, pa.string())})
