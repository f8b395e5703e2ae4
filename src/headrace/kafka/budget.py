"""How many bytes of requests the broker holds at once, over all connections.

A connection reserves what has come of a frame, not what the frame's head announces: a few bytes that promise
a hundred megabytes keep nobody waiting. What is reserved is given back when the request is answered.

If that were all, unfinished frames of many connections could fill the budget, each of them waiting for room
that only the others could give. So the last `frame_bytes_max` bytes are kept for one unfinished frame at a
time: it can always be read to its end, be answered and give back its room, and then the next one passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class InFlightBudget:
    """Belongs to the event loop's thread."""

    def __init__(self, size_bytes_max: int, *, frame_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._shared_bytes_max = size_bytes_max - frame_bytes_max
        self._passing: Callable[[], None] | None = None
        self._waiting: dict[Callable[[], None], None] = {}
        self.used_bytes = 0

    def reserve(self, size_bytes: int, when_there_is_room: Callable[[], None], *, ends_frame: bool) -> bool:
        """Reserve bytes; if there is no room, call back once there may be. Who asks twice is called once.

        The callback stands for the connection: it is the same one for all parts of a frame.
        """
        end_bytes = self.used_bytes + size_bytes
        if end_bytes > self._shared_bytes_max:
            may_pass = self._passing is None or self._passing == when_there_is_room
            if not may_pass or end_bytes > self._size_bytes_max:
                self._waiting[when_there_is_room] = None
                return False
            self._passing = when_there_is_room
        if ends_frame and self._passing == when_there_is_room:
            self._passing = None
        self.used_bytes = end_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """Give bytes back, and let those who wait try again."""
        self.used_bytes -= size_bytes
        if self.used_bytes <= self._shared_bytes_max:
            self._passing = None
        waiting, self._waiting = self._waiting, {}
        for try_again in waiting:
            try_again()
