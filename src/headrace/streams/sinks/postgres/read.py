"""A table of PostgreSQL as a DataFrame, read by one task on an executor, in one statement.

Values travel as PostgreSQL's own texts, and Spark reads them by the types of the columns that are asked for:
those that a pipeline returns, which is what the table was written from (see columns.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Final

import pyarrow as pa
from psycopg import sql
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StructType,
    VariantType,
)

from headrace.streams.sinks.postgres.connection import connect, explained
from headrace.streams.sinks.postgres.table import identifiers
from headrace.streams.sinks.records import JSON_OPTIONS
from headrace.streams.table import PostgresTable

ROWS_MAX: Final = 10_000
"""How many rows are handed to Spark at once."""


def read(session: SparkSession, table: PostgresTable, schema: StructType) -> DataFrame:
    """These columns of all rows, as they are when they are read."""
    task = ReadTask(table=table, columns=tuple(schema.names))
    numbers = [f"c{index}" for index in range(len(schema.names))]
    texts = session.range(0, 1, 1, 1).mapInArrow(task.run, ", ".join(f"{name} string" for name in numbers))
    return texts.select(
        *(
            _typed(F.col(number), field.dataType).alias(field.name)
            for number, field in zip(numbers, schema.fields, strict=True)
        )
    )


def has_rows(table: PostgresTable) -> bool:
    """Whether the table is there and has a row."""
    with (
        explained(table.dsn, f"looking into the table {table.name}"),
        closing(connect(table.dsn)) as connection,
    ):
        place = sql.Identifier(table.schema_name, table.table_name)
        there = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [place.as_string()]).fetchone()
        if not (there and there[0]):
            return False
        row = connection.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(place)).fetchone()
        return bool(row and row[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """Reads a table. Travels to an executor."""

    table: PostgresTable
    columns: tuple[str, ...]

    def run(self, shares: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows of the table, for the one row that it is given."""
        if sum(share.num_rows for share in shares) == 0:
            return
        names = [f"c{index}" for index in range(len(self.columns))]
        with (
            explained(self.table.dsn, f"reading the table {self.table.name}"),
            closing(connect(self.table.dsn)) as connection,
        ):
            connection.execute("SET TIME ZONE 'UTC'")
            statement = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(
                identifiers(self.columns), sql.Identifier(self.table.schema_name, self.table.table_name)
            )
            with connection.cursor() as cursor, cursor.copy(statement) as copied:
                found = copied.rows()
                while rows := list(islice(found, ROWS_MAX)):
                    arrays = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, names=names)


def _typed(text: Column, kind: DataType) -> Column:
    if isinstance(kind, ArrayType | MapType | StructType):
        return F.from_json(text, kind, JSON_OPTIONS)
    if isinstance(kind, VariantType):
        return F.parse_json(text)
    if isinstance(kind, BinaryType):
        return F.unhex(F.substring(text, 3, 1 << 30))
    return text.cast(kind)
