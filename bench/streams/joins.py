"""Joins: two streams within an interval, and a stream with a table as it was; also with ten times the state.

    python bench/streams/joins.py                             # 2 million events, 3 runs each
    python bench/streams/joins.py --share 0.01 --runs 1       # only to see that it works
    python bench/streams/joins.py --only as-of

Events are JSON in topics of four partitions of a broker process (durability sync), and results are written to
another topic, exactly once.

- Interval: as many impressions as clicks, 1,000 events a second; a quarter of clicks find an impression of
  the same advertisement from less than a minute before. Ten times the state is an interval of ten minutes.
- As of: orders, each with the product as it was when it was ordered. The table has 2 million rows, each with
  one version, and 1 in 1,000 orders is followed by a new price. A tenth of the state is a table of 200,000.

Each way runs in a process of its own: `--runs` times, from the start of its query to the last batch. "Steady"
are all batches but the first, in which everything is started and the table is read. The results are compared
with those of a loop over dicts, by number and by a sum over all of them, and the benchmark fails where they
differ.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

import headrace.streams as hr
from cards import PARTITIONS, Ran, await_rows, read_values, reports_of
from headrace.config import StreamsConfig
from headrace.streams.admin import ensure_topics
from headrace.streams.plan import make_plan
from headrace.streams.queries import Queries
from headrace.streams.topic import Topic
from headrace.testing.process import BrokerProcess
from sessions import apart, our_session

FIRST_MS: Final = 1_767_225_600_000
EVENTS_A_SECOND: Final = 1000
ROWS_MANY: Final = 2_000_000
CHANGE_EVERY: Final = 1000
BUCKETS: Final = 8

Record = tuple[str, int, str]
"""A topic, a partition, and a value."""
Answer = tuple[int, int]
"""How many results there are, and the sum of a number that each has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One row of the table."""

    name: str
    kind: str
    size: int
    """The seconds of an interval, or the rows of a table, where there are 2 million events."""


INTERVAL, INTERVAL_MANY, AS_OF, AS_OF_MANY = WAYS = (
    Way(name="interval join, 1 minute", kind="interval", size=60),
    Way(name="interval join, 10 minutes", kind="interval", size=600),
    Way(name="as-of join, 200,000 rows", kind="as-of", size=ROWS_MANY // 10),
    Way(name="as-of join, 2,000,000 rows", kind="as-of", size=ROWS_MANY),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how much."""

    bootstrap: str
    home: Path
    events: int
    batch: int
    runs: int
    share: float

    def size_of(self, way: Way) -> int:
        """Of this many events."""
        return max(10, round(way.size * self.share))


