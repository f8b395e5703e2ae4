"""Pipelines that are killed at each step of the commit protocol, driver, Java and tasks at once.

100,000 records go through, ten thousand a batch, while a reader of committed records looks on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

import headrace
from apache_kafka import ApacheKafka
from headrace.config import StreamsConfig
from headrace.errors import SetupError
from headrace.streams.admin import ensure_topics
from headrace.streams.load import load_pipelines
from headrace.streams.replay import Replay
from headrace.testing.failpoints import FAILPOINTS, kill_at
from headrace.testing.waiting import eventually

pytestmark = pytest.mark.spark

RECORD_COUNT = 100_000
WITHIN_S = 600.0
"""Spark starts, and a batch or two run, in some twenty seconds where nothing else does."""
PLACES = [
    name for name in FAILPOINTS if name.startswith("pipeline.") and not name.startswith("pipeline.side.")
]
"""Where the pipeline comes by; it has no operator that rows would leave beside its results."""
BY_TASKS = {"pipeline.task.produced"}
"""Where tasks come by that write their shares themselves; else the driver does, as these are small."""
OUTPUTS = {"evens": 3, "odds": 2}

PIPELINE = """
from pyspark.sql import functions as F

import headrace.streams as hr

numbers = hr.topic("numbers", schema="n bigint not null", partitions=3, max_records_per_batch=10000)

@hr.pipeline(
    writes=hr.topic("evens", key="n", partitions=3), side_outputs=[hr.topic("odds", key="n", partitions=2)]
)
def sorted_out(numbers):
    return numbers.select("n", F.when(F.col("n") % 2 == 1, "odds").alias("_topic"))
"""
DRIVER = """
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from headrace.config import StreamsConfig
from headrace.streams.checkpoint import lock_checkpoint
from headrace.streams.load import load_pipelines
from headrace.streams.run import run
from headrace.streams.sinks import topics

file, bootstrap, data = sys.argv[1:]
if os.environ.get("BY_TASKS"):
    topics.HANDED_BYTES_MAX = 0
config = StreamsConfig(bootstrap=bootstrap, data_dir=Path(data))
pipelines = load_pipelines(file)
with ExitStack() as held:
    # There are no dead letters, and their query would only share the work: as if another process took them.
    for topic in pipelines[0].sources().values():
        lock_checkpoint(config, topic.dead_letters_query, held)
    run(pipelines, config, realtime=False)
"""
REPLAY = """
import sys
from pathlib import Path
from headrace.config import StreamsConfig
from headrace.streams import replay
from headrace.streams.load import load_pipelines
from headrace.streams.sinks import topics

file, bootstrap, data = sys.argv[1:]
topics.HANDED_BYTES_MAX = 0
replay.PIECE_OFFSETS_MAX = 40_000
(pipeline,) = load_pipelines(file)
replay.replay(pipeline, StreamsConfig(bootstrap=bootstrap, data_dir=Path(data)), "again")
"""


class Reader(threading.Thread):
    """Reads committed records of all outputs until there are enough."""

    def __init__(self, bootstrap: str, count: int, outputs: Mapping[str, int]) -> None:
        super().__init__(daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "onlooker",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.assign(
            [TopicPartition(name, each, 0) for name, count in outputs.items() for each in range(count)]
        )
        self._count = count
        self.given_up = threading.Event()
        self.seen: list[tuple[str, int]] = []

    def run(self) -> None:
        while len(self.seen) < self._count and not self.given_up.is_set():
            self.seen += self._read(0.2)
        # Whatever is there twice comes at the end, too.
        self.seen += self._read(2.0)
        self._consumer.close()

    def _read(self, timeout_s: float) -> list[tuple[str, int]]:
        messages = self._consumer.consume(10_000, timeout_s)
        return [(str(each.topic()), json.loads(each.value() or b"")["n"]) for each in messages]


def is_gone(process: psutil.Process) -> bool:
    """Whether it has ended; somebody may still have to take note of that."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Run:
    """A process that runs the pipeline, or replays it."""

    def __init__(
        self, file: Path, bootstrap: str, data: Path, environment: dict[str, str], driver: str = DRIVER
    ) -> None:
        self._errors = (data.parent / "errors").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-c", driver, str(file), bootstrap, str(data)],
            env={**os.environ, **environment},
            stderr=self._errors,
        )
        self._family: set[psutil.Process] = set()

    def await_killed(self) -> None:
        """Wait until it has killed itself, and all of its processes are gone with it."""
        process = psutil.Process(self._process.pid)

        def is_dead() -> bool:
            with suppress(psutil.NoSuchProcess):
                self._family |= set(process.children(recursive=True))
            return self._process.poll() is not None

        eventually(is_dead, "its death", within_s=WITHIN_S, pause_s=0.2)
        code = self._process.returncode
        self._errors.seek(0)
        assert code == -signal.SIGKILL, self._errors.read()
        assert len(self._family) > 1
        _gone, alive = psutil.wait_procs(self._family, timeout=0)
        eventually(lambda: all(map(is_gone, alive)), "the end of all its processes", within_s=WITHIN_S)

    def end(self) -> None:
        """Stop it, whatever it does."""
        self._process.terminate()
        self._process.wait(WITHIN_S)
        self._errors.close()


