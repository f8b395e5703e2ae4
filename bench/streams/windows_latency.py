"""How long an event takes through a stateful micro-batch, at 1,000 events/s: for windows.py.

An event is sent with the time of its sending; windows of a minute, by card, give count, sum and the newest
such time at the end of each micro-batch in which they have changed: `trigger=hr.early(rows=1)`, and Spark's
update mode. A result is as old as its newest event when it is read. Both are written at their own guarantee:
ours exactly once, read as committed, and Spark's at least once. In the end, the counts must add up to what
was sent.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from cards import CARDS, DISORDER_MS, PARTITIONS, reports_of, reports_of_spark, start_pipeline
from headrace.config import StreamsConfig
from headrace.streams.admin import ensure_topics
from headrace.streams.progress import Progress
from sessions import our_session, plain_session

OURS, PLAIN = "live-hr-window", "live-spark-window"
NAMES: Final = (OURS, PLAIN)
RATE: Final = 1000
TICK_S: Final = 0.01
WARM_UP_S: Final = 20
"""From the first result on."""
FIRST_S_MAX: Final = 120
DRAIN_S_MAX: Final = 120
SCHEMA: Final = "card string, cents bigint, at_ms bigint, sent_ms bigint"
WAIT: Final = "2 minutes"
Stop = Callable[[], list[Progress]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """What was measured."""

    name: str
    latencies_ms: list[int]
    phases_ms: dict[str, float]
    """Of the median batch, in Spark's words."""
    batch_rows: float

    def quantile(self, q: float) -> int:
        """The latency that a share q of the results stayed below."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


@dataclass(slots=True, kw_only=True)
class Sender:
    """Sends events in a thread until it is told to stop."""

    bootstrap: str
    topic: str
    sent: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """End, with everything sent."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        chance = random.Random(7)
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 1})
        begin_s = time.monotonic()
        while not self._stop.wait(TICK_S):
            for _ in range(int((time.monotonic() - begin_s) * RATE) - self.sent):
                sent_ms, card = time.time_ns() // 1_000_000, chance.randrange(CARDS)
                at_ms = sent_ms - (chance.randrange(DISORDER_MS) if chance.random() < 0.01 else 0)
                value = f'{{"card":"card-{card:06}","cents":{card},"at_ms":{at_ms},"sent_ms":{sent_ms}}}'
                producer.produce(self.topic, value, partition=card % PARTITIONS)
                self.sent += 1
            producer.poll(0)
        producer.flush()


