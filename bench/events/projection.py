"""Rebuilding a projection on Spark: all events of a log, folded by the application's own `evolve`.

    python bench/events/projection.py                   # 5 million events, 3 runs
    python bench/events/projection.py --events 500000 --runs 1

A broker process holds the events of accounts as `headrace capture` publishes those of an event store: JSON,
with type and versions as headers, in 4 partitions by stream. A run reads all of them, folds each stream, and
writes the states to Parquet files; the first run does not count, because Java compiles as it goes. The
states are compared with those of a fold in this process.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow.dataset as ds
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.events import Decider, decider, fold
from headrace.events.folding import Folding
from headrace.streams.batch_source import read_frames
from headrace.streams.log_offsets import find_span
from headrace.streams.session import start_session, stop_session
from headrace.streams.spans import OPEN
from headrace.testing.process import BrokerProcess

TOPIC = "outbox.event.account"
PARTITION_COUNT = 4
EVENTS_PER_ACCOUNT = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An account was opened."""

    owner: str
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposited:
    """Money came."""

    cents: int
    reference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """Money went."""

    cents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """What an account holds."""

    owner: str = ""
    cents: int = 0
    count: int = 0


@decider("account")
class _Account:
    initial = Balance()

    @staticmethod
    def decide(_state: Balance, _command: object) -> list[Opened | Deposited | Withdrawn]:
        return []

    @staticmethod
    def evolve(state: Balance, event: Opened | Deposited | Withdrawn) -> Balance:
        if type(event) is Deposited:
            return Balance(owner=state.owner, cents=state.cents + event.cents, count=state.count + 1)
        if type(event) is Withdrawn:
            return Balance(owner=state.owner, cents=state.cents - event.cents, count=state.count + 1)
        if type(event) is Opened:
            return Balance(owner=event.owner, cents=0, count=1)
        return state


Account = cast("Decider", _Account)
"""To a type checker, a decorated class is still a class."""


accounts = hr.topic(TOPIC, format="bytes")


@hr.pipeline(writes=hr.topic("balances", key="stream"))
def balances(accounts: DataFrame) -> DataFrame:
    """The read model."""
    return hr.project(
        hr.events(accounts), Folding(Account), returns="owner string, cents bigint, count bigint"
    )


def history(event_count: int) -> Iterator[tuple[str, int, Any]]:
    """Streams, versions and events, as many accounts write them at the same time."""
    chance = random.Random(1)
    versions = [0] * max(1, event_count // EVENTS_PER_ACCOUNT)
    for _ in range(event_count):
        number = chance.randrange(len(versions))
        versions[number] += 1
        cents = chance.randrange(1, 100_000)
        if versions[number] == 1:
            event: Any = Opened(owner=f"owner {number}", currency="EUR")
        elif cents % 3:
            event = Deposited(cents=cents, reference=f"payment {cents}")
        else:
            event = Withdrawn(cents=cents)
        yield f"account-{number}", versions[number], event


def produce(bootstrap: str, event_count: int) -> dict[str, Any]:
    """Write the events as a capture does; returns what they fold to."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITION_COUNT)])[TOPIC].result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "compression.type": "lz4"})
    states: dict[str, Any] = {}
    for position, (stream, version, event) in enumerate(history(event_count), start=1):
        headers: dict[str, str | bytes | None] = {
            "id": str(uuid.UUID(int=position)),
            "type": type(event).__name__,
            "position": str(position),
            "version": str(version),
            "schema_version": "1",
        }
        value = msgspec.json.encode(event)
        while True:
            try:
                producer.produce(TOPIC, value, stream, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        states[stream] = fold(Account, [event], states.get(stream, Account.initial))
    producer.flush()
    return states


def rebuild(session: SparkSession, config: StreamsConfig, directory: Path) -> float:
    """Make the read model from the log; returns how many seconds it took."""
    begin_s = time.perf_counter()
    span = find_span(config, [TOPIC], begin=OPEN, finish=OPEN)
    frames = read_frames(session, {"accounts": accounts}, {"accounts": span}, config)
    balances.build(frames).write.mode("overwrite").parquet(str(directory))
    return time.perf_counter() - begin_s


def check(directory: Path, states: dict[str, Any]) -> None:
    """Compare all rows with the fold in this process."""
    rows = ds.dataset(directory, format="parquet").to_table().to_pylist()
    found = {row["stream"]: (row["owner"], row["cents"], row["count"]) for row in rows}
    expected = {name: (state.owner, state.cents, state.count) for name, state in states.items()}
    assert len(rows) == len(found), "a stream is there twice"
    assert found == expected, "the states are not those of a fold"


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory) / "broker") as broker:
        states = produce(broker.bootstrap, options.events)
        config = StreamsConfig(bootstrap=broker.bootstrap, data_dir=Path(directory) / "data")
        session = start_session(config, slots=os.cpu_count() or 1, work_dir=Path(directory))
        try:
            made = Path(directory) / "balances"
            seconds = [rebuild(session, config, made) for _ in range(options.runs + 1)][1:]
            check(made, states)
        finally:
            stop_session(session)
    rates = sorted(options.events / each for each in seconds)
    print(f"\n{options.events:,} events of {len(states):,} streams, {options.runs} runs: median and range\n")
    print("| | events/s |\n|---|---|")
    told = f"{statistics.median(rates):,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f})"
    print(f"| projection rebuilt on Spark | {told} |")


if __name__ == "__main__":
    main()
