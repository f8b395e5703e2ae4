"""Make views and drop them.

A view is looked at by Spark, as the stream that it will be, before it is kept: what can't run is no view.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, NullType, StructField, StructType, VariantType

from headrace.config import StreamsConfig
from headrace.errors import SqlError
from headrace.streams.admin import Cluster
from headrace.streams.building import build_stream
from headrace.streams.checkpoint import checkpoint_path, try_lock_checkpoint
from headrace.streams.log_offsets import end_offsets, existing_places, first_offsets
from headrace.streams.queries import written_rows
from headrace.streams.sinks.records import RESERVED_COLUMNS
from headrace.streams.source import Reader, read_stream
from headrace.streams.sql.analysis import analyse
from headrace.streams.sql.catalog import Catalog
from headrace.streams.sql.definitions import Table, View, view_of
from headrace.streams.sql.frames import taken_apart
from headrace.streams.sql.sentences import sentence
from headrace.streams.sql.statements import CreateView
from headrace.streams.sql.tokens import name_text
from headrace.streams.sql.view_pipeline import pipeline_of

_UNREADABLE: Final = ("interval", "timestamp_ltz")


def create_view(session: SparkSession, catalog: Catalog, statement: CreateView) -> View:
    """Look at the view, and keep it; raise if it can't run."""
    name = statement.name
    refuse_taken(catalog, name)
    view = view_of(statement, _tables(session, catalog, statement.query))
    if not view.tables:
        raise SqlError(f"view {name} reads no topic: there is nothing that could come in")
    pipeline = pipeline_of(view)
    reader = Reader(name=name, config=catalog.config)
    frames = {
        parameter: read_stream(session, topic, reader) for parameter, topic in pipeline.sources().items()
    }
    try:
        rows, _building = build_stream(pipeline, frames, catalog.config)
        written_rows(pipeline, rows)
    except AnalysisException as error:
        raise SqlError(f"view {name}: {sentence(error)}") from error
    view = replace(view, columns=_columns(name, rows))
    catalog.store.keep_view(view)
    return view


def refuse_taken(catalog: Catalog, name: str) -> None:
    """Raise if the name is that of something else: a view, a table, or a topic that has records."""
    path = catalog.store.view_path(name)
    if path.exists():
        raise SqlError(
            f"there is a view {name} already: `headrace run --views` runs it, as does CREATE VIEW IF NOT "
            "EXISTS; DROP VIEW forgets it"
        )
    if name in catalog.store.tables():
        raise SqlError(f"there is a table {name} already: give the view another name, or DROP TABLE first")
    cluster = Cluster(catalog.config)
    if name in cluster.partition_counts():
        places = existing_places(cluster, [name])
        if first_offsets(cluster, places) != end_offsets(cluster, places):
            raise SqlError(
                f"the topic {name} has records already, among which those of the view would be lost: give "
                f"the view another name, or `headrace topics delete {name}`"
            )


def drop_view(config: StreamsConfig, catalog: Catalog, name: str) -> bool:
    """Forget the view and how far it had come, if there is one; raise while it runs. Its topic stays."""
    if not catalog.store.view_path(name).exists():
        return False
    with ExitStack() as held:
        if not try_lock_checkpoint(config, name, held):
            raise SqlError(f"view {name} is running: stop it first, then drop it")
        catalog.store.forget_view(name)
        checkpoint = checkpoint_path(config, name)
        shutil.rmtree(checkpoint, ignore_errors=True)
        checkpoint.with_name(f"{name}.json").unlink(missing_ok=True)
    return True


def _tables(session: SparkSession, catalog: Catalog, query: str) -> list[Table]:
    """The tables that the query reads."""
    found: list[Table] = []
    reader = Reader(name="headrace-sql", config=catalog.config)

    def find(name: str) -> DataFrame:
        table = catalog.find(name)
        found.append(table)
        return taken_apart(read_stream(session, table.topic, reader), table)

    analyse(session, query, find)
    return found


def _columns(name: str, rows: DataFrame) -> str:
    """The columns of the view's topic, for those who read it."""
    fields = [field for field in rows.schema.fields if field.name not in RESERVED_COLUMNS]
    for field in fields:
        kind = field.dataType.simpleString()
        if kind.startswith(_UNREADABLE) or isinstance(field.dataType, VariantType):
            raise SqlError(f"view {name}: the column {field.name} is {kind}, which JSON has not: cast it")
    named = [StructField(field.name, _readable(field.dataType)) for field in fields]
    return ", ".join(f"{name_text(field.name)} {_ddl(field.dataType)}" for field in named)


def _readable(kind: DataType) -> DataType:
    """What is null in each row is read as text."""
    return DataType.fromDDL("string") if isinstance(kind, NullType) else kind


def _ddl(kind: DataType) -> str:
    if isinstance(kind, StructType):
        inner = (f"{name_text(each.name)}: {_ddl(each.dataType)}" for each in kind.fields)
        return f"struct<{', '.join(inner)}>"
    return kind.simpleString()
