"""The supervisor with real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headrace.errors import ChildFailed
from headrace.supervisor import ChildSpec, Supervisor
from headrace.testing.waiting import eventually

READY = re.compile(r"^ready (\d+)$")
DEADLINE_S = 120.0

WAIT_FOR_EVER = """
import os, signal
print("ready", os.getpid(), flush=True)
signal.pause()
"""
WITH_GRANDCHILD = """
import os, signal, subprocess, sys
grandchild = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print("ready", grandchild.pid, flush=True)
signal.pause()
"""
IGNORES_SIGTERM = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", os.getpid(), flush=True)
while True:
    signal.pause()
"""
ENDS_AT_ONCE = """
import sys
print("the port is taken", flush=True)
sys.exit(3)
"""


class Family:
    """A supervisor, what its children printed, and a way to add children from source text."""

    def __init__(self, directory: Path) -> None:
        self.lines: list[tuple[str, str]] = []
        self.supervisor = Supervisor(lambda name, line: self.lines.append((name, line)))
        self._directory = directory

    def start(self, name: str, source: str, *, restart_count_max: int = 3, stop_within_s: float = 5) -> int:
        script = self._directory / f"{name}.py"
        script.write_text(source)
        spec = ChildSpec(
            name=name,
            arguments=(str(script),),
            ready=READY,
            ready_within_s=DEADLINE_S,
            restart_count_max=restart_count_max,
            stop_within_s=stop_within_s,
        )
        return int(self.supervisor.start(spec))


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    family = Family(tmp_path)
    yield family
    family.supervisor.stop()


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_start_returns_what_the_ready_line_tells(family: Family) -> None:
    assert family.start("waiter", WAIT_FOR_EVER) == family.supervisor.pid("waiter")


def test_a_child_that_is_started_again_finds_the_same_in_its_environment(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text("import os, signal; print('ready', os.environ['MARK'], flush=True); signal.pause()")
    lines: list[str] = []
    supervisor = Supervisor(lambda _, line: lines.append(line))
    try:
        spec = ChildSpec(name="c", arguments=(str(script),), ready=READY, environment={"MARK": "4711"})
        assert supervisor.start(spec) == "4711"
        os.kill(supervisor.pid("c"), signal.SIGKILL)

        def came_back() -> bool:
            supervisor.check()
            return lines.count("ready 4711") == 2

        eventually(came_back, within_s=DEADLINE_S)
    finally:
        supervisor.stop()


def test_stop_leaves_no_child_behind(family: Family) -> None:
    pids = [family.start("one", WAIT_FOR_EVER), family.start("two", WAIT_FOR_EVER)]
    family.supervisor.stop()
    assert not any(is_running(pid) for pid in pids)


def test_stop_ends_grandchildren_too(family: Family) -> None:
    grandchild = family.start("parent", WITH_GRANDCHILD)
    family.supervisor.stop()
    eventually(lambda: not is_running(grandchild))


def test_stop_kills_a_child_that_ignores_sigterm(family: Family) -> None:
    pid = family.start("stubborn", IGNORES_SIGTERM, stop_within_s=0.5)
    family.supervisor.stop()
    assert not is_running(pid)


def test_a_child_that_was_killed_is_started_again(family: Family) -> None:
    first = family.start("waiter", WAIT_FOR_EVER)
    os.kill(first, signal.SIGKILL)

    def restarted() -> bool:
        family.supervisor.check()
        return family.supervisor.pid("waiter") != first

    eventually(restarted)
    second = family.supervisor.pid("waiter")
    eventually(lambda: ("waiter", f"ready {second}") in family.lines)
    assert any("ended with signal SIGKILL" in line for _, line in family.lines)


def test_a_child_that_keeps_dying_fails_after_its_restarts(family: Family) -> None:
    family.start("waiter", WAIT_FOR_EVER, restart_count_max=1)

    def kill_and_check() -> bool:
        pid = family.supervisor.pid("waiter")
        if ("waiter", f"ready {pid}") in family.lines and is_running(pid):
            os.kill(pid, signal.SIGKILL)
        family.supervisor.check()
        return False

    with pytest.raises(ChildFailed, match="waiter ended with signal SIGKILL after 1 restarts"):
        eventually(kill_and_check)


def test_a_child_that_ends_before_it_is_ready_fails_with_its_last_lines(family: Family) -> None:
    with pytest.raises(ChildFailed, match=r"exit code 3 before it was ready(.|\n)*the port is taken"):
        family.start("unlucky", ENDS_AT_ONCE)


def test_children_end_when_the_supervising_process_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(WAIT_FOR_EVER)
    parent_source = f"""
import re, signal
from headrace.supervisor import ChildSpec, Supervisor
supervisor = Supervisor(lambda name, line: None)
spec = ChildSpec(name="child", arguments=({str(script)!r},), ready=re.compile(r"^ready (\\d+)$"))
print(supervisor.start(spec), flush=True)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", parent_source], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child_pid = int(parent.stdout.readline())
        assert is_running(child_pid)
        parent.kill()
    eventually(lambda: not is_running(child_pid))
