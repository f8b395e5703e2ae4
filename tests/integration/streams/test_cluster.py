"""The same pipelines on a Spark cluster of two workers, one of which is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

from headrace.config import StreamsConfig
from headrace.streams.admin import ensure_topics
from headrace.streams.java import find_java
from headrace.testing.waiting import eventually

pytestmark = pytest.mark.spark

WITHIN_S = 600.0
"""Six Java processes start for this test."""
RECORD_COUNT = 400
PIPELINES = """
from pyspark.sql import functions as F

import headrace.streams as hr

orders = hr.topic("orders", schema="id string not null, customer string not null", partitions=2)

@hr.pipeline(writes=hr.topic("copies", key="id", partitions=2))
def copies(orders):
    return orders.select(F.udf(lambda text: text)("id").alias("id"))

@hr.pipeline(writes=hr.topic("counts", key="customer", partitions=2))
def counts(orders):
    return orders.groupBy("customer").agg(F.count("*").alias("n"))
"""


class Cluster:
    """A master and two workers of Spark's standalone cluster."""

    def __init__(self, directory: Path, held: ExitStack) -> None:
        self._directory = directory
        self._held = held
        master, log = self._start("master", "master.Master", "--host", "127.0.0.1", "--port", "0")
        self.address = await_line(log, r"Starting Spark master at (spark://[\d.]+:\d+)", master)
        self.workers = [self._start_worker(f"worker-{number}") for number in range(2)]

    def _start_worker(self, name: str) -> subprocess.Popen[bytes]:
        options = ("--cores", "4", "--memory", "1g", "--host", "127.0.0.1")
        work = ("--work-dir", str(self._directory / f"{name}-work"))
        worker, log = self._start(name, "worker.Worker", *options, *work, self.address)
        await_line(log, r"(Successfully registered with master)", worker)
        return worker

    def _start(self, name: str, kind: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
        home = Path(pyspark.__file__).parent
        log = self._directory / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    str(home / "bin" / "spark-class"),
                    f"org.apache.spark.deploy.{kind}",
                    *arguments,
                    "--webui-port",
                    "0",
                ],
                stdout=output,
                stderr=output,
                env={
                    **os.environ,
                    "JAVA_HOME": str(find_java().home),
                    "SPARK_HOME": str(home),
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_LOCAL_DIRS": str(self._directory),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                },
            )
        self._held.callback(end_family, process)
        return process, log


def end_family(process: subprocess.Popen[Any]) -> None:
    """Kill a process and all that it has started."""
    if process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
    process.wait()


def await_line(log: Path, pattern: str, process: subprocess.Popen[Any]) -> str:
    def found() -> re.Match[str] | None:
        assert process.poll() is None, log.read_text()
        return re.search(pattern, log.read_text())

    match = eventually(found, lambda: f"{pattern} in {log.read_text()}", within_s=WITHIN_S, pause_s=0.05)
    assert match is not None
    return match[1]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as held:
        directory = tmp_path / "cluster"
        directory.mkdir()
        yield Cluster(directory, held)


Run = Callable[[str], Path]


@pytest.fixture
def run_on(kafka: Any, config: StreamsConfig, tmp_path: Path) -> Iterator[Run]:
    """Run the pipelines as the command line does."""
    with ExitStack() as held:

        def run(master: str) -> Path:
            (tmp_path / "pipelines.py").write_text(PIPELINES)
            log = tmp_path / "driver.log"
            options = ["--master", master, "--bootstrap", kafka.bootstrap, "--data", str(config.data_dir)]
            options += ["--restarts", "0"]
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [sys.executable, "-m", "headrace", "run", str(tmp_path / "pipelines.py"), *options],
                    stdout=output,
                    stderr=output,
                )
            held.callback(end_family, process)
            held.callback(process.wait, timeout=WITHIN_S)
            held.callback(process.send_signal, signal.SIGTERM)
            await_line(log, r"(running copies, counts)", process)
            return log

        yield run


def orders(start: int) -> list[tuple[str, str]]:
    numbers = range(start, start + RECORD_COUNT)
    return [(str(n), json.dumps({"id": str(n), "customer": f"c{n % 7}"})) for n in numbers]


def expect(kafka: Any, count: int, log: Path) -> None:
    """Each order once, and of each customer the right count at last: what local mode gives as well."""
    copied = kafka.read("copies", lambda found: len(found) >= count)
    assert sorted(int(one.key) for one in copied) == list(range(count)), log.read_text()
    wanted = Counter(f"c{number % 7}" for number in range(count))

    def newest(found: list[Any]) -> dict[str, int]:
        rows = [json.loads(one.value) for one in found]
        return {row["customer"]: row["n"] for row in rows}

    assert newest(kafka.read("counts", lambda found: newest(found) == wanted)) == wanted


@pytest.mark.long
def test_a_cluster_gives_the_same_answers_also_when_a_worker_is_killed(
    kafka: Any, config: StreamsConfig, cluster: Cluster, run_on: Run
) -> None:
    ensure_topics(config, {"orders": 2})
    kafka.produce("orders", orders(0))
    log = run_on(cluster.address)
    expect(kafka, RECORD_COUNT, log)

    end_family(cluster.workers[0])
    kafka.produce("orders", orders(RECORD_COUNT))

    expect(kafka, 2 * RECORD_COUNT, log)
