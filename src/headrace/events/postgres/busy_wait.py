"""Waiting for an answer without going to sleep.

Who sleeps until the database has answered gives the processor up, and a processor that has nothing else to do
goes to sleep, too. On virtual machines it takes long to wake, and what it knew by heart is gone then: a
seventh of the time of an append to a database on the same machine. So the answer is asked for again and
again, for a moment. Each question lets other threads have their turn.

Where answers take longer than that, it is soon given up: after each time in vain twice as many answers are
waited for as ever, up to ATTEMPTS_SKIPPED_MAX.
"""

from __future__ import annotations

import os
import select
import time
from pathlib import Path
from typing import Final

SPIN_S_MAX: Final = 0.000_5
"""How long an answer is asked for at most."""
ATTEMPTS_SKIPPED_MAX: Final = 64
"""How many answers are waited for asleep at most, before it is tried again."""

CONTAINER_SHARE: Final = Path("/sys/fs/cgroup/cpu.max")
"""Where Linux tells how much of the processors a container has: microseconds of so many, or `max`."""


class BusyWait:
    """Waits for a socket to have something to read. Belongs to whoever has the connection."""

    __slots__ = ("_poll", "_skip", "_skipped")

    def __init__(self, socket: int) -> None:
        self._poll = select.poll()
        self._poll.register(socket, select.POLLIN)
        self._skip = 0
        self._skipped = 0

    def wait(self) -> None:
        """Return once there is something, or when that takes too long."""
        if self._skipped < self._skip:
            self._skipped += 1
            return
        self._skipped = 0
        ask, now_s = self._poll.poll, time.perf_counter
        end_s = now_s() + SPIN_S_MAX
        while now_s() < end_s:
            if ask(0):
                self._skip = 0
                return
        self._skip = min(2 * self._skip + 1, ATTEMPTS_SKIPPED_MAX)


def is_worth_it() -> bool:
    """Whether somebody else can work while this process asks, and there is a way to ask."""
    return hasattr(select, "poll") and _processor_count() > 1


def _processor_count() -> float:
    """How many processors the process may use: of the machine, and of the container's share."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = CONTAINER_SHARE.read_text().split()
    except (OSError, ValueError):
        return count
    return count if quota == "max" else min(count, int(quota) / int(period))
