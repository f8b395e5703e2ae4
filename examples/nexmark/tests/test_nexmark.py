"""The 23 queries of Nexmark, as batches and as streams, beside what plain Python makes of the same events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

import headrace
import headrace.streams as hr
from auction_house import DISORDER_MS, KINDS, WATERMARK_MS, Arrival, arrivals, milliseconds
from headrace.config import StreamsConfig
from headrace.streams.admin import ensure_topics
from headrace.streams.plan import make_plan
from headrace.streams.queries import Queries
from headrace.streams.sinks.records import to_records
from headrace.testing.rows import difference
from nexmark import QUERIES
from nexmark_reference import ANSWERS
from nexmark_send import create_topics, send
from nexmark_topics import auctions, bids, persons
from nexmark_world import Row, World, final_rows

EVENTS = list(arrivals(2_500))
TOPICS = {"persons": persons, "auctions": auctions, "bids": bids}
PARTITIONS = 2
STATIC_TIME = datetime(2000, 1, 1, tzinfo=UTC)
"""When all rows of a static DataFrame were written."""
STATELESS = {"q0", "q1", "q2", "q10", "q13", "q14", "q21", "q22"}
NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
WITHIN_S = 500.0


def test_the_same_seed_gives_the_same_events_and_none_is_too_late() -> None:
    again = list(arrivals(2_500))
    assert again == EVENTS
    assert next(arrivals(1, seed=2)) != EVENTS[0]
    newest = 0
    for event in EVENTS:
        at = milliseconds(event.row["date_time"])
        assert event.arrived_ms - DISORDER_MS < at <= event.arrived_ms
        assert at > newest - WATERMARK_MS
        newest = max(newest, at)
    assert {kind: sum(event.kind == kind for event in EVENTS) for kind in KINDS} == {
        "persons": 50,
        "auctions": 150,
        "bids": 2_300,
    }


def test_every_query_has_something_to_answer_and_bids_come_before_and_after_their_auction() -> None:
    world = World.of_stream(EVENTS, PARTITIONS)
    assert {query.name for query in QUERIES} == set(ANSWERS)
    assert [name for name, answer in ANSWERS.items() if not list(answer(world))] == []
    opened = {auction["id"]: auction["n"] for auction in world.auctions}
    assert any(bid["n"] < opened.get(bid["auction"], 0) for bid in world.bids)
    assert any(bid["auction"] not in opened for bid in world.bids)
    expires = {auction["id"]: milliseconds(auction["expires"]) for auction in world.auctions}
    assert any(bid["at"] > expires.get(bid["auction"], bid["at"]) for bid in world.bids)


@pytest.mark.parametrize(
    ("name", "key"),
    [("q17", ("auction", "day")), ("q18", ("bidder", "auction")), ("q19", ("auction", "rank"))],
)
def test_what_replaces_a_result_is_written_by_the_same_key_and_nothing_else_is(
    name: str, key: tuple[str, ...]
) -> None:
    (query,) = (query for query in QUERIES if query.name == name)
    assert isinstance(query.writes, hr.Topic)
    assert query.writes.key == key


@pytest.mark.spark
def test_every_query_as_a_batch_answers_what_plain_python_does(headrace_spark: SparkSession) -> None:
    frames = static_frames(headrace_spark, EVENTS)
    world = World.of_batch(replace(event, arrived_ms=milliseconds(STATIC_TIME)) for event in EVENTS)
    told = [
        different(query.name, world, json_rows(query(*(frames[name] for name in query.sources()))))
        for query in QUERIES
    ]
    assert [each for each in told if each] == []


@pytest.mark.spark
def test_bids_at_all_hours_of_the_day_are_told_apart(headrace_spark: SparkSession) -> None:
    events = list(arrivals(500, pause_us=timedelta(minutes=10) // timedelta(microseconds=1)))
    (query,) = (query for query in QUERIES if query.name == "q14")
    rows = list(json_rows(query(static_frames(headrace_spark, events)["bids"])))
    assert {row["bid_time_type"] for row in rows} == {"dayTime", "nightTime", "otherTime"}
    assert different("q14", World.of_batch(events), rows) is None


@pytest.mark.spark
@pytest.mark.long
def test_every_query_as_a_stream_answers_what_plain_python_does(
    headrace_spark: SparkSession, headrace_broker: headrace.Broker, tmp_path: Path
) -> None:
    bootstrap = headrace_broker.bootstrap
    create_topics(bootstrap, PARTITIONS)
    send(bootstrap, EVENTS, PARTITIONS)
    run_all(headrace_spark, StreamsConfig(bootstrap=bootstrap, data_dir=tmp_path / "headrace"), tmp_path)
    world = World.of_stream(EVENTS, PARTITIONS)
    told = []
    for query in QUERIES:
        if isinstance(query.writes, hr.Topic):
            rows = topic_rows(bootstrap, query.writes.name)
        else:
            rows = json_rows(hr.read_delta(headrace_spark, tmp_path / query.name))
        told.append(different(query.name, world, rows))
    assert [each for each in told if each] == []


def run_all(session: SparkSession, config: StreamsConfig, tmp_path: Path) -> None:
    """Run all queries to the end of what there is: those that keep state in two micro-batches."""
    sizes = {"persons": 25, "auctions": 75, "bids": 1_150}
    halves = {name: replace(TOPICS[name], max_records_per_batch=size) for name, size in sizes.items()}
    queries = []
    for query in QUERIES:
        is_topic = isinstance(query.writes, hr.Topic)
        writes = query.writes if is_topic else hr.delta_table(tmp_path / query.name)
        topics = TOPICS if query.name in STATELESS else halves
        reads = {name: topics[name] for name in query.sources()}
        queries.append(replace(query, reads=reads, writes=writes))
    plan = make_plan(queries)
    ensure_topics(config, plan.topics())
    running = Queries(session=session, config=config, realtime=False, until_now=True)
    # Spark's own watermark has nothing to end here, and a batch without rows costs as much as one with some.
    session.conf.set(NO_DATA_BATCHES, "false")
    try:
        running.start(plan, ())
        running.await_done(WITHIN_S)
    finally:
        session.conf.unset(NO_DATA_BATCHES)
        running.stop()


def static_frames(session: SparkSession, events: Iterable[Arrival]) -> dict[str, DataFrame]:
    rows: dict[str, list[Row]] = {kind: [] for kind in KINDS}
    for event in events:
        rows[event.kind].append(event.row)
    # In one task each: there are few of them, and a session for tests has many slots.
    return {kind: hr.static(session, TOPICS[kind], rows[kind]).coalesce(1).cache() for kind in KINDS}


def different(query: str, world: World, rows: Iterable[Row]) -> str | None:
    """How the rows differ from what they should be; None where they don't."""
    return difference(list(ANSWERS[query](world)), final_rows(query, rows), of=query)


def json_rows(rows: DataFrame) -> Iterator[Row]:
    """The rows as they would be written to a topic."""
    records = to_records(rows.drop("_delete"), hr.topic("anywhere"), pipeline="any")
    return (json.loads(record.value) for record in records.select("value").collect())


def topic_rows(bootstrap: str, topic: str) -> Iterator[Row]:
    """The rows of a topic of two partitions, in the order of each."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    for partition in range(PARTITIONS):
        place = TopicPartition(topic, partition, 0)
        _first, end = consumer.get_watermark_offsets(place)
        consumer.assign([place])
        while end and consumer.position([place])[0].offset < end:
            for message in consumer.consume(10_000, timeout=0.5):
                assert message.value() is not None, f"{topic} has a tombstone, though nothing goes"
                yield json.loads(message.value())
    consumer.close()
