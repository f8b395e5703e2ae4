"""What `check` says of a changed pipeline, beside what Spark does when it is restarted so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import PipelineError
from headrace.streams.admin import ensure_topics, identify
from headrace.streams.check import check_in, describe_pipeline, keep_plan
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.origin import keep_origin
from headrace.streams.pipeline import Pipeline
from headrace.streams.plan import make_plan
from headrace.streams.source import Reader, read_stream
from headrace.streams.topic import Topic

pytestmark = pytest.mark.spark

ORDERS = "id string not null, amount double, fee double, at timestamp"
orders = hr.topic("orders", schema=ORDERS, event_time="at", watermark="1 minute", partitions=1)
returns = hr.topic("returns", schema=ORDERS, event_time="at", watermark="1 minute", partitions=1)
out = hr.topic("out", key="id", partitions=1)

Frame = Callable[..., DataFrame]


def pipeline(function: Frame, **reads: Topic) -> Pipeline[Any]:
    return hr.pipeline(writes=out, name="totals", reads=reads or {"rows": orders})(function)


def by_minute(
    rows: DataFrame, *aggregates: str, minutes: int = 1, keys: tuple[str, ...] = ("id",)
) -> DataFrame:
    grouped = rows.groupBy(F.window("at", f"{minutes} minutes").alias("window"), *keys)
    totals = grouped.agg(*(F.expr(aggregate) for aggregate in aggregates))
    return totals.select("id", F.col("window.start").alias("from"), "*").drop("window")


TOTAL = "sum(amount) AS total"
NUMBER = "count(*) AS number"


def kept(rows: DataFrame) -> DataFrame:
    return by_minute(rows, TOTAL, NUMBER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    changed: Pipeline[Any]
    says: str | None
    """What check finds; None for nothing."""
    breaking: bool
    spark_goes_on: bool


def case(name: str, function: Frame, says: str | None, *, breaking: bool, spark_goes_on: bool) -> Case:
    return Case(
        name=name, changed=pipeline(function), says=says, breaking=breaking, spark_goes_on=spark_goes_on
    )


CASES = [
    case(
        "a new filter and a new column",
        lambda rows: by_minute(rows.where("amount > 0"), TOTAL, NUMBER).withColumn("new", F.lit(1)),
        None,
        breaking=False,
        spark_goes_on=True,
    ),
    Case(
        name="another name for a parameter",
        changed=pipeline(lambda renamed: kept(renamed), renamed=orders),  # noqa: PLW0108 - for its parameter
        says=None,
        breaking=False,
        spark_goes_on=True,
    ),
    case(
        "another column under the old name",
        lambda rows: by_minute(rows.withColumn("amount", F.col("amount") * 100), TOTAL, NUMBER),
        "what sum(amount) is made of has changed",
        breaking=False,
        spark_goes_on=True,
    ),
    case(
        "a new aggregate",
        lambda rows: by_minute(rows, TOTAL, NUMBER, "max(amount) AS largest"),
        "the aggregate by window, id keeps max(amount) in addition",
        breaking=True,
        spark_goes_on=False,
    ),
    case(
        "an aggregate less",
        lambda rows: by_minute(rows, TOTAL),
        "the aggregate by window, id no longer keeps count(1)",
        breaking=True,
        spark_goes_on=False,
    ),
    case(
        "another key",
        lambda rows: by_minute(rows.withColumn("id", F.lower("id")), TOTAL, NUMBER),
        "its key id is made in another way",
        breaking=True,
        spark_goes_on=True,
    ),
    case(
        "a key more",
        lambda rows: by_minute(rows, TOTAL, NUMBER, keys=("id", "fee")),
        "the aggregate is by window, id, fee instead of window, id",
        breaking=True,
        spark_goes_on=False,
    ),
    case(
        "a sum that became a maximum",
        lambda rows: by_minute(rows, "max(amount) AS total", NUMBER),
        "keeps max(amount) in addition",
        breaking=True,
        spark_goes_on=True,
    ),
    case(
        "a longer window",
        lambda rows: by_minute(rows, TOTAL, NUMBER, minutes=5),
        "its key window is made in another way",
        breaking=True,
        spark_goes_on=True,
    ),
    case(
        "a second stateful operator",
        lambda rows: by_minute(rows.dropDuplicates(["id", "at"]), TOTAL, NUMBER),
        "the dropDuplicates by id, at is new",
        breaking=True,
        spark_goes_on=False,
    ),
    case(
        "no state any more",
        lambda rows: rows.select("id", "amount"),
        "the aggregate by window, id is gone",
        breaking=True,
        spark_goes_on=False,
    ),
    Case(
        name="a second topic",
        changed=pipeline(
            lambda rows, more: by_minute(rows.unionByName(more), TOTAL, NUMBER), rows=orders, more=returns
        ),
        says="the topic returns is read in addition",
        breaking=True,
        spark_goes_on=False,
    ),
    Case(
        name="another topic",
        changed=pipeline(kept, rows=returns),
        says="the topic orders is no longer read",
        breaking=True,
        spark_goes_on=False,
    ),
    Case(
        name="another type",
        changed=pipeline(
            kept, rows=replace(orders, schema=ORDERS.replace("amount double", "amount decimal(10,2)"))
        ),
        says="keeps sum(amount) in another type",
        breaking=True,
        spark_goes_on=False,
    ),
]


def run(session: SparkSession, config: StreamsConfig, made: Pipeline[Any], checkpoint: Path) -> None:
    """All that is there, as `headrace run` would, but asking nobody."""
    frames = {
        name: read_stream(session, topic, Reader(name=made.name, config=config))
        for name, topic in made.sources().items()
    }
    query = (
        made.build(frames)
        .writeStream.format("noop")
        .option("checkpointLocation", f"file://{checkpoint}")
        .outputMode("update")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def produce(kafka: Any, topic: str, *amounts: float) -> None:
    records = [{"id": "A", "amount": amount, "fee": 0.0, "at": "2026-01-01T00:00:30Z"} for amount in amounts]
    kafka.produce(topic, [("A", json.dumps(record)) for record in records])


@pytest.fixture
def first_run(spark: SparkSession, kafka: Any, config: StreamsConfig) -> Pipeline[Any]:
    """The pipeline as it was, after a batch."""
    ensure_topics(config, {"orders": 1, "returns": 1, "out": 1})
    produce(kafka, "orders", 1, 2)
    made = pipeline(kept)
    plan = describe_pipeline(spark, made, made.sources(), config)
    keep_plan(config, made, plan, realtime=False)
    run(spark, config, made, checkpoint_path(config, "totals"))
    produce(kafka, "orders", 4)
    produce(kafka, "returns", 8)
    return made


def test_check_refuses_what_spark_refuses_and_what_spark_would_get_wrong(
    spark: SparkSession, config: StreamsConfig, first_run: Pipeline[Any], tmp_path: Path
) -> None:
    found, expected = {}, {}
    for number, each in enumerate(CASES):
        (answer,) = check_in(spark, make_plan([each.changed]), config, origin=None)
        told = [str(change) for change in answer.changes if "no broker" not in change.what]
        says = each.says if told and each.says is not None and each.says in " ".join(told) else told
        copy = tmp_path / f"copy {number}"
        shutil.copytree(checkpoint_path(config, "totals"), copy)
        try:
            run(spark, config, each.changed, copy)
            goes_on = True
        except PySparkException:
            goes_on = False
        found[each.name] = (says or None, not answer.can_go_on, goes_on)
        expected[each.name] = (each.says, each.breaking, each.spark_goes_on)

    assert found == expected


def test_a_run_is_refused_before_it_begins_and_leaves_all_as_it_was(
    spark: SparkSession, config: StreamsConfig, first_run: Pipeline[Any], start: Any
) -> None:
    longer = pipeline(lambda rows: by_minute(rows, TOTAL, NUMBER, minutes=5))

    with pytest.raises(PipelineError, match=r"totals can't go on .* key window .* another name"):
        start(longer, realtime=False)

    (answer,) = check_in(spark, make_plan([first_run]), config, origin=None)
    assert answer.can_go_on
    assert [change.what for change in answer.changes] == [f"no broker answers at {config.bootstrap}"]


def test_a_topic_that_was_created_anew_is_found(
    spark: SparkSession, config: StreamsConfig, first_run: Pipeline[Any], headrace_broker: Any
) -> None:
    plan = make_plan([first_run])
    origin = identify(config, ["orders"])
    keep_origin(config, "totals", origin)
    anew = replace(origin, topic_ids={"orders": "another"})

    (same,) = check_in(spark, plan, config, origin=origin)
    (other,) = check_in(spark, plan, config, origin=anew)

    assert same.changes == ()
    assert not other.can_go_on
    assert "a topic orders that was deleted since, and created anew" in str(other)
