"""Everything that is embedded, by one command."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import httpx
import pika
import psutil
import psycopg
import pytest

from headrace.testing.waiting import eventually

if TYPE_CHECKING:
    from tests.acceptance.conftest import CommandLine

HEADRACE = (sys.executable, "-m", "headrace")
PORTS = ("--port", "--broker-port", "--amqp-port", "--postgres-port")
WITHIN_S = 120.0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_runs_broker_database_and_console_until_it_is_stopped_and_leaves_nothing_behind(
    command_line: CommandLine, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [*HEADRACE, "up", *(each for part in PORTS for each in (part, "0"))],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=command_line.directory,
        env=command_line.environment(),
    ) as process:
        try:
            assert process.stdout is not None
            broker, queues, database, page, _ = (process.stdout.readline() for _ in range(5))
            found = re.search(r"listening on (\S+);", broker)
            assert found, broker
            command_line.bootstrap = found.group(1)
            command_line.output("produce", "orders", stdin="one\n")
            with closing(pika.BlockingConnection(pika.URLParameters(queues.split()[1].strip(";")))) as amqp:
                amqp.channel().queue_declare("orders", durable=True)
            with closing(psycopg.connect(database.split('"')[1])) as connection:
                assert connection.execute("SHOW wal_level").fetchone() == ("logical",)
            url, _, token = page.split()[1].partition("/?token=")
            assert token

            def record_count() -> int:
                topics = httpx.get(f"{url}/api/topics").json()["topics"]
                return next((row["record_count"] for row in topics if row["name"] == "orders"), 0)

            eventually(lambda: record_count() == 1, within_s=WITHIN_S)
            family = psutil.Process(process.pid).children(recursive=True)
            assert len(family) >= 3
            process.send_signal(number)
            assert process.wait(WITHIN_S) == 0
            assert not any(each.is_running() for each in family)
        finally:
            process.kill()