class Results:
    """Reads the results as they come."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self._counts: dict[tuple[str, str], int] = {}

    @property
    def counted(self) -> int:
        """How many events are in the results so far."""
        return sum(self._counts.values())

    def await_first(self) -> None:
        """Return when something has come; exit if nothing does."""
        deadline_s = time.monotonic() + FIRST_S_MAX
        while not self._counts:
            if time.monotonic() > deadline_s:
                sys.exit(f"no result came within {FIRST_S_MAX} s")
            self.read_for(0.1)

    def read_for(self, seconds: float) -> list[int]:
        """How old the results were that came in this time."""
        ages_ms = []
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            for message in self._consumer.consume(1000, timeout=0.005):
                now_ms = time.time_ns() // 1_000_000
                result: dict[str, Any] = json.loads(message.value() or b"{}")
                window = result["card"], result["window"]["start"]
                self._counts[window] = max(result["count"], self._counts.get(window, 0))
                if result.get("firing") != "on_time":
                    ages_ms.append(now_ms - result["newest_ms"])
        return ages_ms

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()


def aggregates() -> list[Any]:
    """What windows give."""
    return [
        F.count("*").alias("count"),
        F.sum("cents").alias("total"),
        F.max("sent_ms").alias("newest_ms"),
    ]


def _ours(rows: DataFrame) -> DataFrame:
    timed = rows.withColumn("at", F.timestamp_millis("at_ms"))
    kind, trigger = hr.tumbling("1 minute"), hr.early(rows=1)
    return hr.window(timed, kind, by="card", event_time="at", watermark=WAIT, trigger=trigger).agg(
        *aggregates()
    )


def _start_ours(session: SparkSession, config: StreamsConfig, source: str) -> Stop:
    queries = start_pipeline(session, config, hr.topic(source, schema=SCHEMA, partitions=PARTITIONS), _ours)

    def stop() -> list[Progress]:
        reports = reports_of(queries)
        queries.stop()
        return reports

    return stop


def _start_plain(session: SparkSession, config: StreamsConfig, source: str) -> Stop:
    kafka = {"kafka.bootstrap.servers": config.bootstrap}
    records = (
        session.readStream.format("kafka")
        .options(subscribe=source, startingOffsets="earliest", **kafka)
        .load()
    )
    parsed = records.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")
    results = (
        parsed.withColumn("at", F.timestamp_millis("at_ms"))
        .withWatermark("at", WAIT)
        .groupBy("card", F.window("at", "1 minute"))
        .agg(*aggregates())
    )
    query = (
        results.select(F.col("card").alias("key"), F.to_json(F.struct("*")).alias("value"))
        .writeStream.format("kafka")
        .options(topic=config.data_dir.name, checkpointLocation=str(config.data_dir / "query"), **kafka)
        .outputMode("update")
        .start()
    )

    def stop() -> list[Progress]:
        reports = reports_of_spark(query)
        query.stop()
        return reports

    return stop


def measure(bootstrap: str, directory: Path, seconds: int) -> Latency:
    """Measure the way that the directory is called after, in this process."""
    name = directory.name
    config = StreamsConfig(bootstrap=bootstrap, data_dir=directory)
    source = f"{name}-events"
    ensure_topics(config, {source: PARTITIONS, name: PARTITIONS})
    make_session, start = (our_session, _start_ours) if name == OURS else (plain_session, _start_plain)
    with make_session(config) as session:
        stop = start(session, config, source)
        sender, results = Sender(bootstrap=bootstrap, topic=source), Results(bootstrap, name)
        sender.start()
        try:
            results.await_first()
            results.read_for(WARM_UP_S)
            latencies_ms = results.read_for(seconds)
        finally:
            sender.stop()
        reports = [each for each in stop_when_counted(sender, results, stop) if each.input_row_count]
        results.close()
    if not latencies_ms:
        sys.exit(f"{name}: no result came in {seconds} s: is the machine fast enough for this rate?")
    steady = reports[len(reports) // 2 :]
    phases = sorted({phase for each in steady for phase in each.phases_ms})
    return Latency(
        name=name,
        latencies_ms=latencies_ms,
        phases_ms={
            phase: statistics.median(each.phases_ms.get(phase, 0) for each in steady) for phase in phases
        },
        batch_rows=statistics.median(each.input_row_count for each in steady),
    )


def stop_when_counted(sender: Sender, results: Results, stop: Stop) -> list[Progress]:
    """Wait until all that was sent is in the results; exit if it never is."""
    deadline_s = time.monotonic() + DRAIN_S_MAX
    while results.counted < sender.sent and time.monotonic() < deadline_s:
        results.read_for(0.2)
    if results.counted != sender.sent:
        sys.exit(f"{sender.topic}: {sender.sent:,} events were sent, and {results.counted:,} are in results")
    return stop()


def table(measured: Sequence[Latency]) -> str:
    """The table, and what the time was spent on."""
    lines = [
        f"{RATE:,} events/s through a stateful micro-batch",
        "",
        "| | results | p50 ms | p95 ms | p99 ms | events a batch | phases of the median batch, ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in measured:
        quantiles = " | ".join(f"{each.quantile(q):,}" for q in (0.5, 0.95, 0.99))
        phases = ", ".join(f"{name} {ms:.0f}" for name, ms in each.phases_ms.items() if ms)
        lines.append(
            f"| {each.name} | {len(each.latencies_ms):,} | {quantiles} | {each.batch_rows:,.0f} | {phases} |"
        )
    ours, plain = (each.quantile(0.5) for each in measured)
    return "\n".join([*lines, "", f"p50 beside Spark's: {ours / plain:.2f}x"])
