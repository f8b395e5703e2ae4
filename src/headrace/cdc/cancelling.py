"""Ends statements that wait for others, such as for a lock, when a capture is to end: nothing else would."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import psycopg

from headrace.cdc.connection import Connection

GRACE_S: Final = 1.0
"""How long a statement may go on when the capture is to end: most are over by then."""
TELL_S: Final = 5.0
"""How long something may take before that is told."""
_LOOK_S: Final = 0.1
_CANCEL_S_MAX: Final = 1.0


def cancel(connection: Connection) -> None:
    """Have the server end what runs on a connection, if anything does. Safe from any thread."""
    with suppress(psycopg.Error):
        connection.cancel_safe(timeout=_CANCEL_S_MAX)


@contextmanager
def cancelled_when(
    is_ending: Callable[[], bool], *connections: Connection, tell: Callable[[], None] | None = None
) -> Iterator[None]:
    """Cancel what runs on these connections, once the capture is to end; `tell` that it takes long."""
    is_over = threading.Event()

    def watch() -> None:
        started_s, ending_s, is_told = time.monotonic(), None, tell is None
        while not is_over.wait(_LOOK_S):
            now_s = time.monotonic()
            if is_ending():
                ending_s = ending_s or now_s
                if now_s - ending_s >= GRACE_S:
                    for connection in connections:
                        cancel(connection)
            elif not is_told and tell is not None and now_s - started_s >= TELL_S:
                is_told = True
                tell()

    watcher = threading.Thread(target=watch, name="headrace-cancelling", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
