"""What a user has: the command line as a subprocess, and the page in a real browser."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

HEADRACE = (sys.executable, "-m", "headrace")
READY_WITHIN_S = 120.0
ENDS_WITHIN_S = 400.0
"""How long a command may take that takes ten seconds at most, also where it starts Spark."""
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


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
            timeout=ENDS_WITHIN_S,
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
    def broker(
        self, *arguments: str, listen: str = "127.0.0.1:0", stderr: IO[str] | None = None
    ) -> Iterator[subprocess.Popen[str]]:
        """A broker process; commands find it. It is killed when the block ends and still runs."""
        with subprocess.Popen(
            [*HEADRACE, "broker", "--listen", listen, *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
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


@dataclass
class Watch:
    """What the browser did that a test may not see on the page."""

    own_url: str
    expected: tuple[str, ...] = ()
    """What the browser may report in tests that take the console away, or open too many pages."""
    problems: list[str] = field(default_factory=list)
    other_requests: list[str] = field(default_factory=list)

    def attach(self, page: Page) -> None:
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self._see(request.url))

    def check(self) -> None:
        assert self.problems == []
        assert self.other_requests == []

    def _note(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"} and not text.startswith(self.expected or "\0"):
            self.problems.append(text)

    def _see(self, url: str) -> None:
        if not url.startswith(self.own_url + "/"):
            self.other_requests.append(url)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, or any other that is installed."""
    executable = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if executable is None:
        pytest.skip(f"no Chromium found (looked for {', '.join(CHROMIUM_NAMES)}): the page is not tested")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open the page at a URL; at the end, it must have been quiet and have asked no other host."""
    watches: list[Watch] = []

    def open_page(url: str, *, expected: tuple[str, ...] = (), **options: Any) -> Page:
        page = browser.new_context(**options).new_page()
        page.set_default_timeout(READY_WITHIN_S * 1000)
        watches.append(Watch(url, expected))
        watches[-1].attach(page)
        page.goto(url)
        return page

    yield open_page
    for context in browser.contexts:
        context.close()
    for watch in watches:
        watch.check()
