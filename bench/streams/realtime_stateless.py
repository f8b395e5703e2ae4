"""End-to-end latency of a pipeline without state in real-time mode, at a fixed rate, over batch boundaries.

    python bench/streams/realtime_stateless.py                  # 3 ends of batches of 300 s: 19 minutes
    python bench/streams/realtime_stateless.py --batch 120      # 8 minutes
    python bench/streams/realtime_stateless.py --durability os  # a broker that leaves syncing to the system

Everything is real and separate: a broker process, a process that produces transactions, Spark in a third, and
this one, which consumes the results. Batches last as long as those of `headrace run --realtime` by default.
A result carries the microsecond at which its transaction was handed to the producing client; its latency is
the time from then until this consumer has it. Every result counts that comes after the warm-up, those that
wait at the end of a batch included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from headrace.cli.demo_parts import broker_child, pipeline_child
from headrace.cli.foreground import free_port
from headrace.config import Address
from headrace.supervisor import Supervisor

TOPIC, RESULTS = "transactions", "large"
PIPELINE = """
import headrace.streams as hr

transactions = hr.topic(
    "transactions", schema="tx_id string not null, card_id string not null, amount double, sent_us bigint"
)

@hr.pipeline(writes=hr.topic("large", key="card_id"))
def large(transactions):
    return transactions.where("amount > 10").select("tx_id", "card_id", "amount", "sent_us")
"""


def commit_count(commits: Path) -> int:
    """How many batches have ended. Spark removes old files, so the newest one's number counts."""
    numbers = [int(path.name) for path in commits.glob("*") if path.name.isdecimal()]
    return max(numbers) + 1 if numbers else 0


def produce(bootstrap: str, rate: int) -> None:
    """Produce transactions at a steady rate until killed."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    started_s = time.monotonic()
    for number in range(sys.maxsize):
        # Not by waiting in `poll`, which takes less than a millisecond for none, and would keep a core busy.
        if (ahead_s := number / rate - (time.monotonic() - started_s)) > 0:
            time.sleep(ahead_s)
        card_id = str(number % 10_000)
        value = {"tx_id": str(number), "card_id": card_id, "amount": 11.0, "sent_us": time.time_ns() // 1000}
        producer.produce(TOPIC, json.dumps(value), card_id)
        producer.poll(0)


def read_for(reader: Consumer, seconds: float) -> list[float]:
    """Latencies in ms of what comes for so long."""
    latencies_ms: list[float] = []
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        message = reader.poll(0.1)
        if message is None:
            continue
        now_us = time.time_ns() // 1000
        if message.error() is not None:
            raise SystemExit(f"consuming failed: {message.error()}")
        latencies_ms.append((now_us - json.loads(message.value() or b"")["sent_us"]) / 1000)
    return latencies_ms


def measure(options: argparse.Namespace) -> tuple[list[float], int]:
    """The latencies, and over how many batch boundaries they were measured."""
    supervisor = Supervisor(lambda _name, _line: None)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        directory = Path(name)
        (directory / "pipeline.py").write_text(PIPELINE)
        commits = directory / "checkpoints" / "large" / "commits"
        producing: subprocess.Popen[bytes] | None = None
        try:
            broker = broker_child(Address("127.0.0.1", free_port(0)), directory / "broker")
            durability = ("--durability", options.durability)
            bootstrap = supervisor.start(replace(broker, arguments=(*broker.arguments, *durability)))
            supervisor.start(
                pipeline_child(
                    directory / "pipeline.py", bootstrap, directory, realtime=True, batch_s=options.batch
                )
            )
            producing = subprocess.Popen(
                [sys.executable, __file__, "--produce", bootstrap, "--rate", str(options.rate)]
            )
            reader = Consumer(
                {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
            )
            partitions = reader.list_topics(RESULTS, timeout=10).topics[RESULTS].partitions
            reader.assign([TopicPartition(RESULTS, partition, OFFSET_END) for partition in partitions])
            read_for(reader, options.warm_up)
            first = commit_count(commits)
            latencies_ms: list[float] = []
            while commit_count(commits) < first + options.boundaries:
                latencies_ms += read_for(reader, 1.0)
            # What waits at the last boundary has to come, too.
            latencies_ms += read_for(reader, options.batch / 2)
            boundaries = commit_count(commits) - first
            reader.close()
            return latencies_ms, boundaries
        finally:
            if producing is not None:
                producing.kill()
                producing.wait()
            supervisor.stop()


def report(latencies_ms: Sequence[float], boundaries: int, options: argparse.Namespace) -> str:
    """The table of docs/benchmarks.md."""
    ordered = sorted(latencies_ms)
    p50, p95, p99 = (ordered[int(q * len(ordered))] for q in (0.5, 0.95, 0.99))
    return (
        f"| {options.rate:,} events/s, {options.batch} s batches, {options.durability} "
        f"| {len(ordered):,} | {boundaries} | {p50:.1f} | {p95:.1f} | {p99:.1f} | {ordered[-1]:.0f} |"
    )


def main() -> None:
    """Measure once and print a row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rate", type=int, default=1000, help="transactions per second")
    parser.add_argument("--batch", type=int, default=300, help="seconds that a batch lasts")
    parser.add_argument("--durability", choices=("sync", "os"), default="sync", help="of the broker")
    parser.add_argument("--boundaries", type=int, default=3, help="batch ends that are measured")
    parser.add_argument("--warm-up", type=int, default=45, help="seconds before measuring starts")
    parser.add_argument("--produce", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.produce is not None:
        produce(options.produce, options.rate)
        return
    latencies_ms, boundaries = measure(options)
    print("| | events | batch ends | p50 ms | p95 ms | p99 ms | max ms |\n|---|---|---|---|---|---|---|")
    print(report(latencies_ms, boundaries, options))


if __name__ == "__main__":
    main()
