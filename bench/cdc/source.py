"""The database that changes are captured from: a table of payments, filled at once or at an even pace.

All writing is done by procedures of the database itself, so that no client is in the way. Each payment has
five columns: a key, a number, a numeric, a text and a timestamp with time zone.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.config import Address, PostgresConfig
from headrace.postgres import EmbeddedPostgres

TABLE: Final = "public.bench"
ROWS_PER_TRANSACTION: Final = 1_000
"""Of what is filled in at once."""
ACTIVE_S_MAX: Final = 120.0
_NUMBERS: Final = count()
_VALUES: Final = "i, i % 1000, (i % 50000) / 100.0, 'payment ' || i || ' of this week', clock_timestamp()"
_TABLE: Final = """
    CREATE TABLE bench (
        id bigint PRIMARY KEY, account int, amount numeric(12, 2), note text, ts timestamptz)
"""
_FILL: Final = f"""
    CREATE PROCEDURE fill(low bigint, high bigint, at_once bigint) LANGUAGE plpgsql AS $$
    BEGIN
        WHILE low < high LOOP
            INSERT INTO bench SELECT {_VALUES} FROM generate_series(low, least(low + at_once, high) - 1) i;
            COMMIT;
            low := low + at_once;
        END LOOP;
    END $$
"""  # noqa: S608 - of constants
_PACE: Final = f"""
    CREATE PROCEDURE pace(low bigint, high bigint, per_second int) LANGUAGE plpgsql AS $$
    DECLARE
        begun timestamptz := clock_timestamp();
        due timestamptz;
    BEGIN
        FOR i IN low .. high - 1 LOOP
            due := begun + (i - low) * interval '1 second' / per_second;
            PERFORM pg_sleep(greatest(0, extract(epoch FROM due - clock_timestamp())));
            INSERT INTO bench SELECT {_VALUES};
            COMMIT;
        END LOOP;
    END $$
"""


class Source:
    """A database with an empty table."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    @property
    def parameters(self) -> dict[str, Any]:
        """How it is reached: host, port, dbname, user, password."""
        return dict(conninfo_to_dict(self.dsn))

    def fill(self, first: int, beyond: int) -> None:
        """Insert rows of these ids, many in a transaction."""
        self._execute(f"CALL fill({first}, {beyond}, {ROWS_PER_TRANSACTION})")

    def pace(self, first: int, beyond: int, per_second: int) -> float:
        """Insert rows of these ids, each in a transaction of its own; return how many came a second."""
        begun_s = time.monotonic()
        self._execute(f"CALL pace({first}, {beyond}, {per_second})")
        return (beyond - first) / (time.monotonic() - begun_s)

    def await_reader(self, slot: str) -> None:
        """Return when somebody reads from the slot."""
        deadline_s = time.monotonic() + ACTIVE_S_MAX
        while not self._execute(
            f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{slot}' AND active"  # noqa: S608
        ):
            if time.monotonic() > deadline_s:
                raise SystemExit(f"nobody read from the slot {slot} within {ACTIVE_S_MAX:.0f} s")
            time.sleep(0.05)

    def _execute(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@contextmanager
def server() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL in a temporary directory, for which committed means on disk."""
    directory = Path(tempfile.mkdtemp(prefix="headrace-bench-pg-"))
    try:
        config = PostgresConfig(data_dir=directory, listen=Address("127.0.0.1", 0), durability="sync")
        with EmbeddedPostgres(config) as running:
            yield running
    finally:
        shutil.rmtree(directory)


@contextmanager
def source(postgres: EmbeddedPostgres) -> Iterator[Source]:
    """A database of its own, dropped afterwards with the slots that were made in it."""
    name = f"bench_{next(_NUMBERS)}"
    with psycopg.connect(postgres.dsn, autocommit=True) as owner:
        owner.execute(f"CREATE DATABASE {name}")
        made = make_conninfo(postgres.dsn, dbname=name)
        with psycopg.connect(made, autocommit=True) as connection:
            for statement in (_TABLE, _FILL, _PACE):
                connection.execute(statement.encode())
        try:
            yield Source(made)
        finally:
            owner.execute(
                "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots "
                "WHERE database = %s AND active",
                (name,),
            )
            owner.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s",
                (name,),
            )
            owner.execute(f"DROP DATABASE {name} WITH (FORCE)")