@pytest.fixture(params=["embedded", pytest.param("apache", marks=pytest.mark.java)])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker of either kind."""
    if request.param == "embedded":
        broker: headrace.Broker = request.getfixturevalue("headrace_broker")
        yield broker.bootstrap
        return
    try:
        kafka = ApacheKafka()
        kafka.start()
    except SetupError as error:
        pytest.skip(str(error))
    yield kafka.bootstrap
    kafka.stop()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file with the pipeline."""
    path = tmp_path / "pipelines.py"
    path.write_text(PIPELINE)
    return path


def fill(config: StreamsConfig) -> None:
    ensure_topics(config, {"numbers": 3, **OUTPUTS})
    producer = Producer({"bootstrap.servers": config.bootstrap, "log_level": 0})
    for number in range(RECORD_COUNT):
        producer.produce("numbers", b'{"n": %d}' % number, partition=number % 3)
        producer.poll(0)
    assert producer.flush(WITHIN_S) == 0


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_each_record_comes_out_once_when_the_pipeline_is_killed_at_each_step(
    bootstrap: str, file: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    fill(StreamsConfig(bootstrap=bootstrap, data_dir=data))
    reader = Reader(bootstrap, RECORD_COUNT, OUTPUTS)
    reader.start()

    for place in PLACES:
        by_tasks = {"BY_TASKS": "yes"} if place in BY_TASKS else {}
        await_killed(Run(file, bootstrap, data, kill_at(place, after=1) | by_tasks))
    last = Run(file, bootstrap, data, {})
    reader.join(WITHIN_S)
    reader.given_up.set()
    reader.join()
    last.end()

    counts: Counter[Any] = Counter(reader.seen)
    assert {record: count for record, count in counts.items() if count != 1} == {}
    assert counts.keys() == {("odds" if number % 2 else "evens", number) for number in range(RECORD_COUNT)}


@pytest.mark.long
def test_a_replay_that_is_killed_goes_on_and_each_record_comes_out_once(
    headrace_broker: headrace.Broker, spark: SparkSession, file: Path, tmp_path: Path
) -> None:
    bootstrap, data = headrace_broker.bootstrap, tmp_path / "data"
    config = StreamsConfig(bootstrap=bootstrap, data_dir=data)
    fill(config)

    # When some shares of the second part are written.
    await_killed(Run(file, bootstrap, data, kill_at("pipeline.task.committed", after=1), REPLAY))
    (pipeline,) = load_pipelines(str(file))
    replay = Replay(pipeline=pipeline, sources=pipeline.sources(), into="again", config=config)
    begun = replay.begin()
    assert (begun.pieces_done, begun.piece_count) == (1, 3)
    assert replay.run(spark, begun).row_count == RECORD_COUNT
    onlooker = Reader(bootstrap, RECORD_COUNT, {"again": 3, "again.odds": 2})
    onlooker.start()
    onlooker.join(WITHIN_S)
    onlooker.given_up.set()
    onlooker.join()
    assert Counter(onlooker.seen) == Counter(
        ("again.odds" if number % 2 else "again", number) for number in range(RECORD_COUNT)
    )


def await_killed(run: Run) -> None:
    """Let it run until it has killed itself."""
    try:
        run.await_killed()
    finally:
        run.end()
