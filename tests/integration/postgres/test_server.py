"""The embedded PostgreSQL: made, started, stopped, killed, and never left behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from headrace.config import Address, PostgresConfig
from headrace.errors import ChildFailed, ConfigError, DataDirectoryInUse, UsageError
from headrace.postgres import EmbeddedPostgres, open_database, postmaster
from headrace.postgres.account import account_for
from headrace.testing.postgres import TestDatabase
from headrace.testing.waiting import eventually

RUN = """
import sys
from pathlib import Path
from headrace.config import PostgresConfig
from headrace.postgres import EmbeddedPostgres
server = EmbeddedPostgres(PostgresConfig(data_dir=Path(sys.argv[1]), durability="os")).start()
print(server.pid, server.dsn, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def new_dir() -> Iterator[Path]:
    """A directory that everybody can enter, with nothing in it."""
    directory = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def data_dir() -> Iterator[Path]:
    """A data directory with a database, which the tests share one after the other."""
    directory = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
    with embedded(directory) as server, closing(psycopg.connect(server.dsn, autocommit=True)) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS n")
    yield directory
    shutil.rmtree(directory)


def embedded(data_dir: Path, listen: Address | None = None) -> EmbeddedPostgres:
    return EmbeddedPostgres(PostgresConfig(data_dir=data_dir, durability="os", listen=listen))


def ask(dsn: str, question: str) -> object:
    with closing(psycopg.connect(dsn, autocommit=True)) as connection:
        answer = connection.execute(question.encode()).fetchone()
        assert answer is not None
        return answer[0]


def in_another_process(data_dir: Path) -> tuple[subprocess.Popen[str], int, str]:
    """A process that runs a server; its pid and its DSN."""
    holder = subprocess.Popen(
        [sys.executable, "-c", RUN, str(data_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    pid, _, dsn = holder.stdout.readline().strip().partition(" ")
    return holder, int(pid), dsn


def kill(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdin.close()
    holder.stdout.close()


def watchers_of(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in found.splitlines() if line.endswith(f'kill -INT "$1" sh {pid}')]


def test_a_database_is_made_once_and_kept_with_logical_replication(data_dir: Path) -> None:
    with embedded(data_dir, Address("127.0.0.1", 0)) as server:
        assert "host=127.0.0.1" in server.dsn
        assert ask(server.dsn, "SHOW wal_level") == "logical"
        assert ask(server.dsn, "SELECT n FROM kept") == 42


def test_nobody_gets_in_without_the_password(headrace_postgres: TestDatabase) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(headrace_postgres.dsn, password="guessed")


def test_a_second_server_of_a_directory_is_refused_and_the_first_goes_on(data_dir: Path) -> None:
    with embedded(data_dir) as server:
        with pytest.raises(DataDirectoryInUse, match=str(os.getpid())):
            embedded(data_dir).start()
        with pytest.raises(UsageError, match="running already"):
            server.start()
        assert ask(server.dsn, "SELECT 1") == 1


def test_a_server_stops_when_whoever_started_it_is_killed(data_dir: Path) -> None:
    holder, pid, dsn = in_another_process(data_dir)
    assert ask(dsn, "SELECT 1") == 1
    kill(holder)
    eventually(lambda: not postmaster.is_running(pid, data_dir / "postgres" / "cluster"), "the server's end")
    assert postmaster.read(data_dir / "postgres" / "cluster") is None
    assert eventually(lambda: not watchers_of(pid))


def test_a_server_that_was_left_running_is_stopped_before_the_next_one_starts(data_dir: Path) -> None:
    holder, pid, dsn = in_another_process(data_dir)
    assert ask(dsn, "SELECT n FROM kept") == 42
    [watcher] = watchers_of(pid)
    os.kill(watcher, signal.SIGKILL)
    kill(holder)
    assert postmaster.is_running(pid, data_dir / "postgres" / "cluster")
    with embedded(data_dir) as server:
        assert server.pid != pid
        assert not postmaster.is_running(pid, data_dir / "postgres" / "cluster")
        assert ask(server.dsn, "SELECT n FROM kept") == 42


def test_a_file_that_a_crash_has_left_does_not_keep_it_from_starting(data_dir: Path) -> None:
    with embedded(data_dir) as server:
        cluster = server.home / "cluster"
        left = (cluster / "postmaster.pid").read_text()
    # Another process of the same user has the number by now; by itself, PostgreSQL would not start.
    with subprocess.Popen(["sleep", "600"], **account_for(cluster).process_options) as other:
        (cluster / "postmaster.pid").write_text(left.replace(left.splitlines()[0], str(other.pid), 1))
        with embedded(data_dir) as server:
            assert ask(server.dsn, "SELECT 1") == 1
        assert other.poll() is None
        other.kill()


def test_an_initdb_that_was_killed_leaves_nothing_that_counts(new_dir: Path) -> None:
    # So deep that the path is too long for a socket, too, which then lies elsewhere.
    data_dir = new_dir / ("d" * 90)
    half_made = data_dir / "postgres" / "cluster.unfinished"
    half_made.mkdir(parents=True)
    (half_made / "PG_VERSION").write_text("18")
    with embedded(data_dir) as server:
        assert ask(server.dsn, "SELECT 1") == 1
        socket_dir = Path(server.dsn.partition("host=")[2].partition(" ")[0])
        assert not socket_dir.is_relative_to(data_dir)
    assert not socket_dir.exists()


def test_a_server_that_ends_by_itself_says_why(data_dir: Path) -> None:
    with embedded(data_dir) as server:
        os.kill(server.pid, signal.SIGQUIT)
        with pytest.raises(ChildFailed, match="ended with code"):
            eventually(server.check, "the end of the server")


def test_a_start_that_fails_says_why_and_lets_go_of_the_directory(data_dir: Path) -> None:
    settings = data_dir / "postgres" / "cluster" / "postgresql.auto.conf"
    settings.write_text("no_such_setting = 1\n")
    with pytest.raises(ChildFailed, match="no_such_setting"):
        embedded(data_dir).start()
    settings.write_text("")
    with embedded(data_dir) as server:
        assert ask(server.dsn, "SELECT 1") == 1


def test_a_port_that_is_taken_is_named(data_dir: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(ConfigError, match=f"can't listen on {address}"):
            embedded(data_dir, address).start()


def test_a_database_of_the_users_own_comes_first(new_dir: Path) -> None:
    with open_database("host=db.example", PostgresConfig(data_dir=new_dir)) as dsn:
        assert dsn == "host=db.example"
    assert list(new_dir.iterdir()) == []