def shown_and_clicked(count: int, seconds: int) -> Iterator[Record]:
    """Impressions and clicks, in the order of time; advertisements are shown again after four intervals."""
    chance = random.Random(7)
    ads = max(4, 2 * seconds * EVENTS_A_SECOND)
    for number in range(count // 2):
        at_ms = FIRST_MS + number * 2000 // EVENTS_A_SECOND
        shown, clicked = chance.randrange(ads), chance.randrange(ads)
        yield "impressions", shown % PARTITIONS, f'{{"ad":{shown},"seen":{number},"shown_ms":{at_ms}}}'
        yield "clicks", clicked % PARTITIONS, f'{{"ad":{clicked},"click":{number},"clicked_ms":{at_ms}}}'


def pairs_of(records: Iterable[Record], seconds: int) -> Answer:
    """The number of pairs, and the sum of both numbers of each."""
    shown: dict[int, list[tuple[int, int]]] = defaultdict(list)
    count = total = 0
    for topic, _partition, value in records:
        row = json.loads(value)
        if topic == "impressions":
            shown[row["ad"]].append((row["shown_ms"], row["seen"]))
        else:
            for at_ms, seen in shown.get(row["ad"], ()):
                if row["clicked_ms"] - seconds * 1000 <= at_ms <= row["clicked_ms"]:
                    count, total = count + 1, total + seen + row["click"]
    return count, total


def ordered_and_priced(count: int, products: int) -> Iterator[Record]:
    """The table, then orders, and changes of prices between them, in the order of time."""
    chance = random.Random(7)
    for product in range(products):
        yield _priced(product, product % 1000, FIRST_MS - 1)
    for number in range(count):
        at_ms = FIRST_MS + number * 1000 // EVENTS_A_SECOND
        product = chance.randrange(products)
        yield "orders", number % PARTITIONS, f'{{"order":{number},"product":{product},"at_ms":{at_ms}}}'
        if number % CHANGE_EVERY == 0:
            yield _priced(chance.randrange(products), chance.randrange(1000), at_ms + 1)


def _priced(product: int, price: int, at_ms: int) -> Record:
    value = (
        f'{{"op":"u","after":{{"product":{product},"name":"product {product}","price":{price}}},'
        f'"source":{{"ts_ms":{at_ms}}}}}'
    )
    return "products", product % PARTITIONS, value


def prices_of(records: Iterable[Record], _seconds: int) -> Answer:
    """The number of orders, and the sum of their prices."""
    versions: dict[int, list[tuple[int, int]]] = defaultdict(list)
    orders = []
    for topic, _partition, value in records:
        row = json.loads(value)
        if topic == "orders":
            orders.append((row["product"], row["at_ms"]))
        else:
            after = row["after"]
            versions[after["product"]].append((row["source"]["ts_ms"], after["price"]))
    prices = (
        [price for changed_ms, price in versions[product] if changed_ms <= at_ms][-1]
        for product, at_ms in orders
    )
    return len(orders), sum(prices)


MAKE: Final[dict[str, Callable[[int, int], Iterator[Record]]]] = {
    "interval": shown_and_clicked,
    "as-of": ordered_and_priced,
}
ANSWER: Final[dict[str, Callable[[Iterable[Record], int], Answer]]] = {
    "interval": pairs_of,
    "as-of": prices_of,
}
FIELDS: Final = {"interval": ("seen", "click"), "as-of": ("price",)}


def fill(bootstrap: str, prefix: str, records: Iterable[Record]) -> dict[str, int]:
    """Write the records, to topics whose names begin so; how many there are of each."""
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
    counts: dict[str, int] = defaultdict(int)
    for number, (topic, partition, value) in enumerate(records):
        counts[topic] += 1
        while True:
            try:
                producer.produce(f"{prefix}-{topic}", value, None, partition)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    return counts


def built(way: Way, setting: Setting, prefix: str, name: str) -> hr.Pipeline[...]:
    """The pipeline of a way."""
    writes = hr.topic(name, partitions=PARTITIONS)
    seconds = setting.size_of(way)

    def events(topic: str, schema: str, at: str) -> Topic:
        # In each batch as much of both streams, so that neither is ahead of the other.
        share = setting.batch // 2 if way.kind == "interval" else setting.batch
        return hr.topic(f"{prefix}-{topic}", schema=f"{schema}, {at} bigint", max_records_per_batch=share)

    if way.kind == "interval":
        reads = {
            "left": events("impressions", "ad bigint, seen bigint", "shown_ms"),
            "right": events("clicks", "ad bigint, click bigint", "clicked_ms"),
        }

        @hr.pipeline(writes=writes, reads=reads, name=name)
        def interval(left: DataFrame, right: DataFrame) -> DataFrame:
            found = hr.join(
                _timed(left, "shown_ms", "shown_at"),
                _timed(right, "clicked_ms", "clicked_at"),
                on="ad",
                within=hr.between(after=f"{seconds} seconds"),
                event_times=("shown_at", "clicked_at"),
                watermarks=("1 second", "1 second"),
                buckets=BUCKETS,
            )
            return found.select("seen", "click")

        return interval
    table = hr.topic(
        f"{prefix}-products",
        format="debezium",
        key="product",
        schema="product bigint not null, name string, price bigint",
        # All of it in the first batch, so that the others have something to join.
        max_records_per_batch=2 * setting.size_of(way),
    )
    reads = {"left": events("orders", "order bigint, product bigint", "at_ms"), "right": table}

    @hr.pipeline(writes=writes, reads=reads, name=name)
    def as_of(left: DataFrame, right: DataFrame) -> DataFrame:
        found = hr.lookup(
            _timed(left, "at_ms", "at"),
            right,
            on="product",
            version=hr.as_of(keep="1 hour"),
            event_time="at",
            watermark="1 second",
            buckets=BUCKETS,
        )
        return found.select("order", "price")

    return as_of


def _timed(rows: DataFrame, number: str, name: str) -> DataFrame:
    return rows.selectExpr("*", f"timestamp_millis({number}) as {name}").drop(number)


def run(session: SparkSession, setting: Setting, pipeline: hr.Pipeline[...], count: int) -> Ran:
    """Run a pipeline until it has read so many records."""
    config = StreamsConfig(bootstrap=setting.bootstrap, data_dir=setting.home / pipeline.name)
    plan = make_plan([pipeline])
    ensure_topics(config, plan.topics())
    begin_s = time.perf_counter()
    queries = Queries(session=session, config=config, realtime=False)
    queries.start(plan, [])
    ran = await_rows(count, partial(reports_of, queries), begin_s)
    queries.stop()
    return ran


def measure(setting: Setting, way: Way) -> list[float]:
    """Events a second of each run of one way, in this process; exits where its results are wrong."""
    slug = "".join(letter if letter.isalnum() else "-" for letter in way.name.lower())
    config = StreamsConfig(bootstrap=setting.bootstrap, data_dir=setting.home / slug)
    size = setting.size_of(way)
    records = partial(MAKE[way.kind], setting.events, size)
    topics = ("impressions", "clicks") if way.kind == "interval" else ("orders", "products")
    ensure_topics(config, {f"{slug}-{topic}": PARTITIONS for topic in topics})
    counts = fill(setting.bootstrap, slug, records())
    expected = ANSWER[way.kind](records(), size)
    rates = []
    with our_session(config) as session:
        for number in range(setting.runs):
            name = f"{slug}-{number + 1}"
            pipeline = built(way, setting, slug, name)
            ran = run(session, setting, pipeline, sum(counts.values()))
            found = answer_of(setting.bootstrap, name, FIELDS[way.kind])
            if found != expected:
                sys.exit(f"{name}: {found} results and their sum, and not {expected}")
            rates.append(ran.steady_rate)
    print(f"{way.name}: {expected[0]:,} results, exact; {rates}", file=sys.stderr)
    return rates


def answer_of(bootstrap: str, topic: str, fields: tuple[str, ...]) -> Answer:
    """The number of results that were written, and the sum over all of them."""
    count = total = 0
    for value in read_values(bootstrap, topic):
        row = json.loads(value)
        count, total = count + 1, total + sum(row[name] for name in fields)
    return count, total


def report(rates: dict[str, list[float]]) -> None:
    """Print the table."""
    steady = {name: statistics.median(each) for name, each in rates.items()}
    print("| way | steady events/s |\n|---|---|")
    for name, runs in rates.items():
        print(f"| {name} | {steady[name]:,.0f} ({min(runs):,.0f} to {max(runs):,.0f}) |")
    for few, many in ((INTERVAL, INTERVAL_MANY), (AS_OF, AS_OF_MANY)):
        if few.name in steady and many.name in steady:
            print(f"\n{many.name}: {steady[few.name] / steady[many.name]:.2f}x as much an event")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of 2 million events, 250,000 a batch")
    parser.add_argument("--batch", type=int, help="events of a batch")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="ways whose names have this in them")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as home,
        BrokerProcess(Path(home) / "broker") as server,
    ):
        setting = Setting(
            bootstrap=server.bootstrap,
            home=Path(home),
            events=round(2_000_000 * options.share),
            batch=options.batch or round(250_000 * options.share),
            runs=options.runs,
            share=options.share,
        )
        ways = [way for way in WAYS if options.only in way.name]
        rates = {way.name: apart(partial(measure, setting, way)) for way in ways}
    print(
        f"{setting.events:,} events, {setting.batch:,} a batch, {setting.runs} runs each: median and range\n"
    )
    report(rates)


if __name__ == "__main__":
    main()
