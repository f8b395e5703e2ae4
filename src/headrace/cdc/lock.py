"""The lock of a capture, in its database: one process has it, wherever it runs, and loses it as it ends."""

from __future__ import annotations

import hashlib
import threading
import time
from typing import Final

from headrace.cdc.connection import Connection, explained
from headrace.config import CaptureConfig
from headrace.errors import StoreUnavailable

LOCK_S_MAX: Final = 15.0
"""How long another process may take to be gone: the database has to notice the end of one that was killed."""
_PAUSE_S: Final = 0.2


def lock_capture(
    control: Connection,
    config: CaptureConfig,
    stopping: threading.Event | None = None,
    *,
    within_s: float | None = None,
) -> None:
    """Keep others of the name out, as long as the connection lives."""
    digest = hashlib.sha256(f"headrace\0capture\0{config.slot}".encode()).digest()
    number = int.from_bytes(digest[:8], signed=True)
    deadline_s = time.monotonic() + (LOCK_S_MAX if within_s is None else within_s)
    while True:
        with explained(config.dsn, "locking the capture"):
            row = control.execute("SELECT pg_try_advisory_lock(%s)", (number,)).fetchone()
        if row is not None and row[0]:
            return
        if time.monotonic() >= deadline_s or (stopping is not None and stopping.is_set()):
            raise StoreUnavailable(
                f"capture {config.name} runs already, in another process or on another machine: its slot "
                f"{config.slot} is locked. Stop that one first"
            )
        (stopping or threading.Event()).wait(_PAUSE_S)
