"""End-to-end latency of the fraud pipeline at a fixed rate: real-time mode beside micro-batches.

    python bench/streams/realtime_latency.py                 # 3 runs of each, about 12 minutes
    python bench/streams/realtime_latency.py --batch 60 --boundaries 3

Everything is real and separate, as in the demo: a broker process (durability sync), a generator process
that produces 1,000 transactions a second, Spark in a third process, and this one, which consumes the
alerts. Latency of an alert is the time from the moment its last transaction was produced (the record's
timestamp, set by the producing client) to the moment the alert reached this consumer. Only an alert's
first sighting counts.

Measuring starts when the pipeline has worked for a while (`--warm-up`) and, in real-time mode, goes on
until at least `--boundaries` batches have ended, because state is checkpointed there and events wait.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from headrace.cli.demo_parts import (
    broker_child,
    create_topics,
    example_dir,
    generator_child,
    pipeline_child,
)
from headrace.cli.foreground import free_port
from headrace.config import Address
from headrace.supervisor import Supervisor

PIPELINE = "fraud_alerts"
ALERTS_TOPIC = "fraud-alerts"
THEFT_PAUSE_S = 0.2
"""More thefts than the demo has: some 20 alerts a second, so that a run has thousands to measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to measure."""

    rate: int
    runs: int
    batch_s: int
    boundaries: int
    seconds: int
    warm_up_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run."""

    latencies_ms: list[int]
    boundary_count: int
    seconds: float

    def quantile(self, q: float) -> float:
        """The latency that a share q of the alerts stayed below."""
        ordered = sorted(self.latencies_ms)
        return float(ordered[min(len(ordered) - 1, int(q * len(ordered)))])


class AlertReader:
    """Consumes alerts and remembers how long each one took when it was first seen."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
            }
        )
        partitions = self._consumer.list_topics(ALERTS_TOPIC, timeout=10).topics[ALERTS_TOPIC].partitions
        self._consumer.assign([TopicPartition(ALERTS_TOPIC, p, OFFSET_BEGINNING) for p in partitions])
        self._seen: set[str] = set()

    def read_for(self, seconds: float, until: Callable[[], bool] = lambda: True) -> list[int]:
        """Latencies of the alerts first seen from now on, for so long and then until the condition holds."""
        latencies_ms: list[int] = []
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s or not until():
            for message in self._consumer.consume(100, timeout=0.005):
                now_ms = time.time_ns() // 1_000_000
                if message.error() is not None:
                    raise SystemExit(f"consuming alerts failed: {message.error()}")
                alert = json.loads(message.value() or b"{}")
                if alert["alert_id"] not in self._seen:
                    self._seen.add(alert["alert_id"])
                    latencies_ms.append(now_ms - alert["sent_at"])
        return latencies_ms

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()


def measure(options: Options, *, realtime: bool) -> Result:
    """One run in a fresh directory with fresh processes."""
    example = example_dir("fraud")
    supervisor = Supervisor(lambda _name, _line: None)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        directory = Path(name)
        commits = directory / "checkpoints" / PIPELINE / "commits"
        try:
            broker = broker_child(Address("127.0.0.1", free_port(0)), directory / "broker")
            bootstrap = supervisor.start(broker)
            create_topics(example, bootstrap)
            supervisor.start(
                pipeline_child(example, bootstrap, directory, realtime=realtime, batch_s=options.batch_s)
            )
            thefts = ("--theft-pause", str(THEFT_PAUSE_S))
            supervisor.start(generator_child(example, bootstrap, rate=options.rate, seed=7, more=thefts))
            reader = AlertReader(bootstrap)
            reader.read_for(options.warm_up_s)
            started_s, first_commit = time.monotonic(), commit_count(commits)

            def enough_boundaries() -> bool:
                supervisor.check()
                return not realtime or commit_count(commits) >= first_commit + options.boundaries

            latencies_ms = reader.read_for(options.seconds, enough_boundaries)
            reader.close()
            if not latencies_ms:
                raise SystemExit("no alert came: is the machine fast enough for this rate?")
            return Result(
                latencies_ms=latencies_ms,
                boundary_count=commit_count(commits) - first_commit,
                seconds=time.monotonic() - started_s,
            )
        finally:
            supervisor.stop()


def commit_count(commits: Path) -> int:
    """How many batches have ended. Spark removes old files, so the newest one's number counts."""
    numbers = [int(path.name) for path in commits.glob("*") if path.name.isdecimal()]
    return max(numbers) + 1 if numbers else 0


def table(options: Options, rows: Sequence[tuple[str, list[Result]]]) -> str:
    """The table of docs/benchmarks.md: medians over the runs, with the smallest and the largest."""
    lines = [
        f"{options.rate:,} transactions/s, {options.runs} runs each: median (smallest to largest)",
        "",
        "| mode | alerts | batch ends | p50 ms | p95 ms | p99 ms | max ms |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {name} | {_counts(results)} | {_quantiles(results)} |" for name, results in rows]
    real, micro = (statistics.median(r.quantile(0.5) for r in results) for _, results in rows)
    lines += ["", f"p50 of micro-batches / p50 of real-time mode: {micro / max(real, 1):.0f}x"]
    return "\n".join(lines)


def _counts(results: list[Result]) -> str:
    alerts = sum(len(result.latencies_ms) for result in results)
    return f"{alerts:,} | {sum(result.boundary_count for result in results)}"


def _quantiles(results: list[Result]) -> str:
    def cell(q: float) -> str:
        values = sorted(result.quantile(q) for result in results)
        return f"{statistics.median(values):,.0f} ({values[0]:,.0f} to {values[-1]:,.0f})"

    return " | ".join(cell(q) for q in (0.5, 0.95, 0.99, 1.0))


def parse_options(arguments: Sequence[str]) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rate", type=int, default=1000, help="transactions per second")
    parser.add_argument("--runs", type=int, default=3, help="runs of each mode")
    parser.add_argument("--batch", type=int, default=60, help="seconds that a real-time batch lasts")
    parser.add_argument("--boundaries", type=int, default=2, help="batch ends that a run must cover")
    parser.add_argument("--seconds", type=int, default=45, help="least seconds that a run measures")
    parser.add_argument("--warm-up", type=int, default=20, help="seconds before measuring starts")
    read = parser.parse_args(arguments)
    return Options(
        rate=read.rate,
        runs=read.runs,
        batch_s=read.batch,
        boundaries=read.boundaries,
        seconds=read.seconds,
        warm_up_s=read.warm_up,
    )


def main() -> None:
    """Measure both modes by turns, so that a slow minute of the machine touches both."""
    options = parse_options(sys.argv[1:])
    results: dict[bool, list[Result]] = {True: [], False: []}
    for run in range(1, options.runs + 1):
        for realtime in (True, False):
            result = measure(options, realtime=realtime)
            results[realtime].append(result)
            print(
                f"run {run} of {options.runs}, {'real-time mode' if realtime else 'micro-batches'}: "
                f"{len(result.latencies_ms)} alerts in {result.seconds:.0f} s, "
                f"p50 {result.quantile(0.5):.0f} ms, p99 {result.quantile(0.99):.0f} ms",
                flush=True,
            )
    print()
    print(
        table(
            options,
            [
                (f"real-time mode, {options.batch_s} s batches", results[True]),
                ("micro-batches", results[False]),
            ],
        )
    )


if __name__ == "__main__":
    main()
