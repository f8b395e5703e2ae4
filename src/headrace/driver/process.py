"""Which process that is: its number, and when it started, because numbers are given out again."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PID_MAX: Final = 2**31 - 1


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

    def kill(self) -> None:
        """End it with SIGKILL, and no other process that got its number meanwhile.

        Raises ProcessLookupError if it has ended, and PermissionError if it is another user's.
        """
        assert self.started_ticks is not None, "a number alone may be another process's by now"
        with _held(self.pid) as descriptor:
            if not self.is_alive():
                raise ProcessLookupError(errno.ESRCH, f"process {self.pid} has ended")
            if descriptor is None:
                os.kill(self.pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)


def parse_process(content: Mapping[str, object]) -> ProcessId:
    """A process as it was written down. Raises ValueError for what is none.

    Signals go to whatever the number says: 0, 1 and numbers below zero are groups, everybody, or the system.
    """
    process = ProcessId(**content)  # type: ignore[arg-type]  # what it was given is checked next
    if type(process.pid) is not int or not 1 < process.pid <= PID_MAX:
        raise ValueError(f"{process.pid!r:.50} is not the number of a process")
    if process.started_ticks is not None and type(process.started_ticks) is not int:
        raise ValueError(f"{process.started_ticks!r:.50} is not when a process started")
    return process


@contextmanager
def _held(pid: int) -> Iterator[int | None]:
    """A descriptor that stands for one process whatever becomes of its number; None without such."""
    try:
        descriptor = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        descriptor = None
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _started_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; the second one, a name in parentheses, may have spaces in it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state in {"Z", "X"} else int(fields[18])
