"""Threads that execute commands on one stream take turns.

They would only meet in conflicts otherwise, of which all but one are work for nothing. Processes don't know
of each other's turns: between them, the expected version decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, RLock


class _Turn:
    __slots__ = ("lock", "user_count")

    def __init__(self) -> None:
        self.lock = RLock()
        self.user_count = 0


class Turns:
    """One turn for each stream that is in use. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._turns: dict[str, _Turn] = {}

    @contextmanager
    def of(self, stream: str) -> Iterator[None]:
        """Wait for the turn of a stream, and have it."""
        with self._lock:
            turn = self._turns.setdefault(stream, _Turn())
            turn.user_count += 1
        try:
            with turn.lock:
                yield
        finally:
            with self._lock:
                turn.user_count -= 1
                if turn.user_count == 0:
                    del self._turns[stream]
