"""The command line as a user has it: a subprocess."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HEADRACE = (sys.executable, "-m", "headrace")
READY_WITHIN_S = 30.0


class CommandLine:
    """Runs `headrace` commands against one broker."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bootstrap = "127.0.0.1:1"
        self.variables: dict[str, str] = {}

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [*HEADRACE, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.directory,
            env=self.environment(),
            check=False,
        )

    def output(self, *arguments: str, stdin: str = "") -> str:
        """Run a command that must succeed and return what it printed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refusal(self, *arguments: str, stdin: str = "", code: int) -> str:
        """Run a command that must fail with this exit code, in one sentence and without a traceback."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == code, done.stderr + done.stdout
        assert "Traceback" not in done.stderr
        return " ".join(done.stderr.split())

    def environment(self) -> dict[str, str]:
        """What the commands inherit."""
        return {
            **os.environ,
            "HEADRACE_BOOTSTRAP": self.bootstrap,
            "HEADRACE_DATA": str(self.directory / "data"),
            "COLUMNS": "200",
            "NO_COLOR": "1",
            **self.variables,
        }

    @contextmanager
    def broker(self, *arguments: str, listen: str = "127.0.0.1:0") -> Iterator[subprocess.Popen[str]]:
        """A broker process; commands find it. It is killed when the block ends and still runs."""
        with subprocess.Popen(
            [*HEADRACE, "broker", "--listen", listen, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=self.directory,
            env=self.environment(),
        ) as process:
            watchdog = threading.Timer(READY_WITHIN_S, process.kill)
            watchdog.start()
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                watchdog.cancel()
                match = re.search(r"listening on (\S+),", line)
                assert match, f"the broker said {line!r}"
                self.bootstrap = match.group(1)
                yield process
            finally:
                watchdog.cancel()
                process.kill()


@pytest.fixture
def command_line(tmp_path: Path) -> CommandLine:
    """Commands in an empty directory, with no broker."""
    return CommandLine(tmp_path)


@pytest.fixture
def with_broker(command_line: CommandLine) -> Iterator[CommandLine]:
    """Commands in an empty directory, with a broker."""
    with command_line.broker():
        yield command_line
