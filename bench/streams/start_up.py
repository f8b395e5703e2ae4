"""From the start of `headrace run` to its first row, beside a bare PySpark script that does the same.

    python bench/streams/start_up.py              # 5 runs of each, by turns

Both read a topic of JSON, parse it, keep what costs more than 100, and write it to another topic. The record
is there before they start. What is measured is the time from the start of the process to the moment at which
a consumer has the first result. Jars are cached for both. The script writes at least once, because Spark's
own sink can't do more; `headrace run` is measured as it is by default, exactly once and supervised, and the
other way, too. It uses an archive of Spark's classes if `headrace setup --fast-start` has made one, which is
told with the result.
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
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.config import StreamsConfig
from headrace.streams.jars import resolve_jars
from headrace.streams.session import find_jars

FIRST_ROW_S_MAX = 300.0
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


def measure(kind: str, directory: Path) -> float:
    """Seconds from the start of a fresh process, on a fresh broker, to its first row."""
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
                return time.monotonic() - started_s
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait()
                reader.close()


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


def main() -> None:
    """Measure by turns, so that a slow minute of the machine touches all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5, help="runs of each")
    runs = parser.parse_args().runs
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    kinds = ("bare script", "headrace run, exactly-once", "headrace run, at-least-once")
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for run in range(1, runs + 1):
        for kind in kinds:
            with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
                seconds[kind].append(measure(kind, Path(directory)))
            print(f"run {run} of {runs}, {kind}: {seconds[kind][-1]:.1f} s", flush=True)
    print(f"\narchive of Spark's classes: {find_jars(StreamsConfig()).archive or 'none'}")
    bare = statistics.median(seconds["bare script"])
    print("\n| | seconds to the first row: median (smallest to largest) | x bare script |\n|---|---|---|")
    for kind, values in seconds.items():
        median = statistics.median(values)
        print(f"| {kind} | {median:.1f} ({min(values):.1f} to {max(values):.1f}) | {median / bare:.2f} |")


if __name__ == "__main__":
    main()
