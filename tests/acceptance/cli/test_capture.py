"""A capture from the command line: added, started, watched, paused, resumed, removed."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.testing.postgres import TestDatabase
from headrace.testing.waiting import eventually

if TYPE_CHECKING:
    from tests.acceptance.conftest import CommandLine

HEADRACE = (sys.executable, "-m", "headrace")
WITHIN_S = 120.0


def status(command_line: CommandLine) -> dict[str, Any]:
    [told] = json.loads(command_line.output("capture", "status", "shop", "--json"))
    return dict(told)


@contextmanager
def started(command_line: CommandLine, *options: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*HEADRACE, "capture", "start", "shop", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=command_line.directory,
        env=command_line.environment(),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_with(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return line
    raise AssertionError(f"it ended without saying {words!r}")


def values(command_line: CommandLine) -> list[dict[str, Any]]:
    told = command_line.output("consume", "shop.public.orders", "--from-beginning", "--until-end", "--json")
    return [json.loads(line) for line in told.splitlines()]


def test_a_capture_is_added_started_paused_resumed_and_removed(
    with_broker: CommandLine, headrace_postgres: TestDatabase
) -> None:
    headrace_postgres.execute("CREATE TABLE orders (id int PRIMARY KEY, v text)")
    headrace_postgres.execute("INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    slot = f"cli_{headrace_postgres.execute('SELECT current_database()')[0][0]}"
    with_broker.variables["HEADRACE_POSTGRES"] = headrace_postgres.dsn
    for option, pattern in (("--mask", "public.orders.w=***"), ("--exclude-column", "public.order.v")):
        told = with_broker.refusal("capture", "add", "shop", option, pattern, code=2)
        assert f"nothing like {pattern.partition('=')[0]}" in told
    added = with_broker.output("capture", "add", "shop", "--slot", slot, "--heartbeat", "0.2", "--json")
    assert json.loads(added) == {"capture": "shop", "tables": ["public.orders"]}
    assert "already" in with_broker.refusal("capture", "add", "shop", "--slot", slot, code=2)
    assert status(with_broker)["state"] == "new"
    with started(with_broker) as process:
        line_with(process, "publishing the rows of 1 tables")
        line_with(process, "publishing changes to shop.*, after 2 rows")
        assert len(values(with_broker)) == 2
        assert status(with_broker)["state"] == "streaming"

        with_broker.output("capture", "pause", "shop")
        eventually(lambda: status(with_broker)["state"] == "paused", within_s=WITHIN_S)
        headrace_postgres.execute("INSERT INTO orders VALUES (3, 'c')")
        typo = with_broker.refusal(
            "capture", "snapshot", "shop", "public.orders", "--where", "idd = 1", code=2
        )
        assert "no condition on rows of public.orders" in typo
        with_broker.output("capture", "snapshot", "shop", "public.orders", "--where", "id = 1")
        assert len(values(with_broker)) == 2
        with_broker.output("capture", "resume", "shop")
        eventually(lambda: len(values(with_broker)) == 4, within_s=WITHIN_S)

        assert "runs already" in with_broker.refusal("capture", "remove", "shop", "--yes", code=1)
        process.send_signal(signal.SIGINT)
        line_with(process, "stopped")
        assert process.wait(WITHIN_S) == 0
    assert status(with_broker)["state"] == "stopped"
    in_use = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
    eventually(lambda: not headrace_postgres.execute(in_use, slot), within_s=WITHIN_S)
    headrace_postgres.execute("SELECT pg_drop_replication_slot(%s)", slot)
    assert "is gone" in with_broker.refusal("capture", "start", "shop", code=1)
    assert "is gone" in status(with_broker)["last_error"]
    with started(with_broker, "--new-snapshot") as process:
        line_with(process, "publishing changes to shop.*, after 3 rows")
        process.terminate()
        assert process.wait(WITHIN_S) == 0
    with_broker.output("capture", "remove", "shop", "--yes")
    assert json.loads(with_broker.output("capture", "status", "--json")) == []
    assert headrace_postgres.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", slot) == []


def test_a_capture_that_was_killed_is_shown_as_crashed_and_can_be_started_again(
    with_broker: CommandLine, headrace_postgres: TestDatabase
) -> None:
    headrace_postgres.execute("CREATE TABLE orders (id int PRIMARY KEY, v text)")
    slot = f"cli_{headrace_postgres.execute('SELECT current_database()')[0][0]}"
    with_broker.output("capture", "add", "shop", "--dsn", headrace_postgres.dsn, "--slot", slot)
    with started(with_broker) as process:
        line_with(process, "publishing changes")
        process.kill()
        process.wait(WITHIN_S)
    assert status(with_broker)["state"] == "crashed"
    headrace_postgres.execute("INSERT INTO orders VALUES (1, 'a')")
    forget = ("capture", "remove", "shop", "--forget-database", "--yes", "--json")
    with started(with_broker) as process:
        line_with(process, "publishing changes")
        assert f"runs, in process {process.pid}" in with_broker.refusal(*forget, code=2)
        with_broker.output("capture", "pause", "shop")
        eventually(lambda: status(with_broker)["state"] == "paused", within_s=WITHIN_S)
        assert f"runs, in process {process.pid}" in with_broker.refusal(*forget, code=2)
        with_broker.output("capture", "resume", "shop")
        eventually(lambda: "public.orders" in with_broker.output("topics", "list"), within_s=WITHIN_S)
        eventually(lambda: len(values(with_broker)) == 1, within_s=WITHIN_S)
        process.kill()
        process.wait(WITHIN_S)
    # It was not added by a name under which anybody is found.
    written = with_broker.directory / "data" / "captures" / "shop" / "capture.json"
    written.write_text(written.read_text().replace(headrace_postgres.dsn, "host=127.0.0.1 port=1"))
    told = json.loads(with_broker.output(*forget))
    assert told["left"] == [f"the replication slot {slot}", f"the publication {slot}"]
    assert json.loads(with_broker.output("capture", "status", "--json")) == []
    in_use = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
    eventually(lambda: not headrace_postgres.execute(in_use, slot), within_s=WITHIN_S)
    for statement in told["sql"]:
        headrace_postgres.execute(statement)
    assert headrace_postgres.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", slot) == []


def test_what_is_missing_is_named(command_line: CommandLine) -> None:
    assert "which database?" in command_line.refusal("capture", "add", "shop", code=2)
    told = command_line.refusal("capture", "add", "shop", "--dsn", "host=127.0.0.1 port=1 password=x", code=1)
    assert "no connection to PostgreSQL 127.0.0.1:1" in told
    assert "there is no capture shop" in command_line.refusal("capture", "start", "shop", code=2)
    assert "--keep 'x': write all, last" in command_line.refusal(
        "capture", "add", "s", "--dsn", "x=y", "--keep", "x", code=2
    )
    assert "COLUMN=TEXT" in command_line.refusal("capture", "add", "s", "--dsn", "x=y", "--mask", "a", code=2)
    assert json.loads(command_line.output("capture", "status", "--json")) == []


def test_without_the_extra_the_commands_say_what_to_install() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None; sys.argv = ['headrace', 'capture', 'status']; "
        "import headrace.postgres, headrace.testing.plugin; from headrace.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "install `headrace[postgres]`" in done.stderr


def add_orders(command_line: CommandLine, database: TestDatabase) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, v text)")
    database.execute("INSERT INTO orders SELECT n, 'v' FROM generate_series(1, 5000) n")
    slot = f"cli_{database.execute('SELECT current_database()')[0][0]}"
    command_line.output("capture", "add", "shop", "--slot", slot, "--dsn", database.dsn)


def read_terminal(leader: int, words: str) -> str:
    """What a terminal shows until these words come."""
    told = b""
    while words.encode() not in told:
        try:
            told += os.read(leader, 65536)
        except OSError as error:
            raise AssertionError(f"it ended without saying {words!r}: {told!r}") from error
    return told.decode()


def test_a_terminal_shows_a_bar_while_rows_are_published(
    with_broker: CommandLine, headrace_postgres: TestDatabase
) -> None:
    add_orders(with_broker, headrace_postgres)
    leader, follower = pty.openpty()
    try:
        with subprocess.Popen(
            [*HEADRACE, "capture", "start", "shop"],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            cwd=with_broker.directory,
            env={**with_broker.environment(), "TERM": "xterm"},
        ) as process:
            try:
                os.close(follower)
                told = read_terminal(leader, "publishing changes to shop.*, after 5000 rows")
                process.send_signal(signal.SIGINT)
                read_terminal(leader, "capture shop: stopped")
                assert process.wait(WITHIN_S) == 0
            finally:
                process.kill()
    finally:
        os.close(leader)
    assert re.search(r"public\.orders .*100% 5000/5000", told), told


def test_lines_and_no_bar_are_written_where_there_is_no_terminal(
    with_broker: CommandLine, headrace_postgres: TestDatabase
) -> None:
    add_orders(with_broker, headrace_postgres)
    with started(with_broker) as process:
        line_with(process, "publishing the rows of 1 tables")
        line_with(process, "publishing changes to shop.*, after 5000 rows")
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=WITHIN_S)
    assert rest == "capture shop: stopped\n"
    assert not re.search(r"[\x1b%\r]", errors), errors
