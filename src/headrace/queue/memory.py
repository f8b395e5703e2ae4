"""How many bytes of bodies are in memory.

What is on disk as well is kept in memory only as long as there is room for it, and read again when it is
delivered. What is in memory only, because it is transient or because there is no journal, has to stay: when
there is too much of it, publishers are blocked until half of it is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.queue.limits import QueueLimits
    from headrace.queue.message import Entry


class Memory:
    """Counts bodies. A body that several queues share counts for each of them."""

    def __init__(self, limits: QueueLimits, on_alarm: Callable[[bool], None]) -> None:
        self._resident_bytes_max = limits.resident_bytes_max
        self._resident_count_max = limits.resident_count_all_max
        self._bytes_max = limits.memory_bytes_max
        self._on_alarm = on_alarm
        self._is_alarmed = False
        self.used_bytes = 0
        self._held_count = 0

    @property
    def is_full(self) -> bool:
        """Whether bodies that are on disk should leave memory."""
        return self.used_bytes >= self._resident_bytes_max

    def is_roomy(self) -> bool:
        """Whether messages that wait may stay as they are, also in a queue that has many of them."""
        return self._held_count < self._resident_count_max and self.used_bytes < self._resident_bytes_max

    def hold(self, entry: Entry) -> None:
        """Note that the body of an entry stays in memory."""
        if not entry.is_resident:
            entry.is_resident = True
            self._held_count += 1
            self.used_bytes += entry.message.body_bytes
            if self.used_bytes > self._bytes_max and not self._is_alarmed:
                self._is_alarmed = True
                self._on_alarm(True)

    def release(self, entry: Entry) -> None:
        """Note that the body of an entry need not be in memory any more."""
        if entry.is_resident:
            entry.is_resident = False
            self._held_count -= 1
            self.used_bytes -= entry.message.body_bytes
            if self._is_alarmed and self.used_bytes <= self._bytes_max // 2:
                self._is_alarmed = False
                self._on_alarm(False)
