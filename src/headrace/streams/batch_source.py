"""Read a part of the log in batch: the same rows that a stream would have been given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from headrace.config import StreamsConfig
from headrace.streams.client_options import kafka_options
from headrace.streams.formats import rows
from headrace.streams.progress_log import format_offsets
from headrace.streams.source import prompt_options
from headrace.streams.spans import Span
from headrace.streams.topic import Topic

_RECORD: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)


def read_frames(
    session: SparkSession, topics: Mapping[str, Topic], spans: Mapping[str, Span], config: StreamsConfig
) -> dict[str, DataFrame]:
    """The rows of each parameter's topic that lie in its span."""
    return {
        parameter: rows(read_records(session, spans[parameter], config), topic)
        for parameter, topic in topics.items()
    }


def read_records(session: SparkSession, span: Span, config: StreamsConfig) -> DataFrame:
    """The committed records of the span, as Spark has them."""
    read = {place: end for place, end in span.ends.items() if end > span.starts[place]}
    if not read:
        return session.createDataFrame([], _RECORD)
    assigned: dict[str, list[int]] = {}
    for topic, partition in sorted(read):
        assigned.setdefault(topic, []).append(partition)
    return (
        session.read.format("kafka")
        .options(**(prompt_options(config) | kafka_options(config)))
        .option("kafka.isolation.level", "read_committed")
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", format_offsets({place: span.starts[place] for place in read}))
        .option("endingOffsets", format_offsets(read))
        .option("includeHeaders", "true")
        .load()
    )
