"""One Spark session for all tests, and a broker, topics and queries for each."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

import headrace
from headrace.config import MIB, StreamsConfig
from headrace.streams.admin import ensure_topics
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.pipeline import Pipeline
from headrace.streams.plan import make_plan
from headrace.streams.progress_log import read_progress_log
from headrace.streams.queries import Queries
from headrace.streams.run import WATCH_EVERY_S
from headrace.streams.session import start_session, stop_session
from headrace.testing.waiting import eventually

ROOT = Path(__file__).parents[3]
WITHIN_S = 240.0
"""How long Spark may take, on a slow and busy machine, to come up with what a test waits for."""
SLOTS = 32


@pytest.fixture(scope="session", autouse=True)
def _examples_can_be_imported() -> Iterator[None]:
    sys.path.insert(0, str(ROOT))
    yield
    sys.path.remove(str(ROOT))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that all tests share."""
    directory = tmp_path_factory.mktemp("spark")
    session = start_session(StreamsConfig(data_dir=directory), slots=SLOTS, work_dir=directory)
    yield session
    stop_session(session)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as it was read."""

    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]
    timestamp_ms: int
    partition: int


class Kafka:
    """A client of the test's broker."""

    def __init__(self, bootstrap: str, login: Mapping[str, str] = MappingProxyType({})) -> None:
        self.bootstrap = bootstrap
        # The clients outlive the broker by a moment and would complain of it.
        self._settings = {**login, "bootstrap.servers": bootstrap, "log_level": "0"}
        self._producer = Producer({**self._settings, "linger.ms": 0, "message.max.bytes": 16 * MIB})
        self._admin = AdminClient({**self._settings})
        self.queries: list[Queries] = []
        """Those that the test has started, which write what it reads."""

    def produce(
        self,
        topic: str,
        records: Iterable[tuple[str | None, bytes | str | None]],
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Write records, by key and value, and wait until the broker has them."""
        for key, value in records:
            self._producer.produce(topic, value, key, headers=list(headers))
        assert self._producer.flush(WITHIN_S) == 0

    def read(self, topic: str, until: Callable[[list[Record]], bool]) -> list[Record]:
        """Read the topic from its beginning until there is enough; fail if that takes too long."""
        records: list[Record] = []
        consumer = Consumer(
            {
                **self._settings,
                "group.id": "test",
                "enable.auto.commit": False,
                # Where the first records were deleted, the beginning is behind them.
                "auto.offset.reset": "earliest",
            }
        )
        try:
            count = len(self._admin.list_topics(timeout=WITHIN_S).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, partition, 0) for partition in range(count)])
            watch = _Watch(self.queries)
            while not until(records):
                watch.look(lambda: f"{topic} has only {len(records)}: {records[-3:]}")
                for message in consumer.consume(500, timeout=0.1):
                    assert message.error() is None, message.error()
                    records.append(_record(message))
        finally:
            consumer.close()
        return records

    def ends(self, topic: str) -> dict[tuple[str, int], int]:
        """Where each partition ends, by topic and partition."""
        consumer = Consumer({**self._settings, "group.id": "test"})
        try:
            partitions = consumer.list_topics(topic, timeout=WITHIN_S).topics[topic].partitions
            return {
                (topic, number): consumer.get_watermark_offsets(
                    TopicPartition(topic, number), timeout=WITHIN_S
                )[1]
                for number in partitions
            }
        finally:
            consumer.close()

    def read_count(self, topic: str, count: int) -> list[Record]:
        """Read so many records."""
        records = self.read(topic, lambda found: len(found) >= count)
        assert len(records) == count, f"{topic} has more than {count} records"
        return records


class _Watch:
    """Looks after queries while a test waits for what they write."""

    def __init__(self, queries: list[Queries]) -> None:
        self._queries = queries
        self._deadline_s = time.monotonic() + WITHIN_S
        self._next_s = 0.0

    def look(self, describe: Callable[[], str]) -> None:
        """Raise if one has failed, as `headrace run` would, or if it takes too long."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + WATCH_EVERY_S
        for queries in self._queries:
            queries.check()
        if now_s > self._deadline_s:
            raise AssertionError("\n".join([describe(), *map(_state, self._queries)]))


def _state(queries: Queries) -> str:
    """What the queries are doing, as their threads see it."""
    told = [f"{name}: {query.status}, {query.lastProgress}" for name, query in queries.running.items()]
    gateway: Any = queries.session.sparkContext._gateway
    # Where there is only a Java without tools, the states have to do.
    tool = shutil.which("jcmd") or "true"
    for question in ("GC.heap_info", "Thread.print"):
        answer = subprocess.run([tool, str(gateway.proc.pid), question], capture_output=True, check=False)
        told.append(answer.stdout.decode())
    return "\n".join(told)


def _record(message: Any) -> Record:
    kind, timestamp_ms = message.timestamp()
    assert kind != TIMESTAMP_NOT_AVAILABLE
    return Record(
        key=message.key(),
        value=message.value(),
        headers=dict(message.headers() or []),
        timestamp_ms=timestamp_ms,
        partition=message.partition(),
    )


@pytest.fixture
def connect() -> type[Kafka]:
    """Makes a client of another broker than the test's."""
    return Kafka


@pytest.fixture
def kafka(headrace_broker: headrace.Broker) -> Kafka:
    """A client of the broker."""
    return Kafka(headrace_broker.bootstrap)


@pytest.fixture
def config(kafka: Kafka, tmp_path: Path) -> StreamsConfig:
    """Settings for the test's broker; the shortest batches that real-time mode allows."""
    return StreamsConfig(bootstrap=kafka.bootstrap, data_dir=tmp_path / "with space", realtime_batch_s=5)


@pytest.fixture
def committed(config: StreamsConfig) -> Callable[[str], set[str]]:
    """Wait until a query has a batch committed and none begun that is not; returns those that it has."""

    def batches(query: str, log: str) -> set[str]:
        return {path.name for path in (checkpoint_path(config, query) / log).glob("[0-9]*")}

    def await_committed(query: str) -> set[str]:
        def all_committed() -> set[str]:
            found = batches(query, "commits")
            return found if batches(query, "offsets") <= found else set()

        return eventually(all_committed, f"a batch of {query}, and none uncommitted,", within_s=WITHIN_S)

    return await_committed


@pytest.fixture
def processed(
    config: StreamsConfig, kafka: Kafka, committed: Callable[[str], set[str]]
) -> Callable[..., None]:
    """Wait until a query has processed all that is in a topic, and has no batch that is not committed."""

    def await_processed(query: str, topic: str) -> None:
        ends = kafka.ends(topic)

        def is_processed() -> bool:
            last = read_progress_log(checkpoint_path(config, query)).last_committed
            return last is not None and all(
                any(source.get(place, 0) >= end for source in last.ends) for place, end in ends.items()
            )

        eventually(is_processed, f"all of {topic} in {query}", within_s=WITHIN_S)
        committed(query)

    return await_processed


StartQueries = Callable[..., Queries]


@pytest.fixture
def start(spark: SparkSession, config: StreamsConfig, kafka: Kafka) -> Iterator[StartQueries]:
    """Start pipelines in the shared session; they are stopped when the test ends."""
    started: list[Queries] = []

    def start_queries(*pipelines: Pipeline[Any], realtime: bool, pipelines_first: bool = False) -> Queries:
        plan = make_plan(pipelines)
        ensure_topics(config, plan.topics())
        queries = Queries(session=spark, config=config, realtime=realtime)
        started.append(queries)
        kafka.queries.append(queries)
        queries.start(plan, pipelines_first=pipelines_first)
        queries.await_started()
        return queries

    yield start_queries
    for queries in started:
        queries.stop()


DRIVER = """
import sys
from pathlib import Path
from headrace.config import StreamsConfig
from headrace.errors import HeadraceError
from headrace.streams.load import load_pipelines
from headrace.streams.run import run

pipelines, bootstrap, data, realtime = sys.argv[1:]
config = StreamsConfig(bootstrap=bootstrap, data_dir=Path(data), realtime_batch_s=5)
try:
    run(
        load_pipelines(pipelines),
        config,
        realtime=realtime == "True",
        on_started=lambda names: print("running", *names, flush=True),
    )
except HeadraceError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


class Driver:
    """A process of its own that runs pipelines, and its Java."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("running"), f"the driver says {line!r}"
        (self.java,) = [one for one in psutil.Process(process.pid).children() if one.name() == "java"]

    def kill(self) -> None:
        """kill -9, and wait until its Java is gone as well."""
        self._process.kill()
        self._process.wait()
        self._java_is_gone()

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal. Returns the exit code and standard error; its Java must be gone by then."""
        self._process.send_signal(number)
        return self.ended()

    def insist(self, number: signal.Signals) -> None:
        """Send a signal again and again until the end; its Java must be gone by then."""

        def has_ended() -> bool:
            self._process.send_signal(number)
            return self._process.poll() is not None

        eventually(has_ended, "the driver's end", within_s=WITHIN_S, pause_s=0.05)
        self._java_is_gone()

    def ended(self) -> tuple[int, str]:
        """Wait for the end. Returns the exit code and standard error; its Java must be gone by then."""
        _output, errors = self._process.communicate(timeout=WITHIN_S)
        self._java_is_gone()
        return self._process.returncode, errors

    def _java_is_gone(self) -> None:
        def is_gone() -> bool:
            with suppress(psutil.NoSuchProcess):
                # One that nobody has asked for its exit code yet is dead all the same.
                return self.java.status() == psutil.STATUS_ZOMBIE
            return True

        eventually(is_gone, "the end of Java", within_s=WITHIN_S)


Drive = Callable[..., Driver]


@pytest.fixture
def drive(config: StreamsConfig) -> Iterator[Drive]:
    """Run the pipelines of a file in a process of their own."""
    with ExitStack() as processes:

        def start_driver(target: Path | str, *, realtime: bool) -> Driver:
            arguments = [str(target), config.bootstrap, str(config.data_dir), str(realtime)]
            process = subprocess.Popen(
                [sys.executable, "-c", DRIVER, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            processes.enter_context(process)
            processes.callback(process.kill)
            return Driver(process)

        yield start_driver
