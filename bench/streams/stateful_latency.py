"""How long an event takes through a stateful micro-batch, at 1,000 events/s: for windows.py.

    hr.keyed     the rules of keyed_rules.py, vectorised: each transaction is judged, and that is written
    Spark's      the same rules by transformWithState: with a list for each card, and with a packed value
    hr.window    count, sum and newest event of each card and minute, at the end of each micro-batch in
                 which they have changed: `trigger=hr.early(rows=1)`
    Spark's      the same by window(), in update mode

A result is as old as its newest event when it is read. Each way is written at its own guarantee: ours exactly
once, read as committed, and Spark's at least once. In the end, all that was sent must be in the results. Who
sends and reads is in another process than the driver, as in production.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import cards
import headrace.streams as hr
import keyed_rules
from cards import (
    CARDS,
    DISORDER_MS,
    PARTITIONS,
    SCHEMA,
    Build,
    reports_of,
    reports_of_spark,
    start_pipeline,
    start_plain,
)
from headrace.config import StreamsConfig
from headrace.streams.admin import ensure_topics
from headrace.streams.progress import Progress
from keyed_rules import ALERT, HISTORY, judge_all, list_of_transactions, packed_value
from query_apart import QueryApart
from sessions import our_session, plain_session, use_state_of_keys

OUR_RULES, SPARK_RULES = "rules-hr-keyed", "rules-spark-list"
SPARK_PACKED: Final = "rules-spark-packed"
OUR_WINDOWS, SPARK_WINDOWS = "windows-hr", "windows-spark"
NAMES: Final = (OUR_RULES, SPARK_RULES, SPARK_PACKED, OUR_WINDOWS, SPARK_WINDOWS)
RATE: Final = 1000
TICK_S: Final = 0.01
WARM_UP_S: Final = 60
"""From the first result on. Java compiles what it runs for the first minutes."""
FIRST_S_MAX: Final = 120
DRAIN_S_MAX: Final = 120
WAIT: Final = "2 minutes"

Reports = Callable[[], list[Progress]]
"""Tells of the batches that were not told of before, or of the last ones; raises if the query has failed."""


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
    """Sends transactions in a thread until it is told to stop."""

    bootstrap: str
    topic: str
    sent_ms: list[int] = field(default_factory=list)
    """When each was sent, by its number."""
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
            for _ in range(int((time.monotonic() - begin_s) * RATE) - len(self.sent_ms)):
                now_ms, card, number = time.time_ns() // 1_000_000, chance.randrange(CARDS), len(self.sent_ms)
                at_ms = now_ms - (chance.randrange(DISORDER_MS) if chance.random() < 0.01 else 0)
                place = f'"lat":{chance.gauss(50, 0.5):.3f},"lon":{chance.gauss(10, 0.5):.3f}'
                value = f'{{"tx":{number},"card":"card-{card:06}","cents":{card},{place},"at_ms":{at_ms}}}'
                self.sent_ms.append(now_ms)
                producer.produce(self.topic, value, partition=card % PARTITIONS)
            producer.poll(0)
        producer.flush()


class Results:
    """Reads the results as they come."""

    def __init__(self, bootstrap: str, topic: str, sender: Sender) -> None:
        self._sender = sender
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
        self._counts: dict[tuple[Any, ...], int] = {}

    @property
    def counted(self) -> int:
        """How many events are in the results so far."""
        return sum(self._counts.values())

    def await_first(self, check: Callable[[], object]) -> None:
        """Return when something has come; exit if nothing does, and raise what the check raises."""
        deadline_s = time.monotonic() + FIRST_S_MAX
        while not self._counts:
            check()
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
                self._count(result)
                if result.get("firing") != "on_time":
                    ages_ms.append(now_ms - self._sender.sent_ms[result["tx"]])
        return ages_ms

    def _count(self, result: dict[str, Any]) -> None:
        """A judgement is of one event; of a window, the last result has them all."""
        if "window" in result:
            window = result["card"], result["window"]["start"]
            self._counts[window] = max(result["count"], self._counts.get(window, 0))
        else:
            self._counts[result["card"], result["tx"]] = 1

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()


@hr.vectorised
def judge_each(rows: pa.Table, state: pa.Table, time: hr.EventTime) -> tuple[pa.Table | None, pa.Table]:  # noqa: ARG001 - see hr.vectorised
    """The rules of keyed_rules.py, for each transaction of a bucket."""
    return judge_all(rows, state) if len(rows) else (None, state)


def judged(rows: DataFrame) -> DataFrame:
    """What is measured of hr.keyed."""
    return hr.keyed(rows, by="card", step=judge_each, state=HISTORY, returns=ALERT)


def aggregates() -> list[Any]:
    """What windows give."""
    return [F.count("*").alias("count"), F.sum("cents").alias("total"), F.max("tx").alias("tx")]


def windowed(rows: DataFrame) -> DataFrame:
    """What is measured of hr.window."""
    timed = rows.withColumn("at", F.timestamp_millis("at_ms"))
    kind, trigger = hr.tumbling("1 minute"), hr.early(rows=1)
    return hr.window(timed, kind, by="card", event_time="at", watermark=WAIT, trigger=trigger).agg(
        *aggregates()
    )


def spark_judged(rows: DataFrame) -> DataFrame:
    """The rules by Spark's own operator, with the state that it has for several things of a key."""
    use_state_of_keys(rows.sparkSession)
    return list_of_transactions(rows, tells_all=True)


