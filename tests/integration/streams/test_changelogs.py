"""Changelogs on Spark: exact results after each micro-batch, through crashes and restarts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.errors import ConfigError, PipelineError
from headrace.streams.load import load_pipelines
from headrace.streams.sinks.records import to_records
from headrace.streams.sinks.table_rows import table_rows
from headrace.streams.verify import verify_in

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
PRICED, REVENUE = load_pipelines(str(ROOT / "examples" / "orders" / "orders.py"))
ORDERS, PRODUCTS = PRICED.sources().values()
NOON_US = int(datetime(2026, 1, 2, 12, tzinfo=UTC).timestamp()) * 1_000_000


def event(op: str, after: Mapping[str, Any] | None = None, before: Mapping[str, Any] | None = None) -> str:
    source = {"ts_us": NOON_US, "lsn": 7, "table": "orders"}
    told = {"op": op, "before": before, "after": after, "source": source, "transaction": None, "ts_ms": 1}
    return json.dumps(told)


def order(order_id: int, product_id: int | None, quantity: int | None) -> dict[str, Any]:
    return {"order_id": order_id, "product_id": product_id, "quantity": quantity}


def product(product_id: int, name: str, price: float | None) -> dict[str, Any]:
    return {"product_id": product_id, "name": name, "price": price}


def priced(order_id: int, quantity: int | None, of: Mapping[str, Any]) -> dict[str, Any]:
    price = of.get("price")
    total = None if price is None or quantity is None else price * quantity
    product_id = of["product_id"]
    return {
        "order_id": order_id,
        "product_id": product_id,
        "quantity": quantity,
        "name": of.get("name"),
        "price": price,
        "total": total,
    }


TEA, COFFEE = product(1, "tea", 2.5), product(2, "kaffee ü", 4.0)


def test_a_join_of_changing_tables_is_right_after_each_change_and_crash(headrace_pipeline: Any) -> None:
    script = headrace_pipeline(PRICED)
    script.add(PRODUCTS, TEA)
    script.add(
        ORDERS,
        event("r", order(1, 1, 2)),
        event("c", order(2, 1, 3)),
        event("c", order(3, 2, 1)),
        event("c", order(4, None, 5)),
        # Sent twice, and changed in the same batch: what was between is not seen.
        event("c", order(3, 2, 1)),
        event("u", order(1, 1, 4), before=order(1, None, None)),
    )
    script.expect(
        priced(1, 4, TEA),
        priced(2, 3, TEA),
        priced(3, 1, {"product_id": 2}),
        priced(4, 5, {"product_id": None}),
    )
    # A new price changes the orders of the product alone; a product that comes, those that waited for it.
    dearer = {**TEA, "price": 3.0}
    script.add(PRODUCTS, dearer, COFFEE)
    script.crash("pipeline.task.produced")
    script.expect(priced(1, 4, dearer), priced(2, 3, dearer), priced(3, 1, COFFEE))
    # An order for another product, one that is gone, and one whose key has changed.
    script.add(
        ORDERS,
        event("u", order(1, 2, 4)),
        event("d", before=order(2, None, None)),
        # A tombstone says nothing that the event before it has not; null as a text is no event.
        {"order_id": 2, "_delete": True},
        "null",
        event("d", before=order(4, None, None)),
        event("c", order(40, 2, 5)),
        event("m"),
    )
    script.expect(
        priced(1, 4, COFFEE),
        {"order_id": "2", "_delete": True},
        {"order_id": "4", "_delete": True},
        priced(40, 5, COFFEE),
    )
    script.add(PRODUCTS, {"product_id": 2, "_delete": True}).restart()
    gone = {"product_id": 2}
    script.expect(priced(1, 4, gone), priced(3, 1, gone), priced(40, 5, gone))
    script.add(ORDERS, event("t"), event("c", order(9, 1, 1)))
    script.expect(*({"order_id": str(each), "_delete": True} for each in (1, 3, 40)), priced(9, 1, dearer))
    comparison = verify_in(script._session, PRICED, PRICED.sources(), script._config)
    assert (comparison.verdict, comparison.computed_count, comparison.differences) == ("equal", 1, ())
    script.add(ORDERS, event("c", {"order_id": None}), event("x", order(1, 1, 1)))
    script.expect_dead_letters(
        ORDERS,
        {"value": "null", "cause": "the value is JSON but not an object"},
        {
            "value": event("c", {"order_id": None}),
            "cause": "a required column has no value: after.order_id (bigint)",
        },
        {
            "value": event("x", order(1, 1, 1)),
            "cause": "no change event of the table: op is c, u or r with order_id in after, d with "
            "order_id in before, or t",
        },
    )


def test_aggregates_of_a_join_follow_what_comes_and_goes(headrace_pipeline: Any) -> None:
    script = headrace_pipeline(REVENUE)
    script.add(PRODUCTS, TEA, COFFEE)
    script.add(ORDERS, event("c", order(1, 1, 2)), event("c", order(2, 1, 8)), event("c", order(3, 2, 1)))

    def sold(name: str, orders: int, total: float, largest: int) -> dict[str, Any]:
        return {"name": name, "orders": orders, "total": total, "largest": largest}

    script.expect(sold("tea", 2, 25.0, 8), sold("kaffee ü", 1, 4.0, 1))
    script.add(ORDERS, event("d", before={"order_id": 2}), event("u", order(3, 1, 1)))
    script.crash("pipeline.task.begun")
    script.expect(sold("tea", 2, 7.5, 2), {"name": "kaffee ü", "_delete": True})
    script.add(PRODUCTS, {**TEA, "name": "chai"}).restart()
    script.expect({"name": "tea", "_delete": True}, sold("chai", 2, 7.5, 2))


def test_the_history_of_a_table_is_kept_by_version(headrace_pipeline: Any, tmp_path: Path) -> None:
    table = hr.delta_table(tmp_path / "versions", key=["product_id", "valid_from"])

    @hr.pipeline(writes=table, reads={"products": PRODUCTS})
    def versions(products: DataFrame) -> DataFrame:
        return hr.history(products)

    script = headrace_pipeline(versions)
    script.add(PRODUCTS, TEA).process()
    script.add(PRODUCTS, {**TEA, "price": 3.0}, COFFEE).crash("pipeline.task.committed")
    script.add(PRODUCTS, {"product_id": 2, "_delete": True}, {**TEA, "price": 3.0}).process()
    rows = sorted(
        DeltaTable(str(table.path)).to_pyarrow_table().to_pylist(), key=lambda row: row["valid_from"]
    )
    old, new = (row for row in rows if row["product_id"] == 1)
    (coffee,) = (row for row in rows if row["product_id"] == 2)
    assert (old["price"], new["price"], coffee["price"]) == (2.5, 3.0, 4.0)
    assert (old["valid_to"], new["valid_to"]) == (new["valid_from"], None)
    assert coffee["valid_to"] > coffee["valid_from"]


def test_batches_give_the_table_as_it_is_at_the_end(headrace_spark: SparkSession) -> None:
    orders = hr.static(
        headrace_spark,
        ORDERS,
        [event("c", order(1, 1, 2)), event("c", order(2, 1, 3)), event("d", before={"order_id": 1})],
    )
    products = hr.static(
        headrace_spark, PRODUCTS, [TEA, COFFEE, {**TEA, "price": 3.0}, {"product_id": 2, "_delete": True}]
    )
    (row,) = [each.asDict() for each in PRICED(orders, products).collect()]
    assert row == {**priced(2, 3, {**TEA, "price": 3.0}), "_delete": False}
    ids = ["571:5309", "571:5310", "36e2e4f1-2a5b-11ee-be56-0242ac120002:23", None]
    told = [json.dumps({"op": "t", "transaction": id_ and {"id": id_}}) for id_ in ids]
    read = [row["_change"]["transaction"] for row in hr.static(headrace_spark, ORDERS, told).collect()]
    assert read == ["571", "571", *ids[2:]]
    changes = hr.changes(products)
    assert {each["name"]: each["_weight"] for each in changes.collect()} == {"tea": 1}
    # What Spark filters and projects is still a changelog, that knows its key.
    dear = changes.where("price > 100").select("product_id", F.upper("name").alias("name"), "_weight")
    assert hr.upserts(dear).collect() == []
    different = hr.aggregate(hr.changes(orders), F.count_distinct("product_id").alias("products"))
    assert [each["products"] for each in different.collect()] == [1]


def captured(topic: hr.Topic) -> list[str]:
    """What Debezium wrote for a table that had inserts, updates, deletes, a changed key and a snapshot."""
    lines = (Path(__file__).parent / "debezium-events.ndjson").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [json.dumps(record["value"]) for record in records if record["topic"] == topic.name]


def test_what_debezium_writes_is_read_as_it_is(
    headrace_spark: SparkSession,
) -> None:
    demo = hr.topic(
        "dbz.public.demo",
        format="debezium",
        key="id",
        schema="id bigint not null, f double, ai array<int>, tz timestamp, big string, extra int",
    )
    changes = hr.changes(hr.static(headrace_spark, demo, captured(demo)))
    rows = {row["id"]: row for row in changes.collect()}
    assert {number: row["extra"] for number, row in rows.items()} == {1: None, 5: 1}
    assert (rows[1]["f"], rows[1]["ai"], rows[1]["_weight"]) == (1.5, [1, None, 3], 1)
    # It was not sent with the update, and is known from the insert.
    assert set(rows[1]["big"]) == {"x"}


LINES = hr.topic(
    "lines",
    format="upsert",
    key=["order_id", "line"],
    schema="order_id bigint not null, line int, quantity int",
)
LINE_EVENTS = hr.topic("line-events", format="debezium", key=LINES.key, schema=LINES.schema)


def test_a_key_of_several_columns_is_read_whole_or_not_at_all(headrace_pipeline: Any) -> None:
    """From the records' keys, and from what change events say; what has a part of it deletes nothing."""

    def line(order_id: int, number: int | None, quantity: int | None = None) -> dict[str, Any]:
        return {"order_id": order_id, "line": number, "quantity": quantity}

    @hr.pipeline(
        writes=hr.topic("copy", key=["line", "order_id"]), reads={"lines": LINES, "events": LINE_EVENTS}
    )
    def copied(lines: DataFrame, events: DataFrame) -> DataFrame:
        both = hr.changes(lines).unionByName(hr.changes(events).withColumn("quantity", -F.col("quantity")))
        return hr.upserts(both, key=["order_id", "line"])

    script = headrace_pipeline(copied)
    script.add(LINES, line(1, 1, 5), line(1, 2, 6), line(2, 1, 7))
    script.add(LINE_EVENTS, event("c", line(3, 1, 8)), event("c", line(3, 2, 9)))
    script.expect(line(1, 1, 5), line(1, 2, 6), line(2, 1, 7), line(3, 1, -8), line(3, 2, -9))
    script.add(LINES, {**line(1, 2), "_delete": True}, {**line(1, None), "_delete": True})
    script.add(LINE_EVENTS, event("d", before=line(3, 1)), event("d", before=line(3, None)))
    gone = [{"line": number, "order_id": order_id, "_delete": True} for order_id, number in ((1, 2), (3, 1))]
    script.expect(*gone)
    script.expect_dead_letters(
        LINES,
        {
            "value": None,
            "cause": "the value is null (a tombstone), and the key is no JSON object of order_id (bigint), "
            "line (int)",
        },
    )
    script.expect_dead_letters(
        LINE_EVENTS,
        {
            "value": event("d", before=line(3, None)),
            "cause": "no change event of the table: op is c, u or r with order_id and line in after, d with "
            "order_id and line in before, or t",
        },
    )
    comparison = verify_in(script._session, copied, copied.sources(), script._config)
    assert (comparison.verdict, comparison.computed_count, comparison.differences) == ("equal", 3, ())


