"""Read topics: as streams of decoded rows, and as streams of what could not be decoded."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.config import KIB, StreamsConfig
from headrace.streams.client_options import kafka_options
from headrace.streams.event_time import spark_delay
from headrace.streams.formats import refused, rows
from headrace.streams.sinks.records import same_for_all
from headrace.streams.starts import Starts, starting_offsets
from headrace.streams.topic import Topic

_FETCHED_BYTES_MIN: Final = 64 * KIB
"""What a query that can wait asks for at a time."""
_DEAD_LETTERS_WAIT_MS: Final = 500
"""Nobody waits for dead letters: asking for each record by itself would cost all others milliseconds."""
_WAIT_MS: Final = 1
_WAIT_FOR_REPLICA_MS: Final = 10
_POLLED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """The query that reads, and how."""

    name: str
    config: StreamsConfig
    starts: Starts = field(default_factory=dict)
    """From where, if there is no checkpoint yet; where they are not settled, from the beginning."""
    realtime: bool = False
    patience_ms: int = 0
    """How long records may lie in their topics, so that many are read at a time. For real-time mode."""


def read_stream(session: SparkSession, topic: Topic, reader: Reader) -> DataFrame:
    """The topic's rows as they come: the columns of its format and `_kafka`."""
    decoded = rows(read_records_stream(session, topic, reader), topic)
    if topic.event_time is None or topic.watermark is None:
        return decoded
    # For Spark's own operators; ours find how long to wait in what the column is marked with.
    delay = spark_delay(topic.watermark)
    return decoded if delay is None else decoded.withWatermark(topic.event_time, delay)


def read_dead_letters(session: SparkSession, topic: Topic, reader: Reader) -> DataFrame:
    """The records of the topic that can't be decoded, as records for its dead-letter topic.

    Key and value are the original bytes. The headers are the original ones and five more, as text:

        headrace.cause  headrace.topic  headrace.partition  headrace.offset  headrace.timestamp
    """
    letters = refused(
        read_records_stream(session, topic, replace(reader, patience_ms=_DEAD_LETTERS_WAIT_MS)), topic
    )
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
    target = same_for_all(F.lit(topic.dead_letters), "topic", topic.dead_letters)
    return letters.select(target, "key", "value", F.concat(original, added).alias("headers"))


def read_records_stream(session: SparkSession, topic: Topic, reader: Reader) -> DataFrame:
    """The committed records as they come, as Spark has them."""
    source = (
        session.readStream.format("kafka")
        .options(**(_pace(reader) | kafka_options(reader.config)))
        # What a transaction that was given up has written is no input, and what an open one writes not yet.
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", ",".join(topic.names))
        .option("startingOffsets", starting_offsets(topic, reader.starts))
        .option("includeHeaders", "true")
        .option("groupIdPrefix", f"headrace-{reader.name}")
    )
    if not reader.realtime:
        # Batches of real-time mode have a duration, no size: it reads on only as fast as it writes.
        limit = topic.max_records_per_batch or reader.config.max_records_per_batch
        source = source.option("maxOffsetsPerTrigger", limit)
    return source.load()


def prompt_options(config: StreamsConfig) -> dict[str, str]:
    """How to read what is there, up to an end that is known.

    Each time that Spark has taken records from its client, it asks the broker two questions. By then, the
    client has asked for what follows; at the end of a partition that waits, half a second by default, and the
    questions wait behind it. A record that comes meanwhile is handed out by itself, which makes Spark ask two
    more. So the client is to wait for next to nothing: a little longer where it reads from a replica, which
    may not have yet what its leader has told of, and would be asked all the time. And it is to hand out more
    than 500 records at a time: what it holds is bounded by what it fetches, in bytes.
    """
    wait_ms = _WAIT_FOR_REPLICA_MS if "client.rack" in config.client_options else _WAIT_MS
    return {"kafka.fetch.max.wait.ms": str(wait_ms), "kafka.max.poll.records": str(_POLLED_MAX)}


def _pace(reader: Reader) -> dict[str, str]:
    if not reader.realtime:
        return prompt_options(reader.config)
    if not reader.patience_ms:
        return {}
    return {
        "kafka.fetch.min.bytes": str(_FETCHED_BYTES_MIN),
        "kafka.fetch.max.wait.ms": str(reader.patience_ms),
    }
