"""Tables as DataFrames: up to an end of the log, or as a stream.

A topic of changes is a table: what is read of it in batch are its current rows.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.config import StreamsConfig
from headrace.streams.batch_source import read_records
from headrace.streams.changelog.current import DELETE
from headrace.streams.changelog.zset import CHANGED_AT, WEIGHT
from headrace.streams.changes import changes
from headrace.streams.formats import refused, rows
from headrace.streams.source import Reader, read_stream
from headrace.streams.spans import Span
from headrace.streams.sql.definitions import Table
from headrace.streams.sql.tokens import name_text
from headrace.streams.topic import CHANGE_COLUMN, METADATA_COLUMN, OF_CHANGES, VALUE_COLUMN, Topic

_TOLD: Final = {"topic": "string", "partition": "int", "offset": "bigint", "timestamp": "timestamp"}
"""What dead letters tell of the record that they were, by header."""


def batch_frame(session: SparkSession, table: Table, span: Span, config: StreamsConfig) -> DataFrame:
    """The table's rows in a part of the log."""
    made = rows(read_records(session, span, config), table.topic)
    if table.topic.format == "upsert":
        return _last_rows(made, table.topic)
    if table.topic.format in OF_CHANGES:
        return changes(made).drop(WEIGHT, CHANGED_AT)
    return taken_apart(made, table)


def stream_frame(session: SparkSession, table: Table, reader: Reader) -> DataFrame:
    """The table's rows as they come; of a topic of changes, the changes."""
    return taken_apart(read_stream(session, table.topic, reader), table)


def refused_records(session: SparkSession, table: Table, span: Span, config: StreamsConfig) -> DataFrame:
    """The records in a part of the log that are no rows of the table, with their `cause`."""
    return refused(read_records(session, span, config), table.topic)


def taken_apart(made: DataFrame, table: Table) -> DataFrame:
    """Dead letters with columns of their own; other tables as they are."""
    if not table.is_dead_letters:
        return made
    told = [_header(name).cast(kind).alias(name) for name, kind in _TOLD.items()]
    key = F.col(METADATA_COLUMN)["key"].cast("string").alias("key")
    value = F.col(VALUE_COLUMN).cast("string").alias("value")
    return made.select(_header("cause").alias("cause"), *told, key, value, METADATA_COLUMN)


def _last_rows(made: DataFrame, topic: Topic) -> DataFrame:
    """The last row of each key, where its last record is no deletion.

    What `hr.changes` gives, without its Python processes: a record is all that there is to know of a row. The
    last record of a partition is that with the highest offset; of several partitions, the youngest counts.
    """
    place, keys = F.col(METADATA_COLUMN), [name_text(name) for name in topic.key]
    last = made.groupBy(*keys, place["partition"]).agg(
        F.max_by(F.struct("*"), place["offset"]).alias("_row"),
        F.max_by(place["timestamp"], place["offset"]).alias("_at"),
    )
    youngest = last.groupBy(*keys).agg(F.max_by("_row", "_at").alias("_row")).select("_row.*")
    is_there = F.col(CHANGE_COLUMN)["kind"] != DELETE
    return youngest.where(is_there).drop(CHANGE_COLUMN, METADATA_COLUMN)


def timeless(made: DataFrame, table: Table) -> DataFrame:
    """Rows whose event time is a column like others: Spark leaves none out because it is late."""
    time = table.topic.event_time
    return made if time is None or time not in made.columns else made.withMetadata(time, {})


def _header(name: str) -> Column:
    """The last header of that name: a letter that was dead before has others before it."""
    named = F.filter(F.col(METADATA_COLUMN)["headers"], lambda header: header["key"] == f"headrace.{name}")
    return F.try_element_at(named, F.lit(-1))["value"].cast("string")
