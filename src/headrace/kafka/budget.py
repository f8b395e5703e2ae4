"""How many bytes of requests the broker holds at once, over all connections.

A connection reserves the whole size of a frame before it goes on reading it, and gives it back when the
request is answered. Whoever has a reservation can always finish reading, so connections that wait for room
never wait for each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class InFlightBudget:
    """Belongs to the event loop's thread."""

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._waiting: dict[Callable[[], None], None] = {}
        self.used_bytes = 0

    def reserve(self, size_bytes: int, when_there_is_room: Callable[[], None]) -> bool:
        """Reserve bytes; if there is no room, call back once there may be. Who asks twice is called once."""
        if self.used_bytes + size_bytes > self._size_bytes_max:
            self._waiting[when_there_is_room] = None
            return False
        self.used_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """Give bytes back, and let those who wait try again."""
        self.used_bytes -= size_bytes
        waiting, self._waiting = self._waiting, {}
        for try_again in waiting:
            try_again()
