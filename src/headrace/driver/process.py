"""Which process that is: its number, and when it started, because numbers are given out again."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process, told apart from a later one that got its number."""

    pid: int
    started_ticks: int | None = None
    """When it started, in clock ticks since the machine did; None where the system does not tell."""

    @classmethod
    def own(cls) -> ProcessId:
        """This process."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """The process that has this number now."""
        return cls(pid, _started_ticks(pid))

    def is_alive(self) -> bool:
        """Whether it still runs. One that has ended and was not waited for yet does not."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            # It is there, and another user's: only its start tells whether it is the one that was meant.
            pass
        if self.started_ticks is None:
            return True
        return _started_ticks(self.pid) == self.started_ticks


def _started_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; the second one, a name in parentheses, may have spaces in it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state in {"Z", "X"} else int(fields[18])
