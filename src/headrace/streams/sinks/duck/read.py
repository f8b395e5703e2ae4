"""A table of DuckDB as a DataFrame, read by one task on an executor, which sees the file as the driver does.

Values travel by Arrow, by the types of the columns that are asked for: those that a pipeline returns, which
is what the table was written from (see columns.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from headrace.errors import PipelineError
from headrace.streams.sinks.duck.columns import quoted
from headrace.streams.sinks.duck.connection import opened
from headrace.streams.sinks.duck.table import is_there
from headrace.streams.stores import DuckdbTable

ROWS_MAX: Final = 10_000
"""How many rows are handed to Spark at once."""


def read(session: SparkSession, table: DuckdbTable, schema: StructType) -> DataFrame:
    """These columns of all rows, as they are when they are read."""
    # Spark can't take columns from Python whose names have dots.
    numbered = StructType(
        [StructField(f"c{number}", field.dataType) for number, field in enumerate(schema.fields)]
    )
    task = ReadTask(
        table=table, columns=tuple(schema.names), schema=pa.schema(to_arrow_schema(numbered, timezone="UTC"))
    )
    rows = session.range(0, 1, 1, 1).mapInArrow(task.run, numbered)
    return rows.select(
        *(F.col(number).alias(name) for number, name in zip(numbered.names, schema.names, strict=True))
    )


def has_rows(table: DuckdbTable) -> bool:
    """Whether the table is there and has a row."""
    if not table.path.exists():
        return False
    with opened(table.path, f"looking into the table {table.table_name}", read_only=True) as connection:
        if not is_there(connection, table.table_name):
            return False
        return connection.execute(f"SELECT 1 FROM {quoted(table.table_name)} LIMIT 1").fetchone() is not None  # noqa: S608 - quoted


def refuse_missing(table: DuckdbTable, *, pipeline: str) -> None:
    """Raise where there is no file: DuckDB would make one."""
    if not table.path.exists():
        raise PipelineError(f"pipeline {pipeline} can't be verified: there is no file {table.path} by now")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """Reads a table. Travels to an executor."""

    table: DuckdbTable
    columns: tuple[str, ...]
    schema: pa.Schema

    def run(self, shares: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows of the table, for the one row that it is given."""
        if sum(share.num_rows for share in shares) == 0:
            return
        names = ", ".join(map(quoted, self.columns))
        name = self.table.table_name
        with opened(self.table.path, f"reading the table {name}", read_only=True) as connection:
            found = connection.execute(f"SELECT {names} FROM {quoted(name)}").to_arrow_reader(ROWS_MAX)  # noqa: S608 - quoted
            assert found is not None, "a SELECT has a result"
            for rows in found:
                table = pa.Table.from_batches([rows]).rename_columns(self.schema.names)
                yield from table.cast(self.schema).to_batches()
