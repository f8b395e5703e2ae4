"""Upserts into a search index in a directory: a pipeline from a topic to the index, exactly once.

    python bench/stores/search.py                         # 200,000 upserts of 50,000 products, 3 runs
    python bench/stores/search.py --rows 5000 --runs 1    # only to see that it works

Products as JSON, in a topic of four partitions of a broker process (durability sync), are read and written to
an index, in batches of 20,000 rows: a quarter of them are new, the others take the place of what is there.
The time is from the start of the query to the last batch that is committed. Each run has an index and a
checkpoint of its own; a smaller one comes first, to warm up. Then words are looked for in the index, as an
application does it. What is in the index is compared with what must be there, and the benchmark fails where
it differs.
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
from headrace.config import StreamsConfig
from headrace.search import open_index
from headrace.streams.admin import ensure_topics
from headrace.streams.plan import make_plan
from headrace.streams.queries import Queries
from headrace.streams.session import start_session, stop_session
from headrace.testing.process import BrokerProcess

PARTITIONS: Final = 4
BATCH_RECORDS: Final = 20_000
UPSERTS_OF_EACH: Final = 4
WARM_UP_ROWS: Final = 4_000
SEARCHES: Final = 1_000
ENDINGS: Final = ("ark", "elt", "ing", "oom", "unk")
WORDS: Final = [f"{letter}{ending}" for letter in "bcdfglmnprst" for ending in ENDINGS]


def fill(bootstrap: str, topic: str, count: int) -> None:
    """Write products, each several times; the last time says so."""
    chance = random.Random(1)
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
    products = count // UPSERTS_OF_EACH
    for number in range(products * UPSERTS_OF_EACH):
        product, edition = number % products, number // products
        words = " ".join(chance.choices(WORDS, k=12))
        producer.produce(
            topic,
            f'{{"id":{product},"sku":"S-{product:07}","name":"{words}","price":{chance.randrange(10_000)}.5,'
            f'"edition":{edition},"at":"2026-01-01T{edition:02}:00:00.000Z"}}'.encode(),
            partition=product % PARTITIONS,
        )
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()


def index_seconds(session: SparkSession, config: StreamsConfig, source: str, count: int) -> float:
    """How long a pipeline takes to write so many rows to an index of its own."""
    products = hr.topic(
        source,
        schema="id bigint not null, sku string, name string, price decimal(9,2), edition int, at timestamp",
        partitions=PARTITIONS,
        max_records_per_batch=BATCH_RECORDS,
    )
    index = hr.search_index(config.data_dir, "products", key="id", text="name")

    @hr.pipeline(writes=index, reads={"products": products}, name="products")
    def copied(products: DataFrame) -> DataFrame:
        return products

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


def search_milliseconds(directory: Path, count: int) -> float:
    """How long a search takes, in the middle; fails unless the index is as it must be."""
    chance = random.Random(2)
    with open_index(directory, "products") as index:
        products = count // UPSERTS_OF_EACH
        last = index.count(f"edition:{UPSERTS_OF_EACH - 1}")
        if (index.count(), last) != (products, products):
            raise SystemExit(f"the index has {index.count()} products, {last} as they were last: {products}")
        times_s = []
        for _ in range(SEARCHES):
            query = " AND ".join(chance.sample(WORDS, 2))
            begin_s = time.perf_counter()
            index.search(query)
            times_s.append(time.perf_counter() - begin_s)
    return statistics.median(times_s) * 1000


def measure(rows: int, runs: int) -> tuple[list[float], list[float]]:
    """Rows a second, and milliseconds of a search, one figure for each run."""
    rates, searches_ms = [], []
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as home,
        BrokerProcess(Path(home) / "broker") as server,
    ):
        base = StreamsConfig(bootstrap=server.bootstrap, data_dir=Path(home))
        sizes = {"warm-up": WARM_UP_ROWS, "products": rows - rows % UPSERTS_OF_EACH}
        ensure_topics(base, dict.fromkeys(sizes, PARTITIONS))
        for topic, count in sizes.items():
            fill(server.bootstrap, topic, count)
        session = start_session(base, slots=os.cpu_count() or 1, work_dir=Path(home))
        try:
            for run in range(runs + 1):
                topic = "products" if run else "warm-up"
                config = StreamsConfig(bootstrap=server.bootstrap, data_dir=Path(home) / f"run-{run}")
                seconds = index_seconds(session, config, topic, sizes[topic])
                took_ms = search_milliseconds(config.data_dir, sizes[topic])
                if run:
                    rates.append(sizes[topic] / seconds)
                    searches_ms.append(took_ms)
        finally:
            stop_session(session)
    return rates, searches_ms


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    rates, searches_ms = measure(options.rows, options.runs)
    print(f"{options.rows:,} upserts, {options.runs} runs: median (smallest to largest)\n")
    print("| search index in a directory | |")
    print("|---|---|")
    middle = statistics.median(rates)
    print(f"| upserts/s, through a pipeline | {middle:,.0f} ({min(rates):,.0f} to {max(rates):,.0f}) |")
    middle = statistics.median(searches_ms)
    print(f"| a search for two words, ms | {middle:.2f} ({min(searches_ms):.2f} to {max(searches_ms):.2f}) |")


if __name__ == "__main__":
    main()
