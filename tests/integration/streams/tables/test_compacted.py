"""A new store has all rows of a table whose topic has only the last change of each key left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

import headrace.streams as hr
from headrace.broker import Broker
from headrace.config import Address, BrokerConfig, LogConfig, StreamsConfig
from headrace.streams.go_live import GoLive
from headrace.testing.waiting import eventually

pytestmark = pytest.mark.spark

WITHIN_S = 240.0
CHANGES_EACH = 50
OTHER = 99
products = hr.topic(
    "shop.public.products", format="debezium", key="id", schema="id bigint not null, v bigint", partitions=1
)


@pytest.fixture
def headrace_broker(tmp_path: Path) -> Iterator[Broker]:
    """One that compacts as often as it can."""
    config = BrokerConfig(
        listen=Address("127.0.0.1", 0), data_dir=tmp_path / "log", log=LogConfig(cleaner_interval_ms=20)
    )
    with Broker(config=config) as broker:
        yield broker


def upsert(number: int, version: int) -> tuple[str, str]:
    after = {"id": number, "v": version}
    return json.dumps({"id": number}), json.dumps({"op": "u", "before": None, "after": after})


def number(record: Any) -> int:
    return int(json.loads(record.key)["id"])


def version(record: Any) -> int:
    return 0 if record.value is None else int((json.loads(record.value)["after"] or {"v": 0})["v"])


def changes_of(id_: int) -> Iterator[tuple[str, str | None]]:
    """What a capture writes of one row: an insert, updates, and for every third one a delete."""
    key, row, before = json.dumps({"id": id_}), None, None
    for change in range(CHANGES_EACH):
        before, row = row, {"id": id_, "v": id_ * 1000 + change}
        yield key, json.dumps({"op": "u" if before else "c", "before": before, "after": row})
    if id_ % 3 == 0:
        yield key, json.dumps({"op": "d", "before": row, "after": None})
        yield key, None


def test_a_new_store_bootstraps_from_a_compacted_topic_alone(
    spark: SparkSession, kafka: Any, config: StreamsConfig, start: Any, processed: Any, keyed_store: Any
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    settings = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": "0",
        "internal.segment.bytes": "2000",
    }
    admin.create_topics([NewTopic(products.name, 1, 1, config=settings)])[products.name].result(30)
    kafka.produce(products.name, [change for id_ in range(6) for change in changes_of(id_)])

    attempts = count(1)

    def compacted() -> bool:
        # The segment that is written is never compacted, so others fill it, again and again.
        mark = next(attempts)
        kafka.produce(products.name, [upsert(OTHER, mark)] * 40)
        records = kafka.read(products.name, lambda found: found[-1:] and version(found[-1]) == mark)
        return [number(record) for record in records if number(record) != OTHER] == [1, 2, 4, 5]

    eventually(compacted, "the last change of each row, and nothing of deleted ones,", within_s=WITHIN_S)

    table = keyed_store.table("products", ["id"])

    @hr.pipeline(writes=table, reads={"rows": products}, name="products")
    def copied(rows: DataFrame) -> DataFrame:
        return hr.upserts(hr.changes(rows, buckets=1), buckets=1)

    made = GoLive(pipeline=copied, config=config)
    plan = made.plan()
    made.run(spark, plan, made.prepare(plan, swap=False))
    last = CHANGES_EACH - 1
    kept = {row["id"]: row["v"] for row in keyed_store.rows("products") if row["id"] != OTHER}
    assert kept == {id_: id_ * 1000 + last for id_ in (1, 2, 4, 5)}

    # It goes on live, and a row of which it knows the last change only can be changed and deleted.
    kafka.produce(
        products.name,
        [
            upsert(1, 7),
            (json.dumps({"id": 2}), json.dumps({"op": "d", "before": {"id": 2, "v": 2049}, "after": None})),
            (json.dumps({"id": 2}), None),
        ],
    )
    queries = start(copied, realtime=False)
    processed("products", products.name)
    queries.stop()
    kept = {row["id"]: row["v"] for row in keyed_store.rows("products") if row["id"] != OTHER}
    assert kept == {1: 7, 4: 4049, 5: 5049}