def spark_packed(rows: DataFrame) -> DataFrame:
    """The same at its best."""
    use_state_of_keys(rows.sparkSession)
    return packed_value(rows, tells_all=True)


def spark_windowed(rows: DataFrame) -> DataFrame:
    """The windows by Spark's own."""
    timed = rows.withColumn("at", F.timestamp_millis("at_ms")).withWatermark("at", WAIT)
    return timed.groupBy("card", F.window("at", "1 minute")).agg(*aggregates())


@contextmanager
def _ours(session: SparkSession, config: StreamsConfig, source: str, build: Build) -> Iterator[Reports]:
    queries = start_pipeline(session, config, hr.topic(source, schema=SCHEMA, partitions=PARTITIONS), build)
    try:
        yield partial(reports_of, queries)
    finally:
        queries.stop()


@contextmanager
def _plain(session: SparkSession, config: StreamsConfig, source: str, build: Build) -> Iterator[Reports]:
    query = start_plain(session, config, source, build)
    try:
        yield partial(reports_of_spark, query)
    finally:
        query.stop()


BUILDS: Final[dict[str, Build]] = {
    OUR_RULES: judged,
    SPARK_RULES: spark_judged,
    SPARK_PACKED: spark_packed,
    OUR_WINDOWS: windowed,
    SPARK_WINDOWS: spark_windowed,
}


@contextmanager
def started(config: StreamsConfig, source: str) -> Iterator[Reports]:
    """The query that the directory is called after, in this process."""
    # Workers can't import what lies here.
    for module in (sys.modules[__name__], cards, keyed_rules):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call] # it has no types
    name = config.data_dir.name
    is_ours = name in {OUR_RULES, OUR_WINDOWS}
    make_session, start = (our_session, _ours) if is_ours else (plain_session, _plain)
    with make_session(config) as session, start(session, config, source, BUILDS[name]) as reports:
        yield reports


def measure(bootstrap: str, directory: Path, seconds: int) -> Latency:
    """Measure the way that the directory is called after: Spark in a process, its clients in this one."""
    name = directory.name
    config = StreamsConfig(bootstrap=bootstrap, data_dir=directory)
    source = f"{name}-events"
    ensure_topics(config, {source: PARTITIONS, name: PARTITIONS})
    with QueryApart(partial(started, config, source)) as query:
        sender = Sender(bootstrap=bootstrap, topic=source)
        results = Results(bootstrap, name, sender)
        sender.start()
        try:
            results.await_first(query.ask)
            results.read_for(WARM_UP_S)
            query.ask()
            latencies_ms = results.read_for(seconds)
        finally:
            sender.stop()
        steady: list[Progress] = [each for each in query.ask() if each.input_row_count]
        await_counted(sender, results)
        results.close()
    if not latencies_ms:
        sys.exit(f"{name}: no result came in {seconds} s: is the machine fast enough for this rate?")
    phases = sorted({phase for each in steady for phase in each.phases_ms})
    return Latency(
        name=name,
        latencies_ms=latencies_ms,
        phases_ms={
            phase: statistics.median(each.phases_ms.get(phase, 0) for each in steady) for phase in phases
        },
        batch_rows=statistics.median(each.input_row_count for each in steady),
    )


def await_counted(sender: Sender, results: Results) -> None:
    """Wait until all that was sent is in the results; exit if it never is."""
    sent, deadline_s = len(sender.sent_ms), time.monotonic() + DRAIN_S_MAX
    while results.counted < sent and time.monotonic() < deadline_s:
        results.read_for(0.2)
    if results.counted != sent:
        sys.exit(f"{sender.topic}: {sent:,} events were sent, and {results.counted:,} are in results")


def table(measured: Sequence[Sequence[Latency]]) -> str:
    """The table of all runs of each way, and what the time was spent on."""
    lines = [
        f"{RATE:,} events/s, {len(measured[0])} runs each by turns: medians (smallest to largest p50)",
        "",
        "| | results | p50 ms | p95 ms | p99 ms | events a batch | phases of the median batch, ms |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_row(runs) for runs in measured]
    p50 = {runs[0].name: _median(each.quantile(0.5) for each in runs) for runs in measured}
    beside = [
        f"p50 of {ours} beside {plain}: {p50[ours] / p50[plain]:.2f}x"
        for ours, plain in (
            (OUR_RULES, SPARK_RULES),
            (OUR_RULES, SPARK_PACKED),
            (OUR_WINDOWS, SPARK_WINDOWS),
        )
        if ours in p50 and plain in p50
    ]
    return "\n".join([*lines, "", *beside])


def _row(runs: Sequence[Latency]) -> str:
    p50, p95, p99 = ([each.quantile(q) for each in runs] for q in (0.5, 0.95, 0.99))
    cells = (
        runs[0].name,
        f"{sum(len(each.latencies_ms) for each in runs):,}",
        f"{_median(p50):,.0f} ({min(p50):,} to {max(p50):,})",
        f"{_median(p95):,.0f}",
        f"{_median(p99):,.0f}",
        f"{_median(each.batch_rows for each in runs):,.0f}",
        ", ".join(f"{name} {ms:.0f}" for name, ms in _phases(runs).items() if ms >= 0.5),
    )
    return f"| {' | '.join(cells)} |"


def _phases(runs: Sequence[Latency]) -> dict[str, float]:
    return {name: _median(each.phases_ms.get(name, 0) for each in runs) for name in runs[0].phases_ms}


def _median(numbers: Iterable[float]) -> float:
    return statistics.median(numbers)
