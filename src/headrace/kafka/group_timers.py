"""One timer per group, or whatever else time changes, which rings when it does so next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kafka.services import Scheduler, Timer


Key = TypeVar("Key")


class GroupTimers(Generic[Key]):
    """Belongs to the event loop's thread."""

    def __init__(self, scheduler: Scheduler, now_ms: Callable[[], int], ring: Callable[[Key], None]) -> None:
        self._scheduler = scheduler
        self._now_ms = now_ms
        self._ring = ring
        self._timers: dict[Key, tuple[int, Timer]] = {}
        self._is_closed = False

    def set(self, group_id: Key, deadline_ms: int | None) -> None:
        """Ring for the group once the deadline has passed; never, where there is none."""
        running = self._timers.get(group_id)
        # A timer that rings too early does no harm, and heartbeats move the deadline all the time.
        if running is not None and deadline_ms is not None and running[0] <= deadline_ms:
            return
        if running is not None:
            running[1].cancel()
            del self._timers[group_id]
        if deadline_ms is not None and not self._is_closed:
            delay_s = max(0, deadline_ms - self._now_ms() + 1) / 1000
            timer = self._scheduler.call_later(delay_s, lambda: self._rung(group_id))
            self._timers[group_id] = (deadline_ms, timer)

    def close(self) -> None:
        """Ring no more, whatever is set from now on."""
        self._is_closed = True
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _rung(self, group_id: Key) -> None:
        self._timers.pop(group_id, None)
        self._ring(group_id)
