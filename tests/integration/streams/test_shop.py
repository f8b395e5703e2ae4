"""The shop's stores against its database: PostgreSQL, capture, pipelines and stores, with a kill.

The shop writes to PostgreSQL only. When it has closed, each store must hold what SQL says, row for row.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import SparkSession

from headrace.cdc.capture import Capture
from headrace.config import CaptureConfig, StreamsConfig
from headrace.errors import UsageError
from headrace.search import open_index
from headrace.streams.load import load_pipelines
from headrace.streams.replay import Replay
from headrace.streams.spans import Bound
from headrace.testing.postgres import TestDatabase
from headrace.testing.waiting import eventually
from shop_control import DELETE_PAST_LINES
from shop_generate import Shopkeeper, make_tables
from shop_restore import restore

pytestmark = [pytest.mark.spark, pytest.mark.long]

SHOP = Path(__file__).parents[3] / "examples" / "shop"
PIPELINES = SHOP / "shop_pipelines.py"
RECOVERY = SHOP / "shop_recovery.py"
WITHIN_S = 300.0
STEP_COUNT = 150

Rows = dict[Any, Any]


@contextmanager
def captured(database: TestDatabase, bootstrap: str, directory: Path) -> Iterator[None]:
    """The database's changes are published while the block runs."""
    config = CaptureConfig(
        name="shop",
        dsn=database.dsn,
        bootstrap=bootstrap,
        data_dir=directory,
        # Slots belong to the server, which all tests share.
        slot=f"shop_{database.execute('SELECT current_database()')[0][0]}",
    )
    capture = Capture(config)
    thread = threading.Thread(target=capture.keep_running, name="capture")
    thread.start()
    try:
        yield
    finally:
        capture.stop()
        thread.join(WITHIN_S)


class Stores:
    """What SQL says, and what each store holds."""

    def __init__(self, database: TestDatabase, directory: Path, redis: Any, bootstrap: str) -> None:
        self._database = database
        self._directory = directory
        self._redis = redis
        self._bootstrap = bootstrap

    def differences(self) -> dict[str, list[Any]]:
        """For each store, what is not the same in both: some of it."""
        pairs: dict[str, tuple[Callable[[], Rows], Callable[[], Rows]]] = {
            "search": (self.products, self.found_products),
            "cache": (self.carts, self.cached_carts),
            "warehouse": (self.orders, self.kept_orders),
            "view": (self.sold, self.viewed),
        }
        found = {}
        for store, (expected, held) in pairs.items():
            wanted, there = expected(), held()
            different = [
                (key, wanted.get(key), there.get(key))
                for key in {*wanted, *there}
                if wanted.get(key) != there.get(key)
            ]
            if different:
                found[store] = different[:3]
        return found

    def products(self) -> Rows:
        told = self._database.execute("SELECT product_id, name, price, stock FROM products")
        return {key: (name, price, stock) for key, name, price, stock in told}

    def found_products(self) -> Rows:
        try:
            with open_index(self._directory / "search", "products") as index:
                hits = index.search("*", limit=10_000)
        except UsageError:
            # It is made by the first batch.
            return {}
        rows = [hit.row for hit in hits]
        return {row["product_id"]: (row["name"], money(row["price"]), row["stock"]) for row in rows}

    def carts(self) -> Rows:
        carts: Rows = {
            key: (customer, [])
            for key, customer in self._database.execute("SELECT cart_id, customer FROM carts")
        }
        for key, *line in self._database.execute(
            "SELECT cart_id, product_id, quantity, price FROM cart_lines ORDER BY cart_id, product_id"
        ):
            carts[key][1].append(tuple(line))
        return carts

    def cached_carts(self) -> Rows:
        documents = [json.loads(text) for text in self._redis.client.hvals("carts")]
        for document in documents:
            assert document["item_count"] == sum(line["quantity"] for line in document["lines"])
        return {
            document["cart_id"]: (
                document["customer"],
                [(line["product_id"], line["quantity"], money(line["price"])) for line in document["lines"]],
            )
            for document in documents
        }

    def orders(self) -> Rows:
        told = self._database.execute("SELECT order_id, customer, status, placed_at, total FROM orders")
        return {key: tuple(rest) for key, *rest in told}

    def kept_orders(self) -> Rows:
        try:
            rows = DeltaTable(str(self._directory / "warehouse" / "orders")).to_pyarrow_table().to_pylist()
        except TableNotFoundError:
            return {}
        return {
            row["order_id"]: (row["customer"], row["status"], row["placed_at"], row["total"]) for row in rows
        }

    def sold(self) -> Rows:
        told = self._database.execute(
            "SELECT order_id, line, name, status, quantity * l.price FROM order_lines l "
            "JOIN orders USING (order_id) JOIN products USING (product_id)"
        )
        return {(order, line): tuple(rest) for order, line, *rest in told}

    def viewed(self) -> Rows:
        rows: Rows = {}
        for message in read_topic(self._bootstrap, "sold-products"):
            key = json.loads(message.key() or b"")
            place, value = (key["order_id"], key["line"]), message.value()
            if value is None:
                rows.pop(place, None)
            else:
                row = json.loads(value)
                rows[place] = (row["name"], row["status"], money(row["total"]))
        return rows


