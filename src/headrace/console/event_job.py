"""Work over a whole history, which takes a while: one piece at a time, on a thread, with its progress.

    none ──start──▶ running ──▶ done | failed ──start──▶ running ...

What was found stays to be asked for until the next work begins. Safe to call from several threads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from headrace.clock import Clock
from headrace.errors import HeadraceError

Kind = Literal["replay", "compare"]
State = Literal["none", "running", "done", "failed"]
Tell = Callable[[int, int], None]
"""Says how many events are done, of how many. Raises when the work is to be given up."""
Work = Callable[[Tell], Mapping[str, Any]]

logger: Final = logging.getLogger("headrace.console.event_job")


class Busy(Exception):
    """Another work is under way."""


class GivenUp(Exception):
    """The console stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """What is under way, or was done last."""

    kind: Kind | None = None
    state: State = "none"
    done: int = 0
    total: int = 0
    result: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    took_ms: int = 0

    def shown(self) -> dict[str, Any]:
        """As JSON has it."""
        names = ("kind", "state", "done", "total", "result", "error", "took_ms")
        return {name: getattr(self, name) for name in names}


class EventJob:
    """Runs one work at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._status = JobStatus()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def status(self) -> JobStatus:
        """How far it is."""
        with self._lock:
            return self._status

    def start(self, kind: Kind, work: Work) -> JobStatus:
        """Begin a work. Raises Busy while another is under way."""
        with self._lock:
            if self._status.state == "running":
                raise Busy(
                    "a replay or a comparison is under way, for this page or another: wait for its end"
                )
            if self._is_closed:
                raise Busy("the console is about to stop")
            self._status = JobStatus(kind=kind, state="running")
            self._thread = threading.Thread(target=self._run, args=(work,), name="headrace-event-job")
            self._thread.start()
            return self._status

    def close(self) -> None:
        """Have the work that is under way given up, and wait for that."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self, work: Work) -> None:
        begun_s = self._clock.monotonic_s()
        try:
            result = work(self._tell)
        except GivenUp:
            self._end(begun_s, state="failed", error="the console was stopped")
        except HeadraceError as error:
            self._end(begun_s, state="failed", error=str(error))
        except Exception as error:
            # It is the user's code that runs here.
            logger.exception("work over a history has failed")
            self._end(begun_s, state="failed", error=f"{type(error).__name__}: {error}")
        else:
            self._end(begun_s, state="done", result=result)

    def _end(self, begun_s: float, **changes: Any) -> None:
        took_ms = int((self._clock.monotonic_s() - begun_s) * 1000)
        with self._lock:
            self._status = replace(self._status, took_ms=took_ms, **changes)

    def _tell(self, done: int, total: int) -> None:
        with self._lock:
            if self._is_closed:
                raise GivenUp
            self._status = replace(self._status, done=done, total=max(done, total))
