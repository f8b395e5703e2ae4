"""A run from its start to its end, in a process of its own."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

import headrace

pytestmark = pytest.mark.spark

NEIGHBOUR = """
def shout(text):
    return text.upper()
"""
PIPELINES = """
from pyspark.sql import functions as F

import headrace.streams as hr
import neighbour

orders = hr.topic("orders", schema="id string not null")

def louder(text):
    return neighbour.shout(text) + "!"

@hr.pipeline(writes=hr.topic("copies", key="id"))
def copies(orders):
    return orders.select("id")

@hr.pipeline(writes=hr.topic("shouts", key="id"))
def shouts(orders):
    return orders.select(F.udf(louder)("id").alias("id"))
"""


@pytest.fixture
def pipelines(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text(NEIGHBOUR)
    path = tmp_path / "pipelines.py"
    path.write_text(PIPELINES)
    return path


def order(number: str) -> tuple[str, str]:
    return number, json.dumps({"id": number})


@pytest.mark.long
def test_a_run_goes_on_where_the_last_one_stopped_and_stops_cleanly_without_its_broker(
    headrace_broker: headrace.Broker, kafka: Any, drive: Any, pipelines: Path, committed: Any
) -> None:
    first = drive(pipelines, realtime=False)
    kafka.produce("orders", [order("a")])
    kafka.read_count("copies", 1)
    # Python functions of the file and of its neighbours run in micro-batches.
    assert [record.key for record in kafka.read_count("shouts", 1)] == [b"A!"]
    # What has been written and not yet committed would be run again.
    committed("copies")
    assert first.end(signal.SIGINT) == (0, "")

    kafka.produce("orders", [order("b")])
    second = drive(f"{pipelines}:copies", realtime=False)

    assert sorted(record.key for record in kafka.read_count("copies", 2)) == [b"a", b"b"]
    headrace_broker.stop()
    assert second.end(signal.SIGTERM) == (0, "")


def test_a_run_whose_java_dies_says_so_in_a_sentence(drive: Any, pipelines: Path) -> None:
    running = drive(f"{pipelines}:copies", realtime=True)

    running.java.kill()

    code, errors = running.ended()
    assert code == 1
    assert "failed: Spark's Java process is gone, killed or crashed; its logs are in" in errors
    assert errors.count("\n") == 1


def test_a_run_whose_java_is_told_to_stop_as_well_ends_without_a_word(drive: Any, pipelines: Path) -> None:
    running = drive(f"{pipelines}:copies", realtime=True)

    running.java.terminate()

    assert running.end(signal.SIGTERM) == (0, "")


def test_a_run_that_is_told_again_to_stop_ends(
    headrace_broker: headrace.Broker, kafka: Any, drive: Any, pipelines: Path
) -> None:
    running = drive(f"{pipelines}:copies", realtime=False)
    kafka.produce("orders", [order("a")])
    kafka.read_count("copies", 1)
    headrace_broker.stop()

    running.insist(signal.SIGTERM)
