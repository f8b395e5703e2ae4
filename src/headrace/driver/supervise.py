"""A driver as a child process, so that something is left that can start it again when it dies.

The driver keeps our standard output and standard error: what it says is said as before. It is in a process
group of its own: Ctrl-C reaches us alone, and we tell it to stop. SIGINT and SIGTERM are passed on as
SIGTERM, a second one as well, which hastens it. Should we be killed, it ends too: it runs under
`headrace.child`.

What became of a driver that is dead is written into the statuses of its queries here (see status.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Final

from headrace.driver.process import ProcessId
from headrace.driver.restarts import MISUSED, STOPPED, Again, Ending, RestartPolicy
from headrace.driver.status import State, Status, read_statuses, write_status
from headrace.errors import ChildFailed
from headrace.supervisor import ending_of, kill_group

STOP_S_MAX: Final = 40.0
"""How long a driver may take to stop before it is killed: longer than it needs where all goes well."""


class Supervised:
    """One driver, and the processes that run it one after the other. Use it from the main thread."""

    def __init__(
        self, arguments: Sequence[str], *, data_dir: Path, policy: RestartPolicy, say: Callable[[str], None]
    ) -> None:
        """`arguments` are what `python -m headrace.child` is given."""
        self._arguments = tuple(arguments)
        self._data_dir = data_dir
        self._policy = policy
        self._say = say
        self._asked_to_stop = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Run it until it ends for good; return its exit code. Raise ChildFailed if it keeps dying."""
        restarts_in_a_row = 0
        has_worked = False
        with self._signals_passed_on():
            while True:
                began_s = time.monotonic()
                process, exit_code = self._run_once()
                statuses = self._statuses(process)
                has_worked = has_worked or any(status.running_since for status in statuses)
                if self._asked_to_stop.is_set():
                    return self._stopped(statuses, exit_code)
                ending = Ending(
                    exit_code=exit_code, ran_for_s=time.monotonic() - began_s, has_worked=has_worked
                )
                decision = self._policy.decide(ending, restarts_in_a_row)
                if not isinstance(decision, Again):
                    return self._ended(statuses, exit_code, is_hopeless=decision.is_hopeless)
                restarts_in_a_row = decision.restarts_in_a_row
                waiting = self._note(statuses, "restarting", exit_code)
                self._say(
                    f"the driver ended with {ending_of(exit_code)}; starting it again in "
                    f"{decision.pause_s:.0f} s (restart {restarts_in_a_row} of {self._policy.count_max})"
                )
                if self._asked_to_stop.wait(decision.pause_s):
                    return self._stopped(waiting, STOPPED)

    @property
    def pids(self) -> set[int]:
        """Whose statuses are those of the driver: its process, and ours. For any thread."""
        process = self._process
        return {os.getpid()} if process is None else {os.getpid(), process.pid}

    def _run_once(self) -> tuple[ProcessId, int]:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "headrace.child", *self._arguments],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        identity = ProcessId.of(process.pid)
        self._process = process
        if self._asked_to_stop.is_set():
            process.terminate()
        exit_code = process.wait()
        self._process = None
        assert process.stdin is not None
        process.stdin.close()
        kill_group(process.pid)
        return identity, exit_code

    def _statuses(self, process: ProcessId) -> list[Status]:
        """Those of its queries; our own are those that it did not come to write this time."""
        owners = {process, ProcessId.own()}
        return [status for status in read_statuses(self._data_dir) if status.process in owners]

    def _stopped(self, statuses: Sequence[Status], exit_code: int) -> int:
        self._note(statuses, "stopped", exit_code)
        if exit_code in {STOPPED, -signal.SIGTERM}:
            return STOPPED
        # One that had to be killed has no exit code of its own.
        return max(exit_code, 1)

    def _ended(self, statuses: Sequence[Status], exit_code: int, *, is_hopeless: bool) -> int:
        noted = self._note(statuses, "stopped" if exit_code == STOPPED else "failed", exit_code)
        if is_hopeless:
            errors = dict.fromkeys(status.last_error for status in noted if status.last_error)
            why = "; ".join(errors) or f"it ended with {ending_of(exit_code)}"
            raise ChildFailed(
                f"{', '.join(status.name for status in noted)} died again after {self._policy.count_max} "
                f"restarts in a row, and is not started any more. The last time: {why}"
            )
        if exit_code < 0:
            raise ChildFailed(f"the driver ended with {ending_of(exit_code)} before it processed anything")
        return exit_code if exit_code in {STOPPED, MISUSED} else 1

    def _note(self, statuses: Sequence[Status], state: State, exit_code: int) -> list[Status]:
        """Write down what became of the queries."""
        noted = [_after(status, state, exit_code) for status in statuses]
        for status in noted:
            write_status(self._data_dir, status)
        return noted

    @contextmanager
    def _signals_passed_on(self) -> Iterator[None]:
        def stop(_signal: int, _frame: FrameType | None) -> None:
            is_first = not self._asked_to_stop.is_set()
            self._asked_to_stop.set()
            process = self._process
            if process is None:
                return
            process.terminate()
            if is_first:
                killing = threading.Timer(STOP_S_MAX, process.kill)
                killing.daemon = True
                killing.start()

        former = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)


def _after(status: Status, state: State, exit_code: int) -> Status:
    """The status of a query whose driver has ended so."""
    now = datetime.now(UTC)
    after = replace(
        status,
        state=state,
        process=ProcessId.own(),
        updated_at=now,
        running_since=None,
        input_rows_per_s=None,
        restart_count=status.restart_count + (state == "restarting"),
    )
    if state == "stopped" or status.state == "failed":
        # It said itself how it ended.
        return after
    return replace(after, last_error=f"its driver ended with {ending_of(exit_code)}", last_error_at=now)
