"""What a capture has published, compared with the tables at a known position."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

import headrace.streams as hr
from headrace.cli import view_source
from headrace.cli.view_source import snapshot_of
from headrace.config import StreamsConfig
from headrace.errors import ConfigError, PipelineError
from headrace.streams.source_check import SourceDifference, compare_in, refuse_other_sources

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.integration.cdc.conftest import World

    from headrace.broker import Broker

ORDERS = "shop.public.orders"

pytestmark = pytest.mark.spark

orders = hr.topic(ORDERS, schema="id bigint, v string", format="debezium", key="id")


def copied(orders: DataFrame) -> DataFrame:
    return hr.upserts(hr.changes(orders))


def silent(_line: str) -> None:
    """Nobody looks on."""


@pytest.mark.long
def test_the_log_is_compared_with_the_tables_while_both_go_on(
    world: World, headrace_spark: SparkSession, tmp_path: Path
) -> None:
    world.database.execute("CREATE TABLE orders (id int PRIMARY KEY, v text)")
    world.database.execute("INSERT INTO orders SELECT n, 'v' || n FROM generate_series(1, 200) n")
    topics = world.follow(ORDERS)
    pipeline: Any = hr.pipeline(writes=hr.delta_table(tmp_path / "orders", key="id"))(copied)
    config = StreamsConfig(bootstrap=world.config.bootstrap, data_dir=tmp_path / "data")
    with world.running():
        world.await_streaming()
        world.database.execute("UPDATE orders SET v = 'new' WHERE id < 10")
        world.database.execute("DELETE FROM orders WHERE id = 100")
        with snapshot_of(world.config, refuse_other_sources(pipeline, "shop"), silent) as taken:
            # What comes later is in the topic, and not in the snapshot.
            world.database.execute("UPDATE orders SET v = 'later' WHERE id = 50")
            world.eventually_equal(topics, ORDERS, "orders")
            same = compare_in(headrace_spark, pipeline, config, snapshots=taken.topics, lsn=taken.lsn)
        assert (same.row_count, same.different_ranges, same.different_count) == (199, 0, 0)

        # Nobody publishes what is written meanwhile.
        world.database.execute("ALTER PUBLICATION shop DROP TABLE orders")
        world.database.execute("UPDATE orders SET v = 'missed' WHERE id = 1")
        world.database.execute("ALTER PUBLICATION shop ADD TABLE orders")
        with snapshot_of(world.config, [ORDERS], silent) as taken:
            found = compare_in(headrace_spark, pipeline, config, snapshots=taken.topics, lsn=taken.lsn)
    assert (found.different_ranges, found.different_count) == (1, 1)
    assert found.examples == (
        SourceDifference(key='{"id":1}', of_source='{"id":1,"v":"missed"}', of_log='{"id":1,"v":"new"}'),
    )


def test_a_capture_that_does_not_run_is_not_waited_for_without_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.database.execute("CREATE TABLE orders (id int PRIMARY KEY, v text)")
    monkeypatch.setattr(view_source, "PUBLISHED_S_MAX", 0.0)
    with world.running():
        world.await_streaming()
    with (
        pytest.raises(ConfigError, match="is it running"),
        snapshot_of(world.config, [ORDERS], silent),
    ):
        pass


@pytest.mark.parametrize(
    ("target", "reads", "told"),
    [
        (hr.topic("copies", key="id"), orders, "writes no store with a key"),
        (hr.delta_table("t"), orders, "writes no store with a key"),
        (
            hr.delta_table("t", key="id"),
            hr.topic("clicks", schema="id bigint"),
            "reads clicks, which no capture writes",
        ),
    ],
)
def test_what_is_no_copy_of_tables_is_not_compared_with_them(target: Any, reads: Any, told: str) -> None:
    pipeline: Any = hr.pipeline(writes=target, reads={"orders": reads})(copied)
    with pytest.raises(PipelineError, match=told):
        refuse_other_sources(pipeline, "shop")


def event(number: int, v: str, lsn: int | None, transaction: str | None) -> bytes:
    return json.dumps(
        {
            "op": "r" if transaction is None else "c",
            "before": None,
            "after": {"id": number, "v": v},
            "source": {"lsn": lsn, "ts_us": 1, "table": "orders"},
            "transaction": None if transaction is None else {"id": transaction},
        }
    ).encode()


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(event(1, "later", 180, "8:250"), id="open at the position"),
        pytest.param(event(1, "later", 200, "8:250"), id="begun at the position"),
        pytest.param(event(1, "later", 180, "8:200"), id="committed at the position"),
        pytest.param(event(1, "later", 201, None), id="a snapshot behind the position"),
    ],
)
def test_a_change_counts_where_its_transaction_committed_before_the_position(
    headrace_broker: Broker, headrace_spark: SparkSession, tmp_path: Path, later: bytes
) -> None:
    before = [event(1, "a", 100, "7:199"), event(2, "b", None, None)]
    producer = Producer({"bootstrap.servers": headrace_broker.bootstrap})
    for topic, values in ((ORDERS, [*before, later]), ("copy", [event(1, "a", 200, None), before[1]])):
        for value in values:
            producer.produce(topic, value, json.dumps({"id": json.loads(value)["after"]["id"]}), partition=0)
    producer.flush(60)
    pipeline: Any = hr.pipeline(writes=hr.delta_table(tmp_path / "orders", key="id"))(copied)
    config = StreamsConfig(bootstrap=headrace_broker.bootstrap, data_dir=tmp_path / "data")
    found = compare_in(headrace_spark, pipeline, config, snapshots={ORDERS: "copy"}, lsn=200)
    assert found.examples == ()
    assert (found.row_count, found.different_count) == (2, 0)
