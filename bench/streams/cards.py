"""Card transactions for benchmarks, and pipelines that read them to the end.

The transactions are the same for the same arguments: JSON, 1 in 100 of them out of order by up to two
minutes, with all those of a card in one partition. A card is used near its home, 1 in 500 times far away.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.streaming.query import StreamingQuery

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.streams.admin import ensure_topics
from headrace.streams.plan import make_plan
from headrace.streams.progress import Progress, parse_progress
from headrace.streams.queries import Queries
from headrace.streams.topic import Topic

PARTITIONS: Final = 4
CARDS: Final = 10_000
REST_MS: Final = 30_000
"""How long a card rests between two transactions, on average, where there are CARDS of them."""
FIRST_MS: Final = 1_767_225_600_000
DISORDER_MS: Final = 120_000
"""A transaction is out of order by less than this."""
SCHEMA: Final = "tx bigint, card string, cents bigint, lat double, lon double, at_ms bigint"

Transaction = tuple[int, str, int, float, float, int]
Build = Callable[[DataFrame], DataFrame]


def transactions(count: int, cards: int) -> Iterator[Transaction]:
    """The same for the same arguments, in the order in which they are sent."""
    chance = random.Random(7)
    for number in range(count):
        at_ms = FIRST_MS + number * REST_MS // CARDS
        if chance.random() < 0.01:
            at_ms -= chance.randrange(DISORDER_MS)
        cents = round(chance.expovariate(1 / 30_000))
        card = chance.randrange(cards)
        far = 5 if chance.random() < 0.002 else 0.005
        lat = round(40 + card % 20 + chance.gauss(0, far), 3)
        lon = round(card // 20 % 30 + chance.gauss(0, far), 3)
        yield number, f"card-{card:06}", cents, lat, lon, at_ms


def partition_of(card: str) -> int:
    """So that a card's transactions are in one order."""
    return int(card[5:]) % PARTITIONS


def fill(bootstrap: str, topic: str, count: int, cards: int) -> None:
    """Write the transactions."""
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
    for number, card, cents, lat, lon, at_ms in transactions(count, cards):
        value = f'{{"tx":{number},"card":"{card}","cents":{cents},"lat":{lat},"lon":{lon},"at_ms":{at_ms}}}'
        while True:
            try:
                producer.produce(topic, value, card, partition_of(card))
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a query did."""

    seconds: float
    """From its start to the last batch."""
    batches: list[Progress]

    @property
    def rate(self) -> float:
        """Events a second."""
        return sum(each.input_row_count for each in self.batches) / self.seconds

    @property
    def steady_rate(self) -> float:
        """Events a second of all batches but the first, in which everything is started."""
        later = self.batches[1:] or self.batches
        return sum(each.input_row_count for each in later) / (sum(each.duration_ms for each in later) / 1000)


def await_rows(count: int, reports: Callable[[], list[Progress]], begin_s: float) -> Ran:
    """Wait until so many rows were read, by the reports of a query whose start began then."""
    done: dict[int, Progress] = {}
    while sum(each.input_row_count for each in done.values()) < count:
        done |= {each.batch_id: each for each in reports() if each.is_batch and each.input_row_count}
        # Asking takes some milliseconds of the processor that is measured.
        time.sleep(0.05)
    seconds = time.perf_counter() - begin_s
    return Ran(seconds=seconds, batches=[done[number] for number in sorted(done)])


def start_pipeline(session: SparkSession, config: StreamsConfig, source: Topic, build: Build) -> Queries:
    """Start a pipeline of which name, topic and checkpoint are called as the directory is."""
    name = config.data_dir.name

    @hr.pipeline(
        writes=hr.topic(name, key="card", partitions=PARTITIONS), reads={"events": source}, name=name
    )
    def built(events: DataFrame) -> DataFrame:
        return build(events)

    plan = make_plan([built])
    ensure_topics(config, plan.topics())
    queries = Queries(session=session, config=config, realtime=False)
    queries.start(plan, [])
    return queries


def start_plain(
    session: SparkSession, config: StreamsConfig, source: str, build: Build, *, batch: int | None = None
) -> StreamingQuery:
    """The same by what a user of Spark writes; `batch` is the most that is read at once."""
    name = config.data_dir.name
    ensure_topics(config, {name: PARTITIONS})
    kafka = {"kafka.bootstrap.servers": config.bootstrap}
    limit = {} if batch is None else {"maxOffsetsPerTrigger": str(batch)}
    records = (
        session.readStream.format("kafka")
        .options(subscribe=source, startingOffsets="earliest", **kafka, **limit)
        .load()
    )
    parsed = records.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")
    return (
        build(parsed)
        .select(F.col("card").alias("key"), F.to_json(F.struct("*")).alias("value"))
        .writeStream.format("kafka")
        .options(topic=name, checkpointLocation=str(config.data_dir / "query"), **kafka)
        .outputMode("update")
        .start()
    )


def reports_of(queries: Queries) -> list[Progress]:
    """What there is new; raises if a query has failed."""
    queries.check()
    return queries.progress()


def reports_of_spark(query: StreamingQuery) -> list[Progress]:
    """All that Spark still knows; raises if the query has failed."""
    if error := query.exception():
        raise error
    return [parse_progress(query.name or "", json.loads(each.json)) for each in query.recentProgress]


def read_values(bootstrap: str, topic: str) -> Iterator[bytes]:
    """All that was written to a topic, a partition after the other."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    for partition in range(PARTITIONS):
        place = TopicPartition(topic, partition, 0)
        _first, end = consumer.get_watermark_offsets(place)
        consumer.assign([place])
        while end and consumer.position([place])[0].offset < end:
            yield from (message.value() or b"{}" for message in consumer.consume(10_000, timeout=0.5))
    consumer.close()