def test_what_windows_take_back_is_a_changelog(headrace_spark: SparkSession) -> None:
    rows = headrace_spark.createDataFrame(
        [("a", 1, True), ("a", 2, False), ("b", 5, False)], "name string, total int, retracted boolean"
    )
    changes = hr.changes(rows, key="name")
    assert sorted((row["name"], row["_weight"]) for row in changes.collect()) == [
        ("a", -1),
        ("a", 1),
        ("b", 1),
    ]
    by_total = hr.aggregate(changes, F.sum("total").alias("sum"))
    assert [row["sum"] for row in by_total.collect()] == [6]


def test_what_is_no_changelog_and_can_not_be_joined_is_refused(headrace_spark: SparkSession) -> None:
    products = hr.static(headrace_spark, PRODUCTS, [TEA])
    changes = hr.changes(products)

    def refused(message: str, make: Any) -> None:
        with pytest.raises(PipelineError, match=message):
            make()

    plain: DataFrame = headrace_spark.createDataFrame([(1, "a")], "product_id int, name string")
    refused("are no changes of a table", lambda: hr.changes(plain))
    refused("no changelog, because they have no column _weight", lambda: hr.upserts(plain))
    refused("told apart by 'product_id'", lambda: hr.upserts(changes.drop("product_id")))
    refused("both tables have a column name", lambda: hr.join_tables(changes, changes, on="product_id"))
    weighted = plain.withColumn("_weight", F.lit(1))
    part = plain.withColumn("_weight", F.lit(0.5))
    refused("_weight is double, .*: make it int", lambda: hr.changes(part, key="product_id"))
    refused("_weight is double", lambda: hr.aggregate(part, by="name"))
    empty = hr.changes(plain.withColumn("_weight", F.lit(None).cast("int")), key="product_id")
    with pytest.raises(PySparkException, match="a row has no _weight: declare it as _weight int not null"):
        empty.collect()
    refused("are bigint and int: cast", lambda: hr.join_tables(changes, weighted, on="product_id"))
    refused(
        "how is 'outer'", lambda: hr.join_tables(changes, changes, on="product_id", how=cast("Any", "outer"))
    )
    refused("can't be kept current", lambda: hr.aggregate(changes, F.stddev("price"), by="name"))
    refused("tell the rows of the table apart is not known", lambda: hr.upserts(weighted))
    other, kept = hr.topic("copy", key="name"), hr.upserts(changes).withColumnRenamed("product_id", "id")
    refused("told apart by id, and writes topic copy by name", lambda: to_records(kept, other, pipeline="p"))
    versions = hr.delta_table("/nowhere", key="product_id")
    refused(
        "told apart by product_id, valid_from, and writes table /nowhere by product_id",
        lambda: table_rows(hr.history(products), versions, pipeline="p"),
    )
    with pytest.raises(ConfigError, match="as changes of a table"):
        hr.topic("products", format="upsert", schema="id int")
