"""A clock that only moves when it is told to."""

from __future__ import annotations


class ManualClock:
    """Wall time and monotonic time, moved by hand. Not safe to move from several threads."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return self._now_ms

    def monotonic_s(self) -> float:
        """Seconds that only ever grow."""
        return self._monotonic_ms / 1000

    def advance(self, by_ms: int) -> None:
        """Let time pass, on both scales."""
        if by_ms < 0:
            raise ValueError(f"time can't go back by {-by_ms} ms; use jump() to move the wall clock alone")
        self._now_ms += by_ms
        self._monotonic_ms += by_ms

    def jump(self, by_ms: int) -> None:
        """Move the wall clock alone, in either direction, as an administrator or a time server may."""
        self._now_ms += by_ms