def read_topic(bootstrap: str, topic: str) -> Iterator[Message]:
    """All committed records, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=WITHIN_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        left = set(partitions)
        while left:
            message = consumer.poll(WITHIN_S)
            assert message is not None
            if (error := message.error()) is None:
                yield message
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(message.partition())
    finally:
        consumer.close()


def topics_of(bootstrap: str) -> set[str]:
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return set(client.list_topics(timeout=WITHIN_S).topics)


def money(value: float | str) -> Decimal:
    """An amount as the database has it, from JSON."""
    return Decimal(str(value)).quantize(Decimal("0.01"))


class Supervised:
    """The shop's pipelines. A driver that dies by itself is started again, as `headrace run` does it.

    Spark gives a Python process ten seconds to come up, which is too little where a machine is very busy.
    """

    def __init__(self, drive: Any) -> None:
        self._drive = drive
        self.start()

    def start(self) -> None:
        self.driver = self._drive(PIPELINES, realtime=False)

    def await_all(self, stores: Stores) -> None:
        """Wait until each store holds what the database holds."""

        def is_so() -> bool:
            if self.driver._process.poll() is not None:
                self.start()
            return not stores.differences()

        eventually(is_so, lambda: str(stores.differences()), within_s=WITHIN_S, pause_s=0.5)


def test_all_stores_hold_what_the_database_holds_also_after_a_kill(
    kafka: Any,
    drive: Any,
    headrace_postgres: TestDatabase,
    headrace_redis: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHOP_STORES", str(tmp_path / "stores"))
    monkeypatch.setenv("SHOP_REDIS", headrace_redis.url)
    products = make_tables(headrace_postgres.dsn, seed=5, product_count=60, past_line_count=150)
    stores = Stores(headrace_postgres, tmp_path / "stores", headrace_redis, kafka.bootstrap)

    def work(seed: int) -> None:
        Shopkeeper(headrace_postgres.dsn, seed=seed, announcements=products).keep(10_000, STEP_COUNT)

    with captured(headrace_postgres, kafka.bootstrap, tmp_path / "capture"):
        work(1)
        pipelines = Supervised(drive)
        pipelines.await_all(stores)
        work(2)
        # In the middle of whatever it does with that.
        pipelines.driver.kill()
        work(3)
        pipelines.start()
        work(4)
        pipelines.await_all(stores)
        assert pipelines.driver.end(signal.SIGTERM) == (0, "")


def test_rows_that_were_deleted_by_mistake_come_back_from_the_log(
    spark: SparkSession,
    kafka: Any,
    config: StreamsConfig,
    headrace_postgres: TestDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADRACE_POSTGRES", headrace_postgres.dsn)
    make_tables(headrace_postgres.dsn, seed=5, product_count=20, past_line_count=300)

    def published(operation: str) -> list[int]:
        """When such changes of lines were published."""
        return [
            message.timestamp()[1]
            for message in read_topic(kafka.bootstrap, "shop.public.order_lines")
            if (value := message.value()) is not None and json.loads(value)["op"] == operation
        ]

    def lines() -> list[tuple[Any, ...]]:
        return headrace_postgres.execute("SELECT * FROM order_lines ORDER BY order_id, line")

    with captured(headrace_postgres, kafka.bootstrap, tmp_path / "capture"):
        eventually(lambda: "shop.public.order_lines" in topics_of(kafka.bootstrap), within_s=WITHIN_S)
        headrace_postgres.execute("DELETE FROM order_lines WHERE order_id = 1")
        eventually(lambda: published("d"), within_s=WITHIN_S, pause_s=0.1)
        on_purpose = published("d")
        before, moment_ms = lines(), max(on_purpose) + 1
        eventually(lambda: time.time_ns() // 1_000_000 > moment_ms, within_s=WITHIN_S)
        headrace_postgres.execute(DELETE_PAST_LINES, 200)
        assert len(lines()) == len(before) - 200
        eventually(lambda: len(published("d")) == len(on_purpose) + 200, within_s=WITHIN_S, pause_s=0.1)

    (pipeline,) = load_pipelines(f"{RECOVERY}:order_lines_before")
    for missing_count in (200, 0):
        # The second time, too: the copy of the first is gone.
        replay = Replay(
            pipeline=pipeline, sources=pipeline.sources(), into="recovery.order_lines", config=config
        )
        replay.run(spark, replay.begin(finish=Bound(moment_ms=moment_ms, words=str(moment_ms))))
        assert restore(headrace_postgres.dsn, dry_run=True) == missing_count
        assert restore(headrace_postgres.dsn) == missing_count
        assert lines() == before
