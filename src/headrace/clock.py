"""Time comes in through a clock, so that tests can hold it still."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what is written down, monotonic time for what is waited for."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that only ever grow."""
        ...


class SystemClock:
    """The machine's own clock. Safe to use from any thread."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds that only ever grow."""
        return time.monotonic()
