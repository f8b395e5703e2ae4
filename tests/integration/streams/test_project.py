"""States of streams of events on Spark: live through a crash, and in batch, with the same answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.config import StreamsConfig
from headrace.streams.admin import ensure_topics
from headrace.testing.failpoints import kill_at

pytestmark = pytest.mark.spark

STREAM_COUNT = 40
EVENT_COUNT = 4_000
WITHIN_S = 600.0

DOMAIN = """
from dataclasses import dataclass
from headrace.events import decider

@dataclass(frozen=True, slots=True, kw_only=True)
class Deposited:
    cents: int

@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    cents: int = 0
    last: int | None = None

@decider("account")
class Account:
    initial = Balance()
    def decide(state, command): return []
    def evolve(state: Balance, event: Deposited) -> Balance:
        return Balance(cents=state.cents + event.cents, last=event.cents)
"""
PIPELINE = (
    DOMAIN
    + """
import headrace.streams as hr
from headrace.events.folding import Folding

accounts = hr.topic("outbox.event.account", format="bytes", partitions=2, max_records_per_batch=1000)

@hr.pipeline(writes=hr.topic("balances", key="stream", partitions=2))
def balances(accounts):
    return hr.project(hr.events(accounts), Folding(Account), returns="cents bigint, last bigint", buckets=4)
"""
)
DRIVER = """
import sys
from pathlib import Path
from headrace.config import StreamsConfig, failpoints_to_arm
from headrace.failpoints import arm_all
from headrace.streams.batch_source import read_frames
from headrace.streams.load import load_pipelines
from headrace.streams.log_offsets import find_span
from headrace.streams.plan import make_plan
from headrace.streams.queries import Queries
from headrace.streams.session import start_session, stop_session
from headrace.streams.spans import OPEN
from headrace.streams.workspace import workspace

file, bootstrap, data, way = sys.argv[1:]
config = StreamsConfig(bootstrap=bootstrap, data_dir=Path(data))
arm_all(failpoints_to_arm())
with workspace(config.data_dir) as work_dir:
    session = start_session(config, slots=2, work_dir=work_dir)
    (pipeline,) = load_pipelines(file)
    if way == "live":
        queries = Queries(session=session, config=config, realtime=False, until_now=True)
        queries.start(make_plan([pipeline]), [])
        queries.await_done(600)
    else:
        span = find_span(config, ["outbox.event.account"], begin=OPEN, finish=OPEN)
        frames = read_frames(session, pipeline.sources(), {"accounts": span}, config)
        pipeline.build(frames).write.json(f"{data}/batch")
    stop_session(session)
"""


def fill(bootstrap: str) -> dict[str, list[tuple[int, int]]]:
    """Events as a capture writes them; by stream, what its state is after each."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    states: dict[str, list[tuple[int, int]]] = {}
    for number in range(EVENT_COUNT):
        stream = f"account-{number * 7 % STREAM_COUNT}"
        own = states.setdefault(stream, [])
        own.append((own[-1][0] + number if own else number, number))
        headers: dict[str, str | bytes | None] = {
            "id": f"00000000-0000-0000-0000-{number:012d}",
            "type": "Deposited",
            "position": str(number + 1),
            "version": str(len(own)),
            "schema_version": "1",
        }
        # One in some has its headers in another order, and one is there twice.
        told = dict(reversed(headers.items())) if number % 10 == 0 else headers
        for _ in range(2 if number % 100 == 50 else 1):
            partition = number * 7 % STREAM_COUNT % 2
            value = json.dumps({"cents": number})
            producer.produce("outbox.event.account", value, stream, partition, headers=told)
    assert producer.flush(WITHIN_S) == 0
    return states


def is_complete(records: list[Any]) -> bool:
    """Whether each stream has been written as it is at its end."""
    rows = [json.loads(record.value) for record in records]
    final = {row["stream"] for row in rows if row["version"] == EVENT_COUNT // STREAM_COUNT}
    return len(final) == STREAM_COUNT


@pytest.mark.long
def test_states_are_exact_through_a_crash_and_those_of_a_batch_are_the_last_of_them(
    kafka: Any, config: StreamsConfig, tmp_path: Path
) -> None:
    file = tmp_path / "pipelines.py"
    file.write_text(PIPELINE)
    ensure_topics(config, {"outbox.event.account": 2, "balances": 2})
    states = fill(kafka.bootstrap)

    def run(environment: dict[str, str], way: str = "live") -> tuple[int, str]:
        with (tmp_path / "errors").open("w+") as errors:
            done = subprocess.run(
                [sys.executable, "-c", DRIVER, str(file), kafka.bootstrap, str(tmp_path / "data"), way],
                env={**os.environ, **environment},
                stdout=errors,
                stderr=errors,
                check=False,
                timeout=WITHIN_S,
            )
            errors.seek(0)
            return done.returncode, errors.read()

    # In its second batch: the new state is written, and one of two shares of the results.
    code, told = run(kill_at("pipeline.task.committed", after=1))
    assert code == -signal.SIGKILL, told
    code, told = run({})
    assert code == 0, told

    records = kafka.read("balances", is_complete)
    seen: set[tuple[str, int]] = set()
    last: dict[str, int] = {}
    for record in records:
        row = json.loads(record.value)
        # Each row is what the stream was at a version, once, and versions go up.
        assert states[row["stream"]][row["version"] - 1] == (row["cents"], row["last"])
        assert (row["stream"], row["version"]) not in seen
        assert row["version"] > last.get(row["stream"], 0)
        seen.add((row["stream"], row["version"]))
        last[row["stream"]] = row["version"]
    assert last == {stream: len(own) for stream, own in states.items()}

    code, told = run({}, "batch")
    assert code == 0, told
    rows = [
        json.loads(line)
        for path in (tmp_path / "data" / "batch").glob("*.json")
        for line in path.read_text().splitlines()
    ]
    assert len(rows) == STREAM_COUNT
    assert {row["stream"]: (row["version"], row["cents"], row["last"]) for row in rows} == {
        stream: (len(own), *own[-1]) for stream, own in states.items()
    }
