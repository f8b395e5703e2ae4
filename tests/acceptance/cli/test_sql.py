"""`headrace sql` as a user has it: a query as JSON, and a view whose driver dies and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headrace.testing.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.long]

WITHIN_S = 240.0
VIEW = "CREATE VIEW by_city AS SELECT city, count(*) AS n FROM orders GROUP BY city"


@contextmanager
def running(command_line: Any, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "headrace", *arguments],
        cwd=command_line.directory,
        env=command_line.environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def status(command_line: Any) -> dict[str, Any]:
    rows = json.loads(command_line.output("pipelines", "--json"))
    return next((row for row in rows if row["pipeline"] == "by_city"), {})


def await_read(command_line: Any, count: int) -> dict[str, Any]:
    eventually(lambda: status(command_line).get("rows_in") == count, f"{count} rows in", within_s=WITHIN_S)
    return status(command_line)


def test_a_view_runs_is_killed_goes_on_and_is_queried(with_broker: Any) -> None:
    with_broker.output("produce", "orders", stdin='{"city": "bonn"}\n{"city": "bonn"}\n')
    with running(with_broker, "sql", VIEW) as view:
        assert view.stdout is not None
        assert view.stdout.readline() == "running by_city in micro-batches\n"
        os.kill(await_read(with_broker, 2)["pid"], signal.SIGKILL)

        assert view.stdout.readline() == "running by_city in micro-batches\n"
        with_broker.output("produce", "orders", stdin='{"city": "bonn"}\n{"city": "ulm"}\n')
        await_read(with_broker, 4)
        both = "SELECT city, n FROM by_city ORDER BY city; SELECT count(*) AS records FROM orders"
        found = with_broker.output("sql", "--json", both).splitlines()
        assert [json.loads(line) for line in found] == [
            {"city": "bonn", "n": 3},
            {"city": "ulm", "n": 1},
            {"records": 4},
        ]
        assert "view by_city is running: stop it first" in with_broker.refusal(
            "sql", "DROP VIEW by_city", code=2
        )
        view.send_signal(signal.SIGINT)
        assert view.wait(WITHIN_S) == 0
    shown = json.loads(with_broker.output("sql", "--json", "SHOW VIEWS"))
    assert (shown["name"], shown["reads"]) == ("by_city", "orders")


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("DELETE FROM orders", "'DELETE' begins no statement of headrace sql"),
        ("", "there is no statement"),
        (f"{VIEW}; {VIEW}", "create one at a time"),
    ],
)
def test_a_statement_that_can_not_be_is_refused_before_spark_starts(
    command_line: Any, statement: str, told: str
) -> None:
    assert told in command_line.refusal("sql", statement, code=2)
