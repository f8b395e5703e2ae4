"""The whole way, as a newcomer walks it: one command, alerts on a page, nothing left behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import httpx
import psutil
import pytest
from playwright.sync_api import Page, expect

from headrace.testing.waiting import eventually

ROOT = Path(__file__).parents[3]
WITHIN_S = 1200.0
"""How long anything may take that takes a minute at most when the machine has nothing else to do."""

pytestmark = [pytest.mark.spark, pytest.mark.demo, pytest.mark.long, pytest.mark.timeout(3600)]


class Demo:
    """A running demo, as the process that was started for it, and what it has printed so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def address(self, part: str) -> str | None:
        """Where a part listens, once it has said so."""
        match = re.search(rf"^{part} .*?((?:http://)?127\.0\.0\.1:\d+)", self.text, re.MULTILINE)
        return match.group(1) if match else None

    def address_with_token(self) -> str:
        """The page's address as it was printed, for whoever may act."""
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", self.text)
        assert found, self.text
        return found.group()

    def was_killed(self, part: str) -> bool:
        """Whether the demo has noticed that."""
        return re.search(rf"^{part} +ended with signal SIGKILL", self.text, re.MULTILINE) is not None

    def alert_count(self) -> int:
        """How many alerts the page has seen."""
        stats = httpx.get(f"{self.address('page')}/api/stats", timeout=WITHIN_S).json()
        return int(stats["alerts"]["alert_count"])

    def family(self) -> list[psutil.Process]:
        """Every process that belongs to the demo now."""
        me = psutil.Process(self.process.pid)
        return [me, *me.children(recursive=True)]

    def part(self, command: str) -> psutil.Process:
        """The process of the demo's that runs this command of `headrace`."""

        def runs_it(words: list[str]) -> bool:
            return any(a.endswith("headrace") and b == command for a, b in pairwise(words))

        return next(each for each in self.family() if runs_it(each.cmdline()))

    def eventually(self, condition: Callable[[], bool]) -> None:
        def is_so() -> bool:
            assert self.process.poll() is None, self.text
            return condition()

        eventually(is_so, lambda: self.text, within_s=WITHIN_S, pause_s=0.2)


@contextmanager
def running(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> Iterator[Demo]:
    """A demo that this command starts; it is stopped when the block ends and it still runs."""
    with subprocess.Popen(
        command,
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as process:
        demo = Demo(process)
        try:
            yield demo
        finally:
            if process.poll() is None:
                for each in demo.family():
                    with suppress(psutil.NoSuchProcess):
                        each.terminate()
                process.wait(WITHIN_S)


def environment(*left_out: str) -> dict[str, str]:
    """This process's environment without these, and without what would lead to somebody else's data."""
    theirs = {"VIRTUAL_ENV", "HEADRACE_DATA", "HEADRACE_BOOTSTRAP", *left_out}
    return {name: value for name, value in os.environ.items() if name not in theirs}


def copy_sources(target: Path) -> None:
    """What a clone would have: the tracked files, or, where git can't tell, all that was not made here."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        made = shutil.ignore_patterns(".*", "__pycache__", "build", "dist")
        shutil.copytree(ROOT, target, ignore=made)
        return
    for name in filter(None, listed.stdout.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)


def is_open(address: str) -> bool:
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=WITHIN_S)
    return all(process.status() == psutil.STATUS_ZOMBIE for process in alive)


@pytest.mark.browser
def test_alerts_come_also_when_driver_and_broker_were_killed_and_nothing_outlives_a_demo_that_is_killed(
    tmp_path: Path, open_page: Callable[[str], Page]
) -> None:
    command = [sys.executable, "-m", "headrace", "demo", "--port", "0", "--broker-port", "0"]
    with running(command, tmp_path, environment()) as demo:
        demo.eventually(lambda: "generator" in demo.text)
        page = open_page(str(demo.address("page")))
        within_ms = WITHIN_S * 1000
        expect(page.locator("#status")).to_contain_text("live", timeout=within_ms)
        rows = page.locator("#rows > li:visible")
        velocity = rows.filter(has_text="transactions in 1 minute").filter(has_text=re.compile(r"\d ms"))
        expect(velocity.first).to_be_visible(timeout=within_ms)
        expect(page.locator("#latency-p50")).to_have_text(re.compile(r"\d"), timeout=within_ms)
        seen = demo.alert_count()
        demo.eventually(lambda: demo.alert_count() > seen)

        page.goto(demo.address_with_token())
        expect(page.locator("#kill")).to_be_enabled(timeout=within_ms)
        page.locator("#kill").click()
        demo.eventually(lambda: demo.was_killed("pipeline"))
        expect(page.locator("#incidents")).to_contain_text("running again after", timeout=within_ms)
        expect(page.locator("#incidents")).to_contain_text("first alert after", timeout=within_ms)
        page.context.close()

        seen = demo.alert_count()
        demo.part("broker").kill()
        demo.eventually(lambda: demo.was_killed("broker"))
        demo.eventually(lambda: demo.alert_count() > seen + 20)

        family = demo.family()
        demo.process.kill()
    assert gone(family)


def test_make_demo_works_in_a_fresh_clone_and_ctrl_c_leaves_no_process_and_no_port(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    copy_sources(clone)
    # Most of what is installed is never loaded here, so it is compiled when it is.
    alone = {**environment("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"), "PIP_NO_COMPILE": "1"}
    with running(["make", "demo"], clone, alone) as demo:
        demo.eventually(lambda: "generator" in demo.text)
        demo.eventually(lambda: demo.alert_count() > 0)
        family, addresses = demo.family(), [demo.address("broker"), demo.address("page")]
        assert len(family) >= 7  # make, the demo itself, its four children, and the JVM
        demo.part("demo").send_signal(signal.SIGINT)
        assert demo.process.wait(WITHIN_S) == 0, demo.text
    assert gone(family)
    assert not any(is_open(str(address)) for address in addresses)
