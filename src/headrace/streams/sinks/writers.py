"""Which writer belongs to a pipeline's target."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import SetupError
from headrace.streams.admin import ensure_topics
from headrace.streams.pipeline import Target
from headrace.streams.sinks.context import BatchWriter, WriteContext
from headrace.streams.sinks.topics import TopicWriter
from headrace.streams.table import DeltaTable, PostgresTable, Table
from headrace.streams.topic import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def batch_writer(target: Target, context: WriteContext, side_outputs: Sequence[Topic] = ()) -> BatchWriter:
    """A writer of batches to the target. Topics must exist; tables are created if they are missing."""
    if isinstance(target, Topic):
        return topic_writer(target, context, side_outputs)
    return table_writer(target, context)


def table_writer(table: Table, context: WriteContext) -> BatchWriter:
    """A writer of batches to a table: exactly once, whatever less is asked for."""
    check_installed(table)
    # Here and not above: the packages that these need are extras.
    if isinstance(table, PostgresTable):
        from headrace.streams.sinks.postgres.writer import PostgresWriter  # noqa: PLC0415

        return PostgresWriter(table, context)
    from headrace.streams.sinks.delta.writer import DeltaWriter  # noqa: PLC0415

    return DeltaWriter(table, context)


def check_installed(target: Target) -> None:
    """Raise where the target needs a package that is not installed."""
    if isinstance(target, PostgresTable) and find_spec("psycopg") is None:
        raise SetupError("tables of PostgreSQL need psycopg: pip install 'headrace[postgres]'")
    if isinstance(target, DeltaTable):
        _check_delta()


def topic_writer(topic: Topic, context: WriteContext, side_outputs: Sequence[Topic] = ()) -> TopicWriter:
    """A writer of batches to a topic and its side outputs, which must exist."""
    counts = ensure_topics(context, {topic.name: 1})
    return TopicWriter(topic, context, partition_count=counts[topic.name], side_outputs=side_outputs)


def read_delta(session: SparkSession, path: Path | str) -> DataFrame:
    """The rows of a Delta table as it is now; Delta's own connector does not run on this release of Spark."""
    _check_delta()
    from headrace.streams.sinks.delta.read import read  # noqa: PLC0415 - what it needs is an extra

    return read(session, path)


def has_rows(table: Table) -> bool:
    """Whether the table is there and has a row."""
    check_installed(table)
    if isinstance(table, PostgresTable):
        from headrace.streams.sinks.postgres.read import has_rows as has_rows_in  # noqa: PLC0415 - likewise

        return has_rows_in(table)
    from deltalake import DeltaTable as Found  # noqa: PLC0415 - likewise

    return Found.is_deltatable(str(table.path)) and bool(Found(table.path).file_uris())


def read_table(session: SparkSession, table: Table, schema: StructType) -> DataFrame:
    """These columns of a table's rows, as they are when they are read."""
    check_installed(table)
    if isinstance(table, PostgresTable):
        from headrace.streams.sinks.postgres.read import read  # noqa: PLC0415 - what it needs is an extra

        return read(session, table, schema)
    rows = read_delta(session, table.path)
    return rows.select(*(rows[f"`{field.name}`"].cast(field.dataType) for field in schema.fields))


def _check_delta() -> None:
    if find_spec("deltalake") is None:
        raise SetupError("Delta tables need deltalake: pip install 'headrace[stores]'")
