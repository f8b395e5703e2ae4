"""Replaying the log, beside Spark's own batch read of the same topic with the same function.

    python bench/streams/replay.py                   # 2 million card transactions, 3 runs of each
    python bench/streams/replay.py --events 200000 --runs 1

A broker process holds card transactions as JSON, in 4 partitions. Both sides read all of them in one Spark
session, in turns, decode them and keep the large ones:

    read      to nowhere (Spark's `noop`), so that only reading and decoding counts
    replay    `headrace replay --into`, exactly once, beside Spark's own Kafka sink, at least once

The peer decodes with a plain `from_json`, which makes nulls of what does not fit; ours finds dead letters.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.streams.batch_source import read_frames
from headrace.streams.log_offsets import find_span
from headrace.streams.replay import Replay
from headrace.streams.session import start_session, stop_session
from headrace.streams.sinks.records import to_records
from headrace.streams.spans import OPEN
from headrace.testing.process import BrokerProcess

TOPIC = "transactions"
SCHEMA = "tx_id string, card_id string, amount double, at timestamp, country string"
PARTITION_COUNT = 4
PAIRS = (("read and decoded by a replay", "by Spark alone"), ("replayed", "copied by Spark alone"))

transactions = hr.topic(TOPIC, schema=SCHEMA)
LARGE = hr.topic("large", key="card_id", partitions=PARTITION_COUNT)


@hr.pipeline(writes=LARGE)
def large(transactions: DataFrame) -> DataFrame:
    """Half of them."""
    return transactions.where("amount > 250").select("tx_id", "card_id", "amount", "at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A session, and the broker that both sides use."""

    session: SparkSession
    config: StreamsConfig
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def measure(self, name: str, job: Callable[[], object]) -> None:
        """Run a job and remember how long it took."""
        begin_s = time.perf_counter()
        job()
        self.seconds.setdefault(name, []).append(time.perf_counter() - begin_s)

    def plain_rows(self) -> DataFrame:
        """What a user of Spark writes."""
        records = (
            self.session.read.format("kafka")
            .option("kafka.bootstrap.servers", self.config.bootstrap)
            .option("subscribe", TOPIC)
            .load()
        )
        parsed = F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")
        return large(records.select(parsed).select("row.*"))

    def our_rows(self) -> DataFrame:
        """What a replay computes."""
        span = find_span(self.config, [TOPIC], begin=OPEN, finish=OPEN)
        frames = read_frames(
            self.session, {"transactions": transactions}, {"transactions": span}, self.config
        )
        return large.build(frames)

    def write_plain(self, topic: str) -> None:
        """Spark's own sink."""
        records = to_records(self.plain_rows(), LARGE, pipeline="plain").drop("topic", "headers")
        options = {"kafka.bootstrap.servers": self.config.bootstrap, "topic": topic}
        records.write.format("kafka").options(**options).save()

    def replay(self, topic: str) -> None:
        """What `headrace replay --into` does once Spark has started."""
        made = Replay(pipeline=large, sources=large.sources(), into=topic, config=self.config)
        made.run(self.session, made.begin())


def produce(bootstrap: str, count: int) -> None:
    """Card transactions as JSON."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITION_COUNT)])[TOPIC].result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "compression.type": "lz4"})
    for key, value in _transactions(count):
        while True:
            try:
                producer.produce(TOPIC, value, key)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def _transactions(count: int) -> Iterator[tuple[str, str]]:
    chance, first = random.Random(1), datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(count):
        card = f"card-{chance.randrange(10_000)}"
        row = {
            "tx_id": f"tx-{number}",
            "card_id": card,
            "amount": chance.randrange(1, 50_000) / 100,
            "at": (first + timedelta(milliseconds=10 * number)).isoformat(),
            "country": chance.choice(["AT", "DE", "FR"]),
        }
        yield card, json.dumps(row)


def report(bench: Bench, events: int, runs: int) -> None:
    """Print the table."""
    print(f"\n{events:,} card transactions, {runs} runs each: median (smallest to largest)\n")
    print("| | events/s |\n|---|---|")
    medians = {}
    for name, seconds in bench.seconds.items():
        rates = sorted(events / each for each in seconds)
        medians[name] = statistics.median(rates)
        print(f"| {name} | {medians[name]:,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f}) |")
    for ours, plain in PAIRS:
        print(f"\n{ours} / {plain}: {medians[ours] / medians[plain]:.2f}x")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory) / "broker") as broker:
        produce(broker.bootstrap, options.events)
        config = StreamsConfig(bootstrap=broker.bootstrap, data_dir=Path(directory) / "data")
        session = start_session(config, slots=os.cpu_count() or 1, work_dir=Path(directory))
        bench = Bench(session=session, config=config)
        try:
            # One run of each that does not count: Java compiles as it goes.
            for number in range(options.runs + 1):
                bench.measure("by Spark alone", partial(nowhere, bench.plain_rows()))
                bench.measure("read and decoded by a replay", partial(nowhere, bench.our_rows()))
                bench.measure("copied by Spark alone", partial(bench.write_plain, f"plain-{number}"))
                bench.measure("replayed", partial(bench.replay, f"replayed-{number}"))
                if number == 0:
                    bench.seconds.clear()
            report(bench, options.events, options.runs)
        finally:
            stop_session(session)


def nowhere(rows: DataFrame) -> None:
    """Compute the rows, and drop them."""
    rows.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()
