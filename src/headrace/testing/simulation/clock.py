"""A clock that follows the simulated loop, and whose wall time can be made to jump."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.testing.simulation.loop import SimulatedLoop

BEGINNING_MS: Final = 1_700_000_000_000


class SimulatedClock:
    """Wall time and monotonic time of a simulated world."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._jumped_ms = 0

    @property
    def jumped_ms(self) -> int:
        """How far the wall clock is ahead of the true time."""
        return self._jumped_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, as the wall clock says."""
        return self.true_ms() + self._jumped_ms

    def true_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, as the other machines' clocks say."""
        return BEGINNING_MS + int(self._loop.time() * 1000)

    def monotonic_s(self) -> float:
        """Seconds that only ever grow."""
        return self._loop.time()

    def jump(self, by_ms: int) -> None:
        """Move the wall clock alone, in either direction."""
        self._jumped_ms += by_ms
