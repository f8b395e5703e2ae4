"""Compare what a pipeline makes of its source tables themselves with what it makes of their change topics.

Both as of one position in the database's log. The tables' rows at that position lie in topics of their own (a
snapshot of them), and of the change topics only the events count of transactions that committed before it:
those of a partition are in the order of their commits. Where a change itself lies says nothing, as a
transaction that is open at the position has changes before it that the snapshot does not show. What the
pipeline returns for both is compared by ranges of keys (see repair.py). So it is known whether the log tells
the truth of the tables; whether a store holds what the log says, `verify` finds out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.config import StreamsConfig
from headrace.errors import PipelineError
from headrace.streams.batch_source import read_frames, read_records
from headrace.streams.log_offsets import find_span
from headrace.streams.pipeline import Pipeline
from headrace.streams.plan import make_plan
from headrace.streams.repair import RANGE_COUNT, different_ranges
from headrace.streams.session import start_session, stop_session
from headrace.streams.sinks.table_rows import table_rows
from headrace.streams.spans import OPEN, Span
from headrace.streams.stores import Table
from headrace.streams.topic import Topic
from headrace.streams.workspace import workspace
from headrace.streams.written import last_records

EXAMPLES_MAX: Final = 20

OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDifference:
    """A row that the tables and the log don't have in common."""

    key: str
    of_source: str | None
    of_log: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceComparison:
    """The outcome."""

    row_count: int
    """How many rows the tables make."""
    range_count: int
    different_ranges: int
    different_count: int
    examples: tuple[SourceDifference, ...] = ()


def refuse_other_sources(pipeline: Pipeline[Any], prefix: str) -> list[str]:
    """The change topics that the pipeline reads; raise where it reads anything else."""
    if isinstance(pipeline.writes, Topic) or not pipeline.writes.key:
        raise PipelineError(
            f"pipeline {pipeline.name} writes no store with a key: there are no rows to compare with the "
            "database's"
        )
    for topic in pipeline.sources().values():
        others = [name for name in topic.names if not name.startswith(f"{prefix}.")]
        if others or topic.format != "debezium":
            raise PipelineError(
                f"pipeline {pipeline.name} reads {', '.join(others or topic.names)}, which no capture writes "
                f"as a change topic: only tables that are published as {prefix}.* can be compared with the "
                "database"
            )
    return sorted({name for topic in pipeline.sources().values() for name in topic.names})


def compare_with_source(
    pipeline: Pipeline[Any],
    config: StreamsConfig,
    *,
    snapshots: Mapping[str, str],
    lsn: int,
    on_step: OnStep = lambda _line: None,
) -> SourceComparison:
    """Compare. `snapshots` names the topic that has the rows of each change topic's table at the position."""
    with ExitStack() as held:
        work_dir = held.enter_context(workspace(config.data_dir))
        on_step("starting Spark")
        session = start_session(config, slots=os.cpu_count() or 1, work_dir=work_dir)
        held.callback(stop_session, session)
        on_step(f"comparing {RANGE_COUNT:,} ranges")
        return compare_in(session, pipeline, config, snapshots=snapshots, lsn=lsn)


def compare_in(
    session: SparkSession,
    pipeline: Pipeline[Any],
    config: StreamsConfig,
    *,
    snapshots: Mapping[str, str],
    lsn: int,
) -> SourceComparison:
    """The same in a session that runs already."""
    sources = make_plan([pipeline]).sources[pipeline.name]
    copies = {parameter: _renamed(topic, snapshots) for parameter, topic in sources.items()}
    of_source = _records(session, pipeline, copies, {}, config)
    ends = {name: _end_of(session, name, lsn, config) for topic in sources.values() for name in topic.names}
    of_log = _records(session, pipeline, sources, ends, config)
    try:
        ranges = different_ranges(of_source, of_log)
        return SourceComparison(
            row_count=of_source.count(),
            range_count=RANGE_COUNT,
            different_ranges=len(ranges),
            **_differences(of_source, of_log) if ranges else {"different_count": 0},
        )
    finally:
        of_source.unpersist()
        of_log.unpersist()


def _renamed(topic: Topic, snapshots: Mapping[str, str]) -> Topic:
    first, *others = (snapshots[name] for name in topic.names)
    return replace(topic, name=first, others=tuple(others))


def _records(
    session: SparkSession,
    pipeline: Pipeline[Any],
    sources: Mapping[str, Topic],
    ends: Mapping[str, Mapping[tuple[str, int], int]],
    config: StreamsConfig,
) -> DataFrame:
    """What the pipeline makes of the topics, as records by key; up to the ends that are given."""
    spans = {}
    for parameter, topic in sources.items():
        span = find_span(config, topic.names, begin=OPEN, finish=OPEN)
        known = {place: end for name in topic.names for place, end in ends.get(name, {}).items()}
        spans[parameter] = Span(
            starts=span.starts, ends={place: known.get(place, end) for place, end in span.ends.items()}
        )
    store = pipeline.writes
    assert isinstance(store, Table)
    rows = table_rows(
        pipeline.build(read_frames(session, sources, spans, config)), store, pipeline=pipeline.name
    )
    return last_records(rows, store).select("key", "value").persist(StorageLevel.DISK_ONLY)


def _end_of(session: SparkSession, topic: str, lsn: int, config: StreamsConfig) -> dict[tuple[str, int], int]:
    """Behind the last event of each partition that belongs to the position."""
    span = find_span(config, [topic], begin=OPEN, finish=OPEN)
    text = F.col("value").cast("string")
    # A transaction's id is its number and the place of its commit; rows of a snapshot have none.
    transaction = F.get_json_object(text, "$.transaction.id")
    committed = F.split_part(transaction, F.lit(":"), F.lit(2)).try_cast("bigint")
    taken = F.get_json_object(text, "$.source.lsn").cast("bigint")
    is_later = F.coalesce(committed >= lsn, taken > lsn)
    later = read_records(session, span, config).where(is_later)
    found = later.groupBy("partition").agg(F.min("offset").alias("offset")).collect()
    return {**span.ends, **{(topic, row["partition"]): row["offset"] for row in found}}


def _differences(of_source: DataFrame, of_log: DataFrame) -> dict[str, Any]:
    one = of_source.select("key", F.col("value").alias("of_source"))
    other = of_log.select("key", F.col("value").alias("of_log"))
    different = one.join(other, "key", "full_outer").where(~F.col("of_source").eqNullSafe(F.col("of_log")))
    texts = different.select(*(F.col(name).cast("string") for name in different.columns))
    listed = texts.orderBy("key").limit(EXAMPLES_MAX).collect()
    return {
        "different_count": different.count(),
        "examples": tuple(SourceDifference(**row.asDict()) for row in listed),
    }
