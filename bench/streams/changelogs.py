"""A join of tables in which one change touches many rows: a product's price, and 100,000 orders of it.

    python bench/streams/changelogs.py                              # 100,000 orders of one product
    python bench/streams/changelogs.py --orders 2000 --runs 1       # only to see that it works

Products (upserts) and orders (in Debezium's format), in topics of a broker process (durability sync), are
joined by `hr.join_tables`, and each order with its price is written to a topic, exactly once. Once all orders
are there, the price of one product changes: the time is from sending it until the last of its orders is read
with the new price. Beside it stand changes that touch one order, and what the pipeline takes in at first. The
results are compared with what they must be, and the benchmark fails where they differ.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.streams.admin import ensure_topics
from headrace.streams.plan import make_plan
from headrace.streams.queries import Queries
from headrace.testing.process import BrokerProcess
from sessions import our_session

PARTITIONS: Final = 4
PRODUCTS: Final = 1_000
WITHIN_S: Final = 600.0

orders = hr.topic(
    "orders",
    format="debezium",
    key="order_id",
    schema="order_id bigint not null, product_id bigint, quantity int",
    partitions=PARTITIONS,
)
products = hr.topic(
    "products",
    format="upsert",
    key="product_id",
    schema="product_id bigint not null, name string, price double",
    partitions=PARTITIONS,
)


@hr.pipeline(writes=hr.topic("priced", key="order_id", partitions=PARTITIONS))
def priced(orders: DataFrame, products: DataFrame) -> DataFrame:
    """Each order with its product."""
    return hr.upserts(hr.join_tables(hr.changes(orders), hr.changes(products), on="product_id", how="left"))


class Results:
    """What was written, by order; reads on from where it was."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "isolation.level": "read_committed"}
        self._consumer = Consumer({**settings, "enable.auto.commit": False})
        self._consumer.assign([TopicPartition("priced", partition, 0) for partition in range(PARTITIONS)])
        self.current: dict[int, dict[str, Any]] = {}
        self.count = 0

    def await_count(self, count: int) -> float:
        """Wait for so many more records; return when the last of them came."""
        deadline_s = time.monotonic() + WITHIN_S
        wanted = self.count + count
        while self.count < wanted:
            if time.monotonic() > deadline_s:
                raise SystemExit(f"only {self.count} of {wanted} results came within {WITHIN_S:.0f} s")
            for message in self._consumer.consume(10_000, timeout=0.05):
                value = message.value()
                assert value is not None
                row = json.loads(value)
                self.current[row["order_id"]] = row
                self.count += 1
        return time.perf_counter()

    def close(self) -> None:
        """End reading."""
        self._consumer.close()


def order(order_id: int, product_id: int, quantity: int) -> tuple[str, str]:
    """A change event."""
    after = {"order_id": order_id, "product_id": product_id, "quantity": quantity}
    return json.dumps({"order_id": order_id}), json.dumps({"op": "c", "before": None, "after": after})


def product(product_id: int, price: float) -> tuple[str, str]:
    """What a product is now."""
    return str(product_id), json.dumps({"product_id": product_id, "name": f"p{product_id}", "price": price})


@contextmanager
def running(config: StreamsConfig) -> Iterator[None]:
    """The pipeline, live."""
    plan = make_plan([priced])
    ensure_topics(config, plan.topics())
    with our_session(config) as session:
        queries = Queries(session=session, config=config, realtime=False)
        queries.start(plan, [])
        try:
            yield
        finally:
            queries.stop()


def measure(config: StreamsConfig, count: int, runs: int) -> None:
    """Fill, change, and print."""
    producer = Producer({"bootstrap.servers": config.bootstrap, "linger.ms": 5})

    def send(topic: str, records: Iterable[tuple[str, str]]) -> float:
        begin_s = time.perf_counter()
        for key, value in records:
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush(WITHIN_S)
        return begin_s

    def timed(topic: str, record: tuple[str, str], touched: int) -> float:
        begin_s = send(topic, [record])
        return results.await_count(touched) - begin_s

    ensure_topics(config, make_plan([priced]).topics())
    send("products", (product(number, 1.0) for number in range(PRODUCTS)))
    results = Results(config.bootstrap)
    with running(config):
        # One product has half of all orders.
        begin_s = send(
            "orders", (order(n, 0 if n % 2 else 1 + n % (PRODUCTS - 1), 1) for n in range(2 * count))
        )
        took_s = results.await_count(2 * count) - begin_s
        print(f"{f'{2 * count:,} orders taken in':50} {took_s:8.2f} s  ({2 * count / took_s:,.0f} orders/s)")
        new_orders_s, new_prices_s = [], []
        for run in range(runs):
            # Each large batch comes after a small one, by which Spark takes it to be small, too.
            new_orders_s.append(timed("orders", order(-1 - run, 0, 1), 1))
            new_prices_s.append(timed("products", product(0, 2.0 + run), count + run + 1))
    _show("a new order, one result", new_orders_s)
    _show(f"a new price, {count:,} results", new_prices_s)
    wrong = sum(
        row["price"] != (1.0 + runs if row["product_id"] == 0 else 1.0) for row in results.current.values()
    )
    results.close()
    if wrong or len(results.current) != 2 * count + runs:
        raise SystemExit(f"{wrong} of {len(results.current)} orders have a wrong price")
    print("all results are as they must be")


def _show(what: str, times_s: Sequence[float]) -> None:
    print(f"{what:50} {statistics.median(times_s):8.2f} s  ({min(times_s):.2f} to {max(times_s):.2f})")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--orders", type=int, default=100_000, help="of one product, and of all others")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as home,
        BrokerProcess(Path(home) / "broker") as server,
    ):
        config = StreamsConfig(bootstrap=server.bootstrap, data_dir=Path(home) / "data")
        measure(config, options.orders, options.runs)


if __name__ == "__main__":
    main()
