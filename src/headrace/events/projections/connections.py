"""Connections to PostgreSQL that are lent for one transaction each, and its errors in our own words."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from headrace.errors import StoreUnavailable

CONNECT_S_MAX: Final = 10
IDLE_COUNT_MAX: Final = 8
"""So many connections are kept for the next transaction; more are closed when they are given back."""

Connection = psycopg.Connection[tuple[Any, ...]]


class Connections:
    """A few connections that are kept open. Safe to use from several threads."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._idle: list[Connection] = []
        self._lock = threading.Lock()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction, committed when the context is left without an error.

        Raises StoreUnavailable where the database does not answer, or has given up for now.
        """
        try:
            connection = self._take()
            try:
                with connection.transaction():
                    yield connection
            finally:
                self._give_back(connection)
        except psycopg.OperationalError as error:
            if not is_passing(error):
                raise
            self.close()
            raise unavailable(error) from error

    def close(self) -> None:
        """Close those that are not in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> Connection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return psycopg.connect(
            self._dsn, autocommit=True, connect_timeout=CONNECT_S_MAX, application_name="headrace"
        )

    def _give_back(self, connection: Connection) -> None:
        is_whole = not connection.broken and not connection.closed
        with self._lock:
            if is_whole and len(self._idle) < IDLE_COUNT_MAX:
                self._idle.append(connection)
                return
        connection.close()


def is_passing(error: BaseException | None) -> bool:
    """Whether it is not the statement's fault: a lost connection, a deadlock, a server that stops."""
    # A pipeline is aborted by a statement before, whose fault it is.
    return isinstance(error, psycopg.OperationalError) and not isinstance(
        error, psycopg.errors.PipelineAborted
    )


def unavailable(error: BaseException | None) -> StoreUnavailable:
    """The same in our own words."""
    return StoreUnavailable(f"the database has given up for now: {str(error).strip()}")
