"""From the start of `headrace run` to its first row, beside a bare PySpark script that does the same.

    python bench/streams/start_up.py                      # 5 runs of each, by turns
    python bench/streams/start_up.py --without-archive    # as after `headrace setup --no-fast-start`

Both read a topic of JSON, parse it, keep what costs more than 100, and write it to another topic. The record
is there before they start. What is measured is the time from the start of the process to the moment at which
a consumer has the first result. Jars are cached for both. The script writes at least once, because Spark's
own sink can't do more; `headrace run` is measured as it is by default, exactly once and supervised, and the
other way, too. It uses the archive of Spark's classes that `headrace setup` makes, unless it is told not to.
Beside the time on the clock, the processor time of all processes until then is told.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.config import StreamsConfig
from headrace.streams.jars import resolve_jars
from headrace.streams.session import find_jars

FIRST_ROW_S_MAX = 300.0
CACHE_VARIABLE = "HEADRACE_CACHE"
PIPELINE = """
import headrace.streams as hr

orders = hr.topic("orders", schema="id string not null, amount double")

@hr.pipeline(writes=hr.topic("large", key="id"))
def large(orders):
    return orders.where("amount > 100")
"""
SCRIPT = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

bootstrap, directory, jars = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.jars", jars).getOrCreate()
records = (
    spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", "orders").option("startingOffsets", "earliest").load()
)
orders = records.select(F.from_json(F.col("value").cast("string"), "id string, amount double").alias("o"))
large = orders.select("o.*").where("amount > 100")
results = large.select(F.col("id").alias("key"), F.to_json(F.struct("id", "amount")).alias("value"))
query = (
    results.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", "large")
    .option("checkpointLocation", directory + "/checkpoint").start()
)
query.awaitTermination()
"""


class Taken(NamedTuple):
    """What a start took."""

    clock_s: float
    processor_s: float


def measure(kind: str, directory: Path) -> Taken:
    """What it takes from the start of a fresh process, on a fresh broker, to its first row."""
    with headrace.Broker() as broker:
        _prepare(broker.bootstrap)
        reader = _reader(broker.bootstrap)
        with (directory / "log").open("wb") as log:
            started_s = time.monotonic()
            process = subprocess.Popen(_command(kind, broker.bootstrap, directory), stdout=log, stderr=log)
            try:
                while (message := reader.poll(0.01)) is None:
                    if process.poll() is not None or time.monotonic() > started_s + FIRST_ROW_S_MAX:
                        raise SystemExit(f"{kind} came to nothing:\n{(directory / 'log').read_text()}")
                if message.error() is not None:
                    raise SystemExit(f"consuming failed: {message.error()}")
                return Taken(time.monotonic() - started_s, _processor_s(process.pid))
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait()
                reader.close()


def _processor_s(pid: int) -> float:
    """What a process and all that it has started have taken of the processors; a few may have ended since."""
    process = psutil.Process(pid)
    taken = 0.0
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            taken += times.user + times.system + times.children_user + times.children_system
    return taken


def _prepare(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("orders", 1), NewTopic("large", 1)]).values():
        future.result()
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("orders", json.dumps({"id": "a", "amount": 101.5}))
    producer.flush()


def _reader(bootstrap: str) -> Consumer:
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
    }
    reader = Consumer(settings)
    reader.assign([TopicPartition("large", 0, OFFSET_BEGINNING)])
    return reader


def _command(kind: str, bootstrap: str, directory: Path) -> list[str]:
    if kind == "bare script":
        config = StreamsConfig()
        jars = ",".join(str(path) for path in resolve_jars(config.cache_dir, config.jars_dir))
        (directory / "script.py").write_text(SCRIPT)
        return [sys.executable, str(directory / "script.py"), bootstrap, str(directory), jars]
    (directory / "pipeline.py").write_text(PIPELINE)
    guarantee = kind.removeprefix("headrace run, ")
    options = ["--bootstrap", bootstrap, "--data", str(directory / "data"), "--guarantee", guarantee]
    return [sys.executable, "-m", "headrace", "run", str(directory / "pipeline.py"), *options]


@contextmanager
def _archive(*, wanted: bool) -> Iterator[str]:
    """Have the archive of classes used, or hide it; tell which it is."""
    config = StreamsConfig()
    if wanted:
        archive = find_jars(config).archive
        if archive is None:
            raise SystemExit(
                "there is no archive of Spark's classes: run `headrace setup`, or --without-archive"
            )
        yield f"{archive.stat().st_size / 1_000_000:.0f} MB"
        return
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as cache:
        (Path(cache) / "jars").symlink_to(config.cache_dir / "jars")
        os.environ[CACHE_VARIABLE] = cache
        yield "none"


def main() -> None:
    """Measure by turns, so that a slow minute of the machine touches all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5, help="runs of each")
    parser.add_argument("--without-archive", action="store_true", help="hide the archive of Spark's classes")
    options = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    kinds = ("bare script", "headrace run, exactly-once", "headrace run, at-least-once")
    taken: dict[str, list[Taken]] = {kind: [] for kind in kinds}
    with _archive(wanted=not options.without_archive) as archive:
        for run in range(1, options.runs + 1):
            for kind in kinds:
                with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
                    taken[kind].append(measure(kind, Path(directory)))
                clock_s, processor_s = taken[kind][-1]
                print(
                    f"run {run} of {options.runs}, {kind}: {clock_s:.1f} s, {processor_s:.1f} s of processor",
                    flush=True,
                )
    print(f"\narchive of Spark's classes: {archive}\n")
    print(
        "| | seconds to the first row: median (smallest to largest) | x bare script | processor seconds | x |"
    )
    print("|---|---|---|---|---|")
    for kind, values in taken.items():
        print(f"| {kind} | {_columns(values, taken['bare script'])} |")


def _columns(values: Sequence[Taken], bare: Sequence[Taken]) -> str:
    clocks = [each.clock_s for each in values]
    clock_s, bare_clock_s = statistics.median(clocks), statistics.median(each.clock_s for each in bare)
    processor_s = statistics.median(each.processor_s for each in values)
    bare_processor_s = statistics.median(each.processor_s for each in bare)
    return (
        f"{clock_s:.1f} ({min(clocks):.1f} to {max(clocks):.1f}) | {clock_s / bare_clock_s:.2f} "
        f"| {processor_s:.1f} | {processor_s / bare_processor_s:.2f}"
    )


if __name__ == "__main__":
    main()
