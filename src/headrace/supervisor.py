"""A supervisor of child processes: starts them, notices when they die, stops them all.

Rules
- A child is *ready* when it prints a line that matches its `ready` pattern; `start` returns only then.
- A ready child that ends by itself is started again after a pause that doubles with each restart. After
  `restart_count_max` restarts it has *failed*, and `check` raises ChildFailed with its last lines. One that
  has worked for RESTARTS_FORGOTTEN_AFTER_S starts to count anew.
- A child that ends before it was ever ready has failed at once: what stops it now would stop it again.
- Children are stopped in the reverse order of their start: SIGTERM, then SIGKILL to whatever is left of
  the child's process group, so that no grandchild (a JVM, say) stays behind.
- Should the supervisor itself be killed, the children end too: they run under `headrace.child`.

One thread owns a supervisor and calls its methods; each child has one more thread that reads its output.
`on_line` is called from those threads.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.config import environment_with
from headrace.errors import ChildFailed

LAST_LINES_KEPT: Final = 15
RESTART_PAUSE_S_FIRST: Final = 0.5
RESTART_PAUSE_S_MAX: Final = 10.0
POLL_S: Final = 0.05
OUTPUT_END_S_MAX: Final = 2.0
RESTARTS_FORGOTTEN_AFTER_S: Final = 300.0

OnLine = Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """What to run, and how to tell that it works."""

    name: str
    arguments: tuple[str, ...]
    """What `python -m headrace.child` is given: `-m MODULE ...` or a script and its arguments."""
    ready: re.Pattern[str]
    """A line of output that matches means ready; its first group, if any, is what `start` returns."""
    ready_within_s: float = 120.0
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the child finds in its environment beside what the supervisor has there."""
    restart_count_max: int = 3
    stop_within_s: float = 20.0


@dataclass(slots=True)
class Child:
    """A spec and the process that runs it now."""

    spec: ChildSpec
    process: subprocess.Popen[str]
    started_at_s: float
    reader: threading.Thread | None = None
    became_ready: threading.Event = field(default_factory=threading.Event)
    ready_value: str = ""
    restart_count: int = 0
    restart_at_s: float | None = None
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES_KEPT))


class Supervisor:
    """Starts children, keeps them running, and stops them all."""

    def __init__(self, on_line: OnLine) -> None:
        self._on_line = on_line
        self._children: list[Child] = []

    def start(self, spec: ChildSpec) -> str:
        """Start a child, wait until it is ready, and return what its ready line told."""
        child = Child(spec=spec, process=_spawn(spec), started_at_s=time.monotonic())
        self._children.append(child)
        self._read_output(child)
        return self._wait_until_ready(child)

    def pid(self, name: str) -> int:
        """The process id of a child's current process."""
        return next(child.process.pid for child in self._children if child.spec.name == name)

    def check(self) -> None:
        """Start again what has ended, or raise ChildFailed for what ends too often. Call it regularly."""
        now_s = time.monotonic()
        for child in self._children:
            if child.restart_at_s is not None:
                if now_s >= child.restart_at_s:
                    self._restart(child)
            elif child.process.poll() is not None:
                self._plan_restart(child, now_s)
            elif not child.became_ready.is_set() and now_s > child.started_at_s + child.spec.ready_within_s:
                raise _failed(child, f"did not get ready within {child.spec.ready_within_s:.0f} s")

    def stop(self) -> None:
        """Stop all children, the last started first. Nothing of them is left when this returns."""
        while self._children:
            _stop(self._children.pop())

    def _wait_until_ready(self, child: Child) -> str:
        deadline_s = child.started_at_s + child.spec.ready_within_s
        while not child.became_ready.wait(POLL_S):
            if child.process.poll() is not None:
                raise _failed(child, f"ended with {ending_of(child.process.returncode)} before it was ready")
            if time.monotonic() > deadline_s:
                raise _failed(child, f"did not get ready within {child.spec.ready_within_s:.0f} s")
            self._check_others(child)
        return child.ready_value

    def _check_others(self, waiting_for: Child) -> None:
        """A child that another one waits for may die too: keep them all running meanwhile."""
        for child in self._children:
            if child is not waiting_for and child.process.poll() is not None:
                self.check()
                return

    def _plan_restart(self, child: Child, now_s: float) -> None:
        kill_group(child.process.pid)
        ending = ending_of(child.process.returncode)
        if not child.became_ready.is_set():
            raise _failed(child, f"ended with {ending} before it was ready")
        if now_s - child.started_at_s > RESTARTS_FORGOTTEN_AFTER_S:
            child.restart_count = 0
        if child.restart_count >= child.spec.restart_count_max:
            raise _failed(child, f"ended with {ending} after {child.restart_count} restarts")
        pause_s = min(RESTART_PAUSE_S_FIRST * 2**child.restart_count, RESTART_PAUSE_S_MAX)
        child.restart_at_s = now_s + pause_s
        self._on_line(child.spec.name, f"ended with {ending}; starting it again in {pause_s:.1f} s")

    def _restart(self, child: Child) -> None:
        _close_pipes(child)
        child.restart_count += 1
        child.restart_at_s = None
        child.became_ready.clear()
        child.started_at_s = time.monotonic()
        child.process = _spawn(child.spec)
        self._read_output(child)

    def _read_output(self, child: Child) -> None:
        process, spec = child.process, child.spec

        def read() -> None:
            assert process.stdout is not None
            with process.stdout as lines:
                for line in lines:
                    text = line.rstrip("\n")
                    child.last_lines.append(text)
                    self._on_line(spec.name, text)
                    if match := spec.ready.search(text):
                        child.ready_value = match.group(1) if spec.ready.groups else text
                        child.became_ready.set()

        child.reader = threading.Thread(target=read, name=f"output of {spec.name}", daemon=True)
        child.reader.start()


def _spawn(spec: ChildSpec) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "headrace.child", *spec.arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment_with(spec.environment),
        # A process group of its own: Ctrl-C in the terminal reaches the supervisor alone, which then
        # stops the children in order, and the whole group can be ended at once.
        start_new_session=True,
    )


def _stop(child: Child) -> None:
    process = child.process
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(child.spec.stop_within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if child.restart_at_s is None:
        # Else that has been done when it ended, and the number may be another's by now.
        kill_group(process.pid)
    _close_pipes(child)


def _close_pipes(child: Child) -> None:
    """The child has ended: close our end of its input, and let its output be read to the end."""
    assert child.process.stdin is not None
    child.process.stdin.close()
    if child.reader is not None:
        child.reader.join(OUTPUT_END_S_MAX)


def kill_group(group_id: int) -> None:
    """End what is left of a child's process group and wait until it is gone."""
    deadline_s = time.monotonic() + 5
    while time.monotonic() < deadline_s:
        try:
            os.killpg(group_id, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return
        time.sleep(POLL_S)


def ending_of(exit_code: int) -> str:
    """How a process ended, in words; an exit code below zero is a signal's number."""
    return f"signal {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit code {exit_code}"


def _failed(child: Child, reason: str) -> ChildFailed:
    if child.process.poll() is not None and child.reader is not None:
        child.reader.join(OUTPUT_END_S_MAX)
    said = "\n".join(f"  {line}" for line in tuple(child.last_lines)) or "  (nothing)"
    return ChildFailed(f"{child.spec.name} {reason}. Its last lines were:\n{said}")
