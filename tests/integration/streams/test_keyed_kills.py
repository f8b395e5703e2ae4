"""A pipeline with keyed state that is killed, driver, Java and tasks at once, while it writes a batch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.config import StreamsConfig
from headrace.streams.admin import ensure_topics
from headrace.testing.failpoints import kill_at

pytestmark = pytest.mark.spark

RECORD_COUNT = 4_000
WITHIN_S = 600.0

PIPELINE = """
import headrace.streams as hr

numbers = hr.topic("numbers", schema="n bigint not null", partitions=2, max_records_per_batch=1000)

def count(key, row, state):
    state["total"] = (state["total"] or 0) + row["n"]
    return {"n": row["n"], "total": state["total"]}

@hr.pipeline(writes=hr.topic("totals", key="n", partitions=2))
def totals(numbers):
    keyed = numbers.selectExpr("n % 10 AS digit", "n", "_kafka")
    return hr.keyed(keyed, by="digit", step=count, state="total bigint", returns="n bigint, total bigint")
"""
DRIVER = """
import sys
from pathlib import Path
from headrace.config import StreamsConfig, failpoints_to_arm
from headrace.failpoints import arm_all
from headrace.streams.load import load_pipelines
from headrace.streams.plan import make_plan
from headrace.streams.queries import Queries
from headrace.streams.session import start_session, stop_session
from headrace.streams.workspace import workspace

file, bootstrap, data = sys.argv[1:]
config = StreamsConfig(bootstrap=bootstrap, data_dir=Path(data))
arm_all(failpoints_to_arm())
with workspace(config.data_dir) as work_dir:
    session = start_session(config, slots=2, work_dir=work_dir)
    queries = Queries(session=session, config=config, realtime=False, until_now=True)
    # There are no dead letters, and their query would only share the work.
    queries.start(make_plan(load_pipelines(file)), [])
    queries.await_done(600)
    stop_session(session)
"""


def fill(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(RECORD_COUNT):
        producer.produce("numbers", b'{"n": %d}' % number, partition=number % 2)
    assert producer.flush(WITHIN_S) == 0


@pytest.mark.long
def test_state_and_results_are_exact_when_the_pipeline_is_killed_in_the_middle_of_a_batch(
    kafka: Any, config: StreamsConfig, tmp_path: Path
) -> None:
    file = tmp_path / "pipelines.py"
    file.write_text(PIPELINE)
    ensure_topics(config, {"numbers": 2, "totals": 2})
    fill(kafka.bootstrap)

    def run(environment: dict[str, str]) -> tuple[int, str]:
        """Let it run to its end. To a file: workers that outlive a killed one would hold a pipe open."""
        with (tmp_path / "errors").open("w+") as errors:
            done = subprocess.run(
                [sys.executable, "-c", DRIVER, str(file), kafka.bootstrap, str(tmp_path / "data")],
                env={**os.environ, **environment},
                stdout=errors,
                stderr=errors,
                check=False,
                timeout=WITHIN_S,
            )
            errors.seek(0)
            return done.returncode, errors.read()

    # In its third batch: the new state is written, and one of two shares of the results.
    code, told = run(kill_at("pipeline.task.committed", after=2))
    assert code == -signal.SIGKILL, told
    code, told = run({})
    assert code == 0, told

    expected: Counter[tuple[int, int, int]] = Counter()
    totals: dict[int, int] = defaultdict(int)
    for number in range(RECORD_COUNT):
        totals[number % 10] += number
        expected[number % 10, number, totals[number % 10]] += 1
    rows = [json.loads(each.value) for each in kafka.read_count("totals", RECORD_COUNT)]
    assert Counter((row["digit"], row["n"], row["total"]) for row in rows) == expected
