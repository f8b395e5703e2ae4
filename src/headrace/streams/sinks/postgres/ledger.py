"""The ledger of a table of PostgreSQL (see ledger_table.py), and who may write it.

Two advisory locks, held until a transaction ends, keep out whoever should not write any more:

- that of a share, by the task that writes it. A second task for the same share waits for the first, and then
  finds its entry;
- that of the run, shared by all its tasks. A run that starts takes it alone, so that no task of an earlier
  run is at work, and puts its id down. A task that finds another id there refuses to write.

Whoever waits too long for a lock ends the connection that holds it: its holder is a zombie.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import sql

from headrace.errors import StoreUnavailable
from headrace.streams.sinks.ledger import Batch, Entry, refuse_replaced, taken_over
from headrace.streams.sinks.ledger_table import LEDGER_COLUMNS, LEDGER_TABLE
from headrace.streams.sinks.postgres.connection import Connection, is_there, lock_creation

LOCK_S_MAX: Final = 30.0
"""How long a lock may be waited for before its holder is taken for dead."""

_RUN: Final = -1

_CREATE: Final = f"CREATE TABLE {{ledger}} {LEDGER_COLUMNS}"
_READ: Final = """
SELECT next_batch_id, query_id, share_count, digest FROM {ledger}
WHERE pipeline = %s AND target = %s AND share_number = %s
"""
_READ_ALL: Final = """
SELECT next_batch_id, query_id, share_count, digest FROM {ledger}
WHERE pipeline = %s AND target = %s AND share_number >= 0 ORDER BY share_number
"""
_WRITE: Final = """
INSERT INTO {ledger} (pipeline, target, share_number, next_batch_id, query_id, share_count, digest)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (pipeline, target, share_number) DO UPDATE SET next_batch_id = EXCLUDED.next_batch_id,
    query_id = EXCLUDED.query_id, share_count = EXCLUDED.share_count, digest = EXCLUDED.digest
"""
_END_HOLDERS: Final = """
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pid <> pg_backend_pid()
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ((classid::bigint << 32) | objid::bigint) = %s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLedger:
    """The entries of one pipeline and one table. Its methods work in the connection's open transaction."""

    schema_name: str
    pipeline: str
    target: str
    lock_s_max: float = LOCK_S_MAX

    def create(self, connection: Connection) -> None:
        """Create the ledger's table if it is missing. Who may not create one can have it made beforehand."""
        place = (self.schema_name, LEDGER_TABLE)
        if is_there(connection, *place):
            return
        lock_creation(connection)
        if not is_there(connection, *place):
            connection.execute(self._sql(_CREATE))

    def begin_run(self, connection: Connection, batch: Batch, run_id: str) -> list[Entry]:
        """Shut out all earlier runs, and return what they have written. Commit it."""
        # Before a lock is waited for: whoever was replaced must not get in the way of his successor.
        refuse_replaced([self._read(connection, _RUN)], batch)
        self._lock(connection, _RUN, shared=False)
        refuse_replaced([self._read(connection, _RUN)], batch)
        self._write(
            connection, _RUN, Entry(next_batch_id=0, query_id=batch.query_id, task_count=0, digest=run_id)
        )
        rows = connection.execute(self._sql(_READ_ALL), (self.pipeline, self.target)).fetchall()
        return [_entry(row) for row in rows]

    def begin_share(self, connection: Connection, task: int, run_id: str) -> Entry | None:
        """Shut out all others that write the share, and return its entry."""
        self._lock(connection, _RUN, shared=True)
        run = self._read(connection, _RUN)
        if run is None or run.digest != run_id:
            raise taken_over(self.pipeline)
        self._lock(connection, task, shared=False)
        return self._read(connection, task)

    def end_share(self, connection: Connection, task: int, entry: Entry) -> None:
        """Note down that the share is written. Commit it with the rows."""
        self._write(connection, task, entry)

    def _read(self, connection: Connection, share: int) -> Entry | None:
        row = connection.execute(self._sql(_READ), (self.pipeline, self.target, share)).fetchone()
        return None if row is None else _entry(row)

    def _write(self, connection: Connection, share: int, entry: Entry) -> None:
        values = (entry.next_batch_id, entry.query_id, entry.task_count, entry.digest)
        connection.execute(self._sql(_WRITE), (self.pipeline, self.target, share, *values))

    def _lock(self, connection: Connection, share: int, *, shared: bool) -> None:
        key = lock_key(self.pipeline, self.target, share)
        if self._try_lock(connection, key, shared=shared):
            return
        connection.execute(_END_HOLDERS, (key,))
        if not self._try_lock(connection, key, shared=shared):
            raise StoreUnavailable(
                f"another writer of pipeline {self.pipeline} holds the table {self.target} and can't be "
                "ended: end its connections"
            )

    def _try_lock(self, connection: Connection, key: int, *, shared: bool) -> bool:
        function = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
        try:
            # In a savepoint: the locks that are held already stay.
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {round(self.lock_s_max * 1000)}")
                connection.execute(sql.SQL("SELECT {}(%s)").format(sql.Identifier(function)), (key,))
                connection.execute("SET LOCAL lock_timeout = 0")
        except psycopg.errors.LockNotAvailable:
            return False
        return True

    def _sql(self, statement: str) -> sql.Composed:
        ledger = sql.Identifier(self.schema_name, LEDGER_TABLE)
        return sql.SQL(statement).format(ledger=ledger)


def lock_key(pipeline: str, target: str, share: int) -> int:
    """The number of a lock: a signed integer of 64 bits."""
    name = f"headrace\0{pipeline}\0{target}\0{share}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:8], signed=True)


def _entry(row: tuple[int, str, int, str]) -> Entry:
    next_batch_id, query_id, task_count, digest = row
    return Entry(next_batch_id=next_batch_id, query_id=query_id, task_count=task_count, digest=digest)
