"""Exactly-once topics beside Spark's own sink: the same pipeline over the same topic, one after the other.

    python bench/streams/exactly_once.py                    # 2 million events, 3 rounds, about 5 minutes
    python bench/streams/exactly_once.py --events 200000 --rounds 1

Card transactions as JSON, in a topic of four partitions of a broker process (durability sync), are read,
parsed, filtered and written to another topic of four partitions, keyed by card. Spark runs in this process,
one session for all. A round runs each guarantee once, from the start of the query to the last batch that is
committed; before that, all run over a smaller topic to warm up. Each run has a topic and a checkpoint of
its own.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

import headrace.streams as hr
from headrace.config import GUARANTEES, Guarantee, StreamsConfig
from headrace.streams.admin import ensure_topics
from headrace.streams.plan import make_plan
from headrace.streams.queries import Queries
from headrace.streams.session import start_session, stop_session
from headrace.testing.process import BrokerProcess

PARTITIONS: Final = 4
CARDS: Final = 10_000
WARM_UP_EVENTS: Final = 20_000
BATCH_RECORDS: Final = 250_000


def fill(bootstrap: str, topic: str, count: int) -> None:
    """Write card transactions."""
    chance = random.Random(1)
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
    for number in range(count):
        card = chance.randrange(CARDS)
        producer.produce(
            topic,
            b'{"tx_id":"t-%09d","card_id":"card-%05d","amount":%d.%02d,"at":"2026-01-01T%02d:%02d:%02d.000Z"}'
            % (number, card, chance.randrange(500), number % 100, number % 24, number % 60, card % 60),
            partition=card % PARTITIONS,
        )
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()


def copy_seconds(session: SparkSession, config: StreamsConfig, source: str, count: int) -> float:
    """How long a pipeline takes to copy so many events to a topic of its own."""
    transactions = hr.topic(
        source,
        schema="tx_id string not null, card_id string, amount double, at timestamp",
        partitions=PARTITIONS,
        max_records_per_batch=BATCH_RECORDS,
    )
    name = config.data_dir.name

    @hr.pipeline(
        writes=hr.topic(name, key="card_id", partitions=PARTITIONS),
        reads={"transactions": transactions},
        name=name,
    )
    def copied(transactions: DataFrame) -> DataFrame:
        return transactions.where("amount >= 1").select("tx_id", "card_id", "amount", "at")

    plan = make_plan([copied])
    ensure_topics(config, plan.topics())
    queries = Queries(session=session, config=config, realtime=False)
    begin_s = time.perf_counter()
    queries.start(plan, [])
    done: dict[int, int] = {}
    while sum(done.values()) < count:
        queries.check()
        done |= {each.batch_id: each.input_row_count for each in queries.progress()}
        time.sleep(0.005)
    seconds = time.perf_counter() - begin_s
    queries.stop()
    return seconds


def measure(events: int, rounds: int) -> dict[Guarantee, list[float]]:
    """Events a second of each guarantee, one figure for each round."""
    rates: dict[Guarantee, list[float]] = {guarantee: [] for guarantee in GUARANTEES}
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as home,
        BrokerProcess(Path(home) / "broker") as server,
    ):
        base = StreamsConfig(bootstrap=server.bootstrap, data_dir=Path(home))
        sizes = {"warm-up": WARM_UP_EVENTS, "transactions": events}
        ensure_topics(base, dict.fromkeys(sizes, PARTITIONS))
        for topic, count in sizes.items():
            fill(server.bootstrap, topic, count)
        session = start_session(base, slots=os.cpu_count() or 1, work_dir=Path(home))
        try:
            for round_number in range(rounds + 1):
                topic = "transactions" if round_number else "warm-up"
                for guarantee in GUARANTEES:
                    config = StreamsConfig(
                        bootstrap=server.bootstrap,
                        data_dir=Path(home) / f"{guarantee}-{round_number}",
                        guarantee=guarantee,
                    )
                    seconds = copy_seconds(session, config, topic, sizes[topic])
                    if round_number:
                        rates[guarantee].append(events / seconds)
        finally:
            stop_session(session)
    return rates


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rates = measure(options.events, options.rounds)
    peer = statistics.median(rates["at-least-once"])
    print(f"{options.events:,} events, {options.rounds} rounds: median (smallest to largest)\n")
    print("| guarantee | events/s | beside Spark's own sink |")
    print("|---|---|---|")
    for guarantee, found in rates.items():
        middle = statistics.median(found)
        print(
            f"| {guarantee} | {middle:,.0f} ({min(found):,.0f} to {max(found):,.0f}) | {middle / peer:.2f}x |"
        )


if __name__ == "__main__":
    main()
