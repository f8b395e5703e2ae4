"""`headrace run` and `headrace pipelines` as a user has them: a driver dies, and no row is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.testing.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.long]

WITHIN_S = 240.0
PIPELINES = """
import headrace.streams as hr

orders = hr.topic("orders", schema="id string not null")

@hr.pipeline(writes=hr.topic("copies", key="id"))
def copies(orders):
    return orders.select("id")
"""


@contextmanager
def running(command_line: Any, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with (
        (command_line.directory / "errors").open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "headrace", "run", *arguments],
            cwd=command_line.directory,
            env=command_line.environment(),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def pipelines(command_line: Any) -> dict[str, dict[str, Any]]:
    return {row["pipeline"]: row for row in json.loads(command_line.output("pipelines", "--json"))}


def await_rows(command_line: Any, count: int) -> None:
    eventually(lambda: pipelines(command_line)["copies"]["rows_out"] == count, "rows out", within_s=WITHIN_S)


def test_a_driver_that_is_killed_is_started_again_and_no_row_is_lost_or_doubled(with_broker: Any) -> None:
    directory: Path = with_broker.directory
    (directory / "pipelines.py").write_text(PIPELINES)
    with running(with_broker, "pipelines.py", "--metrics-listen", "127.0.0.1:0") as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "running copies in micro-batches\n"
        with_broker.output("produce", "orders", stdin='{"id": "a"}\nbad\n')
        await_rows(with_broker, 1)
        first = pipelines(with_broker)["copies"]
        assert (first["state"], first["restarts"], first["lag"]) == ("running", 0, 0)

        os.kill(first["pid"], signal.SIGKILL)

        assert run.stdout.readline() == "running copies in micro-batches\n"
        with_broker.output("produce", "orders", stdin='{"id": "b"}\n')
        await_rows(with_broker, 2)
        second = pipelines(with_broker)["copies"]
        assert (second["state"], second["restarts"]) == ("running", 1)
        assert second["last_error"] == "its driver ended with signal SIGKILL"
        told = (directory / "errors").read_text()
        address = re.search(r"metrics on (\S+)", told)
        assert address is not None
        assert 'headrace_pipeline_restarts_total{pipeline="copies"} 1.0' in httpx.get(address[1]).text

        run.send_signal(signal.SIGINT)
        assert run.wait(WITHIN_S) == 0
    assert {row["state"] for row in pipelines(with_broker).values()} == {"stopped"}
    copies = with_broker.output("consume", "copies", "--from-beginning", "--until-end").splitlines()
    assert sorted(json.loads(value)["id"] for value in copies) == ["a", "b"]


def test_a_mistake_in_the_file_ends_the_run_with_its_sentence(command_line: Any) -> None:
    (command_line.directory / "pipelines.py").write_text("import nowhere\n")
    told = command_line.refusal("run", "pipelines.py", code=2)
    assert "pipelines.py, line 1: ModuleNotFoundError: No module named 'nowhere'" in told
