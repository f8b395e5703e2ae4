"""Waiting until the database says that events have come.

Each thread that waits has a connection of its own meanwhile, which is kept for the next one. Such a
connection holds a lock by which those who append know that somebody listens.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Final

from headrace.errors import EventsError
from headrace.events.postgres import queries
from headrace.events.postgres.connections import Connection, connect, explained
from headrace.events.postgres.migration import channel_of, filled

IDLE_MAX: Final = 8
"""How many connections are kept that nobody waits on."""
WAIT_S_MAX: Final = 5.0
"""After this time it is asked again in any case: a notice may be lost with its connection."""


class Listeners:
    """Connections that hear of events. Safe to use from any thread."""

    def __init__(self, dsn: str, schema: str) -> None:
        self._dsn = dsn
        self._schema = schema
        self._lock = Lock()
        self._idle: list[Connection] = []
        self._is_closed = False

    def wait(self, is_there: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something is there, asking anew whenever events have come, or until time is up."""
        if is_there():
            return True
        deadline_s = time.monotonic() + timeout_s
        connection = self._take()
        try:
            while not is_there():
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return False
                with explained(self._dsn, "waiting for events"):
                    for _ in connection.notifies(timeout=min(left_s, WAIT_S_MAX), stop_after=1):
                        pass
            return True
        finally:
            self._give_back(connection)

    def _take(self) -> Connection:
        with self._lock:
            if self._is_closed:
                raise EventsError("the journal is closed: open another")
            if self._idle:
                return self._idle.pop()
        connection = connect(self._dsn)
        with explained(self._dsn, "listening for events"):
            connection.execute(f"LISTEN {channel_of(self._schema)}".encode())
            connection.execute(filled(queries.LOCK_LISTENING, self._schema))
        return connection

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if not (self._is_closed or connection.closed or len(self._idle) >= IDLE_MAX):
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close those that nobody waits on; the others when they are given back."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
