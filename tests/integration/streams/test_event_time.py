"""Event time on Spark: sources that declare how far they are, and what operators find out of their rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import PipelineError
from headrace.streams.building import Building, build_stream
from headrace.streams.describe import describe_rows
from headrace.streams.pipeline import Pipeline
from headrace.streams.plans import Description, changes
from headrace.streams.source import Reader, read_stream
from headrace.streams.topic import Topic

pytestmark = pytest.mark.spark

TRADES = "id string, amount bigint, at timestamp, complete_until timestamp"
trades = hr.topic(
    "trades", schema=TRADES, event_time="at", watermark=hr.declared("complete_until"), partitions=1
)
orders = hr.topic("orders", schema="id string, at timestamp", event_time="at", watermark="1 minute")
returns = hr.topic("returns", schema="id string, at timestamp", event_time="at", watermark="1 hour")
late = hr.topic("trades.late")


def moment(second: int) -> datetime:
    return datetime(2026, 1, 2, 3, second // 60, second % 60, tzinfo=UTC)


def trade(amount: int, second: int) -> dict[str, object]:
    return {"id": "a", "amount": amount, "at": moment(second)}


@hr.pipeline(writes=hr.topic("minutes"))
def minutes(trades: DataFrame) -> DataFrame:
    windows = hr.window(trades, hr.tumbling("1 minute"), by="id", late=hr.side_output("trades.late"))
    result = windows.agg(
        F.sum("amount").alias("amount"),
        hr.first("amount"),
        hr.last("amount"),
        hr.estimated_counts("amount", [5], name="fives"),
    )
    return result.select(
        "id",
        F.col("window.end").alias("until"),
        "amount",
        "first_amount",
        "last_amount",
        F.col("fives")[0]["count"].alias("fives"),
    )


def test_windows_end_when_their_source_says_that_nothing_older_will_come(headrace_pipeline: Any) -> None:
    script = headrace_pipeline(minutes)
    # However new events are, they say nothing of what is still on its way.
    script.add(trades, trade(5, 10), trade(7, 300)).expect()
    script.add(trades, trade(3, 0), {"complete_until": moment(60)})
    first = {"id": "a", "until": moment(60), "amount": 8}
    script.expect({**first, "first_amount": 5, "last_amount": 3, "fives": 1})
    # What is older than was declared is late; the word itself is no row that could be.
    script.add(trades, trade(9, 59), {**trade(1, 301), "complete_until": moment(360)})
    last = {"id": "a", "until": moment(360), "amount": 8}
    script.expect({**last, "first_amount": 7, "last_amount": 1, "fives": 0})
    behind = {**trade(9, 59), "window": {"start": moment(0), "end": moment(60)}, "late_by_ms": 0}
    told = {"watermark": moment(60), "reason": "late", "complete_until": None}
    script.expect({**behind, **told}, topic=late)


Built = Callable[..., tuple[Description, Building]]


@pytest.fixture
def built(spark: SparkSession, config: StreamsConfig) -> Built:
    """A pipeline of a function, as it would be run: what is noted of it."""

    def build(function: Callable[..., DataFrame], **reads: Topic) -> tuple[Description, Building]:
        topics = reads or {"rows": orders}
        made: Pipeline[Any] = hr.pipeline(writes=hr.topic("out"), name="totals", reads=topics)(function)
        reader = Reader(name="totals", config=config)
        frames = {name: read_stream(spark, topic, reader) for name, topic in made.sources().items()}
        rows, building = build_stream(made, frames, config)
        return describe_rows(rows, frames, topics, config, building.operators), building

    return build


def counted(rows: DataFrame, size: str = "1 minute", **settings: Any) -> DataFrame:
    return hr.window(rows, hr.tumbling(size), by="id", **settings).agg(F.count("*").alias("count"))


def test_changes_of_what_state_was_made_for_are_found(built: Built) -> None:
    def with_updates(within: str, *, retract: bool) -> Callable[..., DataFrame]:
        return lambda rows: counted(rows, late=hr.update(within=within, retract=retract))

    before, _ = built(with_updates("1 hour", retract=False))
    longer, _ = built(with_updates("2 hours", retract=False))
    retracting, _ = built(with_updates("1 hour", retract=True))
    assert changes(before, longer) == []
    (change,) = changes(before, retracting)
    assert change.breaking
    assert "the tumbling window of 1 minute by id has another retract: True instead of False" in change.what

    once, _ = built(lambda rows: hr.deduplicate(rows, by="id", ttl="1 day"))
    for_longer, _ = built(lambda rows: hr.deduplicate(rows, by="id", ttl="2 days"))
    by_more, _ = built(lambda rows: hr.deduplicate(rows, by=["id", "at"], ttl="1 day"))
    (change,) = changes(once, for_longer)
    assert change.breaking
    assert change.what == "the deduplication by id has another ttl: 2 days instead of 1 day"
    assert [change.breaking for change in changes(once, by_more)] == [True]


def test_operators_are_known_by_their_place_in_the_plan_not_by_the_order_of_calls(built: Built) -> None:
    def short_first(rows: DataFrame) -> DataFrame:
        short, long = counted(rows), counted(rows, "5 minutes")
        return short.unionByName(long)

    def long_first(rows: DataFrame) -> DataFrame:
        long, short = counted(rows, "5 minutes"), counted(rows)
        # One that is not used is not in the plan.
        counted(rows, "1 hour")
        return short.unionByName(long)

    one, building = built(short_first)
    same, _ = built(long_first)
    other, _ = built(lambda rows: counted(rows, "5 minutes").unionByName(counted(rows)))

    assert changes(one, same) == []
    assert "the order of" in changes(one, other)[0].what
    assert {topic.name for topic in building.side_topics.values()} == {"totals.late", "totals.late-2"}


def test_streams_that_wait_in_different_ways_are_not_judged_by_the_first_of_them(built: Built) -> None:
    topics = {"rows": orders, "more": returns}
    with pytest.raises(PipelineError, match=r"their watermarks differ: .*; say which one counts here"):
        built(lambda rows, more: counted(rows.unionByName(more)), **topics)

    built(lambda rows, more: counted(rows.unionByName(more), watermark="1 hour"), **topics)
    built(lambda rows, more: counted(rows.unionByName(more)), rows=orders, more=orders)


def test_a_column_by_which_sources_declare_how_far_they_are_must_be_there(built: Built) -> None:
    with pytest.raises(PipelineError, match="declare how far they are in the column 'complete_until'"):
        built(lambda rows: counted(rows.drop("complete_until")), rows=trades)
    other = hr.topic("t", schema=TRADES, event_time="at", watermark=hr.declared("told"))
    with pytest.raises(PipelineError, match="watermark is 'told', which is none of the schema's columns"):
        built(lambda rows: counted(rows), rows=other)  # noqa: PLW0108 - for its parameter
