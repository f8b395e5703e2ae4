"""Read topics: as streams of decoded rows, and as streams of what could not be decoded."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.streams.decode import decoded, parse_schema, undecodable
from headrace.streams.topic import Topic


def read_stream(session: SparkSession, topic: Topic, *, bootstrap: str, reader: str) -> DataFrame:
    """The topic's rows as they come: the schema's columns and `_kafka`."""
    schema = parse_schema(topic)
    rows = decoded(_records(session, topic, bootstrap=bootstrap, reader=reader), schema)
    if topic.event_time is not None and topic.watermark is not None:
        return rows.withWatermark(topic.event_time, topic.watermark)
    return rows


def read_dead_letters(session: SparkSession, topic: Topic, *, bootstrap: str, reader: str) -> DataFrame:
    """The records of the topic that can't be decoded, as records for its dead-letter topic.

    Key and value are the original bytes. The headers are the original ones and five more, as text:

        headrace.cause  headrace.topic  headrace.partition  headrace.offset  headrace.timestamp
    """
    records = _records(session, topic, bootstrap=bootstrap, reader=reader)
    refused = undecodable(records, parse_schema(topic))
    told = {
        "headrace.cause": F.col("cause"),
        "headrace.topic": F.col("topic"),
        "headrace.partition": F.col("partition").cast("string"),
        "headrace.offset": F.col("offset").cast("string"),
        "headrace.timestamp": F.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"),
    }
    added = F.array(
        *(
            F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
            for name, value in told.items()
        )
    )
    original = F.coalesce("headers", F.array().cast("array<struct<key: string, value: binary>>"))
    target = F.lit(topic.dead_letters).alias("topic")
    return refused.select(target, "key", "value", F.concat(original, added).alias("headers"))


def _records(session: SparkSession, topic: Topic, *, bootstrap: str, reader: str) -> DataFrame:
    return (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic.name)
        .option("startingOffsets", topic.start)
        .option("includeHeaders", "true")
        # What was written in a transaction counts once it is committed.
        .option("kafka.isolation.level", "read_committed")
        .option("groupIdPrefix", f"headrace-{reader}")
        .load()
    )
