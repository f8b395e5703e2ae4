"""From a topic's records to its rows, by its format; see topic.py for the formats.

`rows` and `refused` are complements: each record is in exactly one of them.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.streams.change_formats import change_rows, refused_changes
from headrace.streams.decode import Ahead, decoded, metadata, parse_schema, undecodable
from headrace.streams.event_time import mark_event_time
from headrace.streams.time.durations import delay_us
from headrace.streams.topic import OF_CHANGES, OF_TRANSACTIONS, VALUE_COLUMN, Topic
from headrace.streams.transaction_format import refused_transactions, transaction_rows


def rows(records: DataFrame, topic: Topic) -> DataFrame:
    """The records of which the format makes rows: its columns and `_kafka`."""
    if topic.format == "json":
        return _with_event_time(decoded(records, parse_schema(topic), _ahead(topic)), topic)
    if topic.format in OF_CHANGES:
        return _with_event_time(change_rows(records, topic), topic)
    if topic.format == OF_TRANSACTIONS:
        return transaction_rows(records)
    if topic.format == "bytes":
        return records.select(VALUE_COLUMN, metadata())
    return records.where(_is_text()).select(_text().alias(VALUE_COLUMN), metadata())


def refused(records: DataFrame, topic: Topic) -> DataFrame:
    """The other records, as they were, with a column `cause`."""
    if topic.format == "json":
        return undecodable(records, parse_schema(topic), _ahead(topic))
    if topic.format in OF_CHANGES:
        return refused_changes(records, topic)
    if topic.format == OF_TRANSACTIONS:
        return refused_transactions(records)
    if topic.format == "bytes":
        return records.where(F.lit(False)).withColumn("cause", F.lit(""))
    cause = F.when(F.col(VALUE_COLUMN).isNull(), "the value is null (a tombstone)").otherwise(
        "the value is not UTF-8"
    )
    return records.where(~_is_text()).withColumn("cause", cause)


def _ahead(topic: Topic) -> Ahead | None:
    if topic.event_time is None or topic.max_ahead is None:
        return None
    return Ahead(event_time=topic.event_time, max_us=delay_us(topic.max_ahead, "max_ahead"))


def _with_event_time(rows: DataFrame, topic: Topic) -> DataFrame:
    """With the column of event time marked, so that operators know it, and how long to wait for late rows."""
    if topic.event_time is None:
        return rows
    is_required = topic.format == "json" and not parse_schema(topic)[topic.event_time].nullable
    return mark_event_time(rows, topic.event_time, topic.watermark, is_required=is_required)


def _text() -> Column:
    return F.col(VALUE_COLUMN).cast("string")


def _is_text() -> Column:
    """True or false for each record, never null."""
    return F.coalesce(F.is_valid_utf8(_text()), F.lit(False))
