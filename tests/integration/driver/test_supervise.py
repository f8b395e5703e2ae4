"""A supervised driver, with real processes in place of Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from headrace.driver.status import Status, read_status
from headrace.testing.waiting import eventually

WITHIN_S = 60.0
SUPERVISOR = """
import sys
from pathlib import Path
from headrace.driver.restarts import RestartPolicy
from headrace.driver.supervise import Supervised
from headrace.errors import ChildFailed

policy = RestartPolicy(count_max=2, pause_s_first=0.01)
driver = Supervised(
    sys.argv[2:], data_dir=Path(sys.argv[1]), policy=policy, say=lambda line: print(line, file=sys.stderr)
)
try:
    sys.exit(driver.run())
except ChildFailed as error:
    sys.exit(f"error: {error}")
"""
DRIVER = """
import signal, sys, threading
from pathlib import Path
from headrace.config import StreamsConfig
from headrace.errors import HeadraceError, PipelineError, PipelineFailed
from headrace.streams.reporter import QueryDescription, reporting

config = StreamsConfig(bootstrap="127.0.0.1:1", data_dir=Path(sys.argv[1]))
query = QueryDescription(name="copies", reads=("orders",), writes="copies")
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
try:
    with reporting(config, [query], realtime=False) as reporter:
        ACT_AT_START
        reporter.running()
        print("running", flush=True)
        ACT
except HeadraceError as error:
    print("error:", error, file=sys.stderr)
    sys.exit(2 if isinstance(error, PipelineError) else 1)
"""
WAIT = "stop.wait()"


class Run:
    """A supervisor as a process, and its driver."""

    def __init__(self, process: subprocess.Popen[str], data_dir: Path) -> None:
        self.process = process
        self._data_dir = data_dir

    def await_running(self) -> int:
        """Wait until the driver runs; return its process id."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "running\n"
        return self.status().process.pid

    def status(self) -> Status:
        status = read_status(self._data_dir, "copies")
        assert status is not None
        return status.seen_now()

    def ended(self) -> tuple[int, str]:
        """The exit code, and what was said on standard error."""
        _output, errors = self.process.communicate(timeout=WITHIN_S)
        return self.process.returncode, errors


StartRun = Callable[..., Run]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartRun]:
    with ExitStack() as runs:

        def start_run(act: str = WAIT, *, at_start: str = "pass") -> Run:
            script = tmp_path / "driver.py"
            script.write_text(DRIVER.replace("ACT_AT_START", at_start).replace("ACT", act))
            process = subprocess.Popen(
                [sys.executable, "-c", SUPERVISOR, str(tmp_path), str(script), str(tmp_path)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            runs.enter_context(process)
            runs.callback(process.kill)
            return Run(process, tmp_path)

        yield start_run


def await_gone(pid: int) -> None:
    def is_gone() -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    eventually(is_gone, f"the end of process {pid}", within_s=WITHIN_S)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_driver_and_nothing_is_said(start: StartRun, number: signal.Signals) -> None:
    run = start()
    driver = run.await_running()

    run.process.send_signal(number)

    assert run.ended() == (0, "")
    assert not psutil.pid_exists(driver)
    assert run.status().state == "stopped"


def test_a_driver_that_was_killed_is_started_again(start: StartRun) -> None:
    run = start()
    first = run.await_running()

    os.kill(first, signal.SIGKILL)

    assert run.await_running() != first
    status = run.status()
    assert (status.state, status.restart_count) == ("running", 1)
    assert status.last_error == "its driver ended with signal SIGKILL"
    run.process.send_signal(signal.SIGTERM)
    code, errors = run.ended()
    assert code == 0
    assert errors.startswith("the driver ended with signal SIGKILL; starting it again in")


def test_a_driver_that_keeps_failing_stops_and_says_why(start: StartRun) -> None:
    run = start('raise PipelineFailed("copies failed: the disk is full")')

    code, errors = run.ended()

    assert code == 1
    assert errors.count("error: copies failed: the disk is full") == 3
    assert errors.splitlines()[-1] == (
        "error: copies died again after 2 restarts in a row, and is not started any more. The last time: "
        "copies failed: the disk is full"
    )
    assert (run.status().state, run.status().restart_count) == ("failed", 2)


def test_a_mistake_in_the_pipeline_ends_it_at_once(start: StartRun) -> None:
    run = start('raise PipelineError("copies can not run")')
    assert run.ended() == (2, "error: copies can not run\n")
    assert run.status().last_error == "copies can not run"


def test_a_fault_before_the_first_row_ends_it_at_once(start: StartRun) -> None:
    run = start(at_start='raise PipelineFailed("no broker answers")')
    assert run.ended() == (1, "error: no broker answers\n")
    assert run.status().state == "failed"


def test_the_driver_ends_when_its_supervisor_is_killed(start: StartRun) -> None:
    run = start()
    driver = run.await_running()

    run.process.kill()

    await_gone(driver)
    assert run.status().state == "stopped"


def test_a_stop_that_comes_while_it_starts_again_is_heeded(start: StartRun, tmp_path: Path) -> None:
    counter = tmp_path / "count"
    run = start(
        "stop.wait()",
        at_start=f"import os; Path({str(counter)!r}).exists() and os.kill(os.getppid(), 15); "
        f"Path({str(counter)!r}).touch()",
    )
    driver = run.await_running()
    os.kill(driver, signal.SIGKILL)

    code, _errors = run.ended()

    assert code == 0
    assert run.status().state == "stopped"
