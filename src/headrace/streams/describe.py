"""The description of a pipeline's plan, taken from Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql import DataFrame

from headrace.config import StreamsConfig
from headrace.streams.event_time import watermark_text
from headrace.streams.plans import Description, Operator, describe
from headrace.streams.plans.tree import Node, read_plan
from headrace.streams.topic import Topic

OUTPUT_MODE: Final = "update"
"""What pipelines are run with: a row whenever its result has changed."""


def describe_rows(
    rows: DataFrame,
    frames: Mapping[str, DataFrame],
    topics: Mapping[str, Topic],
    config: StreamsConfig,
    own: Mapping[str, Operator] = MappingProxyType({}),
) -> Description:
    """Describe what a pipeline returned for these frames, one for each parameter.

    `own` are operators that keep their state in Python, by name: of them Spark's plan says no more.
    """
    optimizer = rows.sparkSession._jsparkSession.sessionState().optimizer()  # noqa: SLF001 - no public way
    analyzed = _analyzed(rows)
    named = source_names(topics)
    return describe(
        read_plan(analyzed.toJSON()),
        read_plan(optimizer.execute(analyzed).toJSON()),
        columns=columns_of({named[parameter]: frame for parameter, frame in frames.items()}),
        sources=_sources(analyzed),
        shuffle_partition_count=config.shuffle_partition_count,
        output_mode=OUTPUT_MODE,
        watermarks={
            f"{named[parameter]}.{topic.event_time}": watermark_text(topic.watermark)
            for parameter, topic in topics.items()
            if topic.watermark is not None
        },
        own=own,
    )


def source_names(topics: Mapping[str, Topic]) -> dict[str, str]:
    """What each parameter reads, by names that stay the same when a parameter is renamed.

    These are the topics' own. One that is read by several parameters gets a number at all but the first.
    """
    named: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for parameter, topic in topics.items():
        name = ",".join(topic.names)
        seen[name] += 1
        named[parameter] = name if seen[name] == 1 else f"{name}#{seen[name]}"
    return named


def plan_of(rows: DataFrame) -> Node:
    """The plan as Spark has understood it."""
    return read_plan(_analyzed(rows).toJSON())


def columns_of(frames: Mapping[str, DataFrame]) -> dict[int, str]:
    """The columns of frames that have names, by the session's numbers: `orders.amount: double`."""
    columns = {}
    for name, frame in frames.items():
        attributes = _analyzed(frame).output()
        for index, field in enumerate(frame.schema.fields):
            number = attributes.apply(index).exprId().id()
            columns[number] = f"{name}.{field.name}: {field.dataType.simpleString()}"
    return columns


def _analyzed(rows: DataFrame) -> Any:
    return rows._jdf.queryExecution().analyzed()  # noqa: SLF001 - there is no public way to it


def _sources(analyzed: Any) -> list[str]:
    """The topics in the order in which Spark numbers its sources; several of one source with commas."""
    leaves = analyzed.collectLeaves()
    topics: dict[int, str] = {}
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if leaf.isStreaming():
            # The same frame, used twice, is one source.
            topics.setdefault(leaf.output().head().exprId().id(), str(leaf.extraOptions().get("subscribe")))
    return list(topics.values())
