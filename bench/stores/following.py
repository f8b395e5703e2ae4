"""What the benchmarks of stores have in common: a topic of changes, and a pipeline run up to its end."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.streams.admin import ensure_topics
from headrace.streams.pipeline import Pipeline
from headrace.streams.plan import make_plan
from headrace.streams.progress import Progress
from headrace.streams.queries import Queries
from headrace.streams.session import start_session, stop_session
from headrace.testing.process import BrokerProcess

PARTITIONS: Final = 4
END_S_MAX: Final = 3600.0
SCHEMA: Final = "id bigint not null, customer string, total double, note string, at timestamp, gone boolean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where it is measured."""

    home: Path
    config: StreamsConfig
    """Of the broker."""
    session: SparkSession


@contextmanager
def place() -> Iterator[Place]:
    """A broker in a process of its own, and a session in this one."""
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as home,
        BrokerProcess(Path(home) / "broker") as server,
    ):
        config = StreamsConfig(bootstrap=server.bootstrap, data_dir=Path(home))
        session = start_session(config, slots=os.cpu_count() or 1, work_dir=Path(home))
        try:
            yield Place(home=Path(home), config=config, session=session)
        finally:
            stop_session(session)


def change(number: int, *, gone: bool = False, total: int = 0) -> bytes:
    """A row as JSON, of about 150 bytes."""
    return (
        b'{"id":%d,"customer":"customer-%06d","total":%d.%02d,"note":"%s",'
        b'"at":"2026-01-01T%02d:%02d:%02d.000Z","gone":%s}'
        % (
            *(number, number % 100_000, total, number % 100, b"as it was ordered"),
            *(number % 24, number % 60, total % 60, b"true" if gone else b"false"),
        )
    )


def copying(store: Any, topic: str, *, batch_records: int) -> Pipeline[Any]:
    """A pipeline that keeps the store as the changes say."""
    changes = hr.topic(topic, schema=SCHEMA, partitions=PARTITIONS, max_records_per_batch=batch_records)

    @hr.pipeline(writes=store, reads={"changes": changes}, name=f"copy-{topic}")
    def copied(changes: DataFrame) -> DataFrame:
        return changes.select("id", "customer", "total", "note", "at", F.col("gone").alias("_delete"))

    return copied


class Follower:
    """A pipeline that runs, and what it says of its batches."""

    def __init__(self, at: Place, topic: str, queries: Queries) -> None:
        self._at = at
        self._topic = topic
        self._queries = queries

    def follow(self, changes: Iterable[tuple[int, bytes]]) -> list[Progress]:
        """Let the pipeline process changes, all of which come at once: in one transaction."""
        count = self._produce(changes)
        batches: dict[int, Progress] = {}
        deadline_s = time.monotonic() + END_S_MAX
        while sum(batch.input_row_count for batch in batches.values()) < count:
            self._queries.check()
            batches |= {each.batch_id: each for each in self._queries.progress() if each.is_batch}
            assert time.monotonic() < deadline_s, f"only {batches}"
            time.sleep(0.005)
        return list(batches.values())

    def _produce(self, changes: Iterable[tuple[int, bytes]]) -> int:
        """Write changes, each to the partition of its key; return how many."""
        producer = Producer(
            {
                "bootstrap.servers": self._at.config.bootstrap,
                "transactional.id": f"bench-{self._topic}",
                "queue.buffering.max.messages": 1_000_000,
                "linger.ms": 20,
            }
        )
        producer.init_transactions()
        producer.begin_transaction()
        count = 0
        for key, value in changes:
            producer.produce(self._topic, value, b"%d" % key, partition=key % PARTITIONS)
            count += 1
            if count % 1000 == 0:
                producer.poll(0)
        producer.commit_transaction(END_S_MAX)
        return count


@contextmanager
def following(at: Place, store: Any, topic: str, data_dir: Path, *, batch_records: int) -> Iterator[Follower]:
    """Run a pipeline that keeps the store as the changes in a topic of its own say."""
    config = replace(at.config, data_dir=data_dir)
    plan = make_plan([copying(store, topic, batch_records=batch_records)])
    ensure_topics(config, {topic: PARTITIONS, **plan.topics()})
    queries = Queries(session=at.session, config=config, realtime=False)
    queries.start(plan, dead_letters_of=())
    try:
        yield Follower(at, topic, queries)
    finally:
        queries.stop()


def told(found: Sequence[float], form: str) -> str:
    """The median, and the smallest and the largest."""
    smallest, middle, largest = min(found), statistics.median(found), max(found)
    return f"{middle:{form}} ({smallest:{form}} to {largest:{form}})"
