"""Joins of a stream with a table on Spark: whole before the first event, through a crash, and in batch."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace.streams as hr
from headrace.errors import PipelineError
from headrace.streams.plan import make_plan
from headrace.streams.verify import BY_ARRIVAL, verify_in

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
orders = hr.topic(
    "orders",
    schema="order_id bigint, product_id bigint, at timestamp",
    event_time="at",
    watermark="10 seconds",
    partitions=2,
)
products = hr.topic(
    "products",
    format="debezium",
    key="id",
    schema="id bigint not null, name string, price double",
    max_records_per_batch=3,
)
prices = hr.topic(
    "prices", format="upsert", key="product_id", schema="product_id bigint not null, price double"
)


@hr.pipeline(writes=hr.topic("priced", key="order_id"))
def priced(orders: DataFrame, products: DataFrame) -> DataFrame:
    version = hr.as_of(keep="1 hour")
    found = hr.lookup(orders, products, on={"product_id": "id"}, version=version, how="left", buckets=2)
    return found.select("order_id", "name", "price")


@hr.pipeline(writes=hr.topic("current", key="order_id"))
def current(orders: DataFrame, prices: DataFrame) -> DataFrame:
    missing = hr.wait("1 minute", then=hr.side_output("unknown"))
    return hr.lookup(orders, prices, on="product_id", missing=missing, buckets=2).select("order_id", "price")


def order(number: int, product: int | None, second: int) -> dict[str, Any]:
    return {"order_id": number, "product_id": product, "at": NOON + timedelta(seconds=second)}


def changed(op: str, product: int, second: int, **row: Any) -> str:
    source = {"ts_us": int((NOON + timedelta(seconds=second)).timestamp() * 1_000_000)}
    rows = {"before": {"id": product}, "after": None if op == "d" else {"id": product, **row}}
    return json.dumps({"op": op, **rows, "source": source})


def result(number: int, name: str | None, price: float | None) -> dict[str, Any]:
    return {"order_id": number, "name": name, "price": price}


HISTORY = [
    changed("c", 1, -60, name="tea", price=2.0),
    changed("c", 2, -60, name="ice", price=1.0),
    changed("u", 1, 30, name="tea", price=3.0),
    changed("d", 2, 40),
    changed("c", 3, 50, name="jam", price=4.0),
]
ORDERS = [
    order(1, 1, 0),
    order(2, 1, 30),
    order(3, 2, 39),
    order(4, 2, 40),
    order(5, 3, 0),
    order(6, None, 0),
]
RESULTS = [
    result(1, "tea", 2.0),
    result(2, "tea", 3.0),
    result(3, "ice", 1.0),
    result(4, None, None),
    result(5, None, None),
    result(6, None, None),
]


def test_the_table_is_whole_before_the_first_event_is_joined(headrace_pipeline: Any) -> None:
    script = headrace_pipeline(priced)
    # Three changes in each micro-batch, and all orders in the first; the last record is no change at all.
    script.add(products, *HISTORY[:3]).add(products, *HISTORY[3:]).add(products, json.dumps({"op": "m"}))
    script.add(orders, *ORDERS)
    # The results are not written, so those that were held are joined again.
    script.crash("pipeline.task.produced")
    script.expect(*RESULTS)


def test_a_batch_gives_the_same(headrace_spark: SparkSession) -> None:
    found = priced(
        hr.static(headrace_spark, orders, ORDERS), hr.static(headrace_spark, products, HISTORY)
    ).collect()
    assert sorted((row.asDict() for row in found), key=lambda row: row["order_id"]) == RESULTS


def test_missing_rows_are_waited_for_and_what_came_when_explains_the_differences(
    headrace_pipeline: Any, headrace_spark: SparkSession
) -> None:
    script = headrace_pipeline(current)
    script.add(prices, {"product_id": 1, "price": 1.0})
    script.add(orders, order(1, 1, 0), order(2, 2, 0), order(3, 3, 0))
    script.expect({"order_id": 1, "price": 1.0})
    script.add(prices, {"product_id": 1, "price": 2.0}, {"product_id": 2, "price": 2.0})
    script.add(orders, order(4, 1, 1))
    script.expect({"order_id": 2, "price": 2.0}, {"order_id": 4, "price": 2.0})
    script.advance(orders, NOON + timedelta(seconds=90))
    script.expect()
    unknown = hr.topic("unknown", key="product_id")
    script.expect({**order(3, 3, 0), "at": "2026-01-02T12:00:00.000000Z", "reason": "no row"}, topic=unknown)

    sources = make_plan([current]).sources["current"]
    outcome = verify_in(headrace_spark, current, sources, script._config)
    assert outcome.verdict == "equal"
    told = {
        (each.kind, each.computed, each.written, each.judgement, each.cause) for each in outcome.differences
    }
    assert told == {
        ("missing", '{"order_id":1,"price":2}', None, "expected", BY_ARRIVAL),
        ("unexpected", None, '{"order_id":1,"price":1}', "expected", BY_ARRIVAL),
    }


def test_what_can_not_be_joined_is_refused(headrace_spark: SparkSession) -> None:
    events = hr.static(headrace_spark, orders, ORDERS)
    table = hr.static(headrace_spark, products, HISTORY)
    with pytest.raises(PipelineError, match="the table has a row for each id"):
        hr.lookup(events, table, on={"product_id": "price"})
    with pytest.raises(PipelineError, match="are no changes of a table"):
        hr.lookup(events, events.drop("order_id", "at"), on="product_id")
    with pytest.raises(PipelineError, match="in a changelog not each version is seen"):
        hr.lookup(events, hr.changes(table), on={"product_id": "id"}, version=hr.as_of(keep="1 hour"))
    with pytest.raises(PipelineError, match="both the stream and the table have a column 'name'"):
        hr.lookup(events.withColumnRenamed("at", "name"), table, on={"product_id": "id"})
