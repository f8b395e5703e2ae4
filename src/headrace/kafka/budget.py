"""How many bytes of requests the broker holds at once, over all connections.

A connection reserves what has come of a frame, not what the frame's head announces: a few bytes that promise
a hundred megabytes keep nobody waiting. What is reserved is given back when the request is answered.

If that were all, unfinished frames of many connections could fill the budget, each of them waiting for room
that only the others could give. So the last `frame_bytes_max` bytes are kept for one unfinished frame at a
time: it can always be read to its end, be answered and give back its room, and then the next one passes.

That alone would let large unfinished frames delay everybody's heartbeats. So small frames have a budget of
their own, and a frame that comes too slowly while others wait has to make way: its connection is closed (see
`ClientConnection.close_if_late`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.config import KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Callable


SMALL_FRAME_BYTES_MAX: Final = 64 * KIB
SMALL_FRAMES_BYTES_MAX: Final = 16 * MIB
PACE_WINDOW_S: Final = 2.0
PACE_BYTES_PER_S_MIN: Final = 256 * KIB
"""While others wait for room, an unfinished frame must grow at this pace, or make way."""


class Budgets:
    """What is in flight: small frames and large ones. Belongs to the event loop's thread."""

    def __init__(self, size_bytes_max: int, *, frame_bytes_max: int) -> None:
        small_bytes = min(SMALL_FRAMES_BYTES_MAX, (size_bytes_max - frame_bytes_max) // 4)
        if small_bytes < 2 * SMALL_FRAME_BYTES_MAX:
            self.small = self.large = InFlightBudget(size_bytes_max, frame_bytes_max=frame_bytes_max)
        else:
            self.small = InFlightBudget(small_bytes, frame_bytes_max=SMALL_FRAME_BYTES_MAX)
            self.large = InFlightBudget(size_bytes_max - small_bytes, frame_bytes_max=frame_bytes_max)

    def of(self, frame_bytes: int) -> InFlightBudget:
        """The budget of a frame of that size."""
        return self.small if frame_bytes <= SMALL_FRAME_BYTES_MAX else self.large

    @property
    def used_bytes(self) -> int:
        """How much is in flight."""
        return self.large.used_bytes + (0 if self.small is self.large else self.small.used_bytes)


class Pace:
    """Whether an unfinished frame grows fast enough, measured from the first time that it is asked."""

    __slots__ = ("_from_bytes", "_from_s")

    def __init__(self) -> None:
        self._from_s: float | None = None
        self._from_bytes = 0

    def is_too_slow(self, arrived_bytes: int, now_s: float) -> bool:
        """Whether it has grown too little since the window began."""
        if self._from_s is not None:
            took_s = now_s - self._from_s
            if took_s < PACE_WINDOW_S:
                return False
            if arrived_bytes - self._from_bytes < took_s * PACE_BYTES_PER_S_MIN:
                return True
        self._from_s, self._from_bytes = now_s, arrived_bytes
        return False

    def reset(self) -> None:
        """Measure anew: it is another frame, or nobody waits, or it is not read."""
        self._from_s = None


class InFlightBudget:
    """Belongs to the event loop's thread."""

    def __init__(self, size_bytes_max: int, *, frame_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._shared_bytes_max = size_bytes_max - frame_bytes_max
        self._passing: Callable[[], None] | None = None
        self._waiting: dict[Callable[[], None], None] = {}
        self.used_bytes = 0

    @property
    def is_short(self) -> bool:
        """Whether somebody waits for room."""
        return bool(self._waiting)

    def has_room(self, size_bytes: int) -> bool:
        """Whether so many bytes can be reserved and given back at once, so that nobody need do either."""
        return self.used_bytes + size_bytes <= self._shared_bytes_max

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
