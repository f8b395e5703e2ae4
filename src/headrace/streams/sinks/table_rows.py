"""From a pipeline's rows to those of a table: all columns but the reserved ones.

`_kafka` is left out. `_delete` stays, as a boolean that is never null, where the table has a key; it says
that the row with this key goes. A table has neither topics nor headers, so `_topic` and
`_headers` are refused.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import ArrayType, BooleanType, MapType, StructType

from headrace.errors import PipelineError
from headrace.streams.sinks.identity import check_identity
from headrace.streams.sinks.records import DELETE_COLUMN, HEADERS_COLUMN, TOPIC_COLUMN, notes_of
from headrace.streams.stores import Table
from headrace.streams.topic import METADATA_COLUMN

_NESTED: Final = (ArrayType, MapType, StructType)


def table_rows(rows: DataFrame, table: Table, *, pipeline: str) -> DataFrame:
    """The columns that the table gets, and `_delete` behind them where the pipeline returns it."""
    for name in (TOPIC_COLUMN, HEADERS_COLUMN):
        if name in rows.columns:
            raise PipelineError(
                f"pipeline {pipeline} returns {name}, and writes the table {table.name}, which has nothing "
                "of the kind: drop the column, or write a topic"
            )
    names = [name for name in rows.columns if name not in {METADATA_COLUMN, DELETE_COLUMN}]
    if not names:
        raise PipelineError(f"pipeline {pipeline} returns no columns: there is nothing to write")
    if len(set(names)) < len(names):
        raise PipelineError(f"pipeline {pipeline} returns a column twice: {', '.join(names)}")
    _check_key(rows, names, table, pipeline)
    check_identity(notes_of(rows), table.key, place=f"table {table.name}", pipeline=pipeline)
    columns = [rows[f"`{name}`"] for name in names]
    if DELETE_COLUMN in rows.columns:
        columns.append(_delete(rows, table, pipeline))
    return rows.select(*columns)


def spread(rows: DataFrame, table: Table, task_count: int) -> DataFrame:
    """The rows, each at the task that its key decides, or all of it where there is no key."""
    deciding = [_number(rows.columns.index(name)) for name in table.key or rows.columns]
    return unnamed(rows).repartition(task_count, F.xxhash64(*deciding))


def key_count(rows: DataFrame, table: Table) -> int:
    """How many keys the rows have."""
    return rows.select(*(f"`{name}`" for name in table.key)).distinct().count()


def unnamed(rows: DataFrame) -> DataFrame:
    """The rows with numbers for names: Spark can't hand columns to Python whose names have dots."""
    return rows.toDF(*map(_number, range(len(rows.columns))))


def _number(index: int) -> str:
    return f"c{index}"


def _check_key(rows: DataFrame, names: list[str], table: Table, pipeline: str) -> None:
    for key in table.key:
        if key not in names:
            raise PipelineError(
                f"pipeline {pipeline} writes table {table.name} with the key {key!r}, which is none of the "
                f"columns that it returns ({', '.join(names)}): return the column, or name another key"
            )
        kind = rows.schema[key].dataType
        if isinstance(kind, _NESTED):
            raise PipelineError(
                f"pipeline {pipeline} writes table {table.name} with the key {key!r}, whose values are "
                f"{kind.simpleString()}: choose a column of plain values"
            )


def _delete(rows: DataFrame, table: Table, pipeline: str) -> Column:
    kind = rows.schema[DELETE_COLUMN].dataType
    if not isinstance(kind, BooleanType):
        raise PipelineError(
            f"pipeline {pipeline} returns {DELETE_COLUMN} as {kind.simpleString()}: make it boolean"
        )
    if not table.key:
        raise PipelineError(
            f"pipeline {pipeline} returns {DELETE_COLUMN}, and table {table.name} has no key by which a row "
            'could be deleted: describe it with key=["column"]'
        )
    return F.coalesce(rows[DELETE_COLUMN], F.lit(False)).alias(DELETE_COLUMN)
