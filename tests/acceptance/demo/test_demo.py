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
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from playwright.sync_api import Page, expect

ROOT = Path(__file__).parents[3]
DEADLINE_S = 120.0

pytestmark = [pytest.mark.spark, pytest.mark.demo, pytest.mark.timeout(900)]


class Demo:
    """A running `headrace demo` and what it has printed so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def address(self, part: str) -> str | None:
        """Where a part listens, once it has said so."""
        match = re.search(rf"^{part} .*?((?:http://)?127\.0\.0\.1:\d+)", self.text, re.MULTILINE)
        return match.group(1) if match else None

    def stats(self) -> dict[str, Any]:
        """What the page says."""
        stats: dict[str, Any] = httpx.get(f"{self.address('page')}/api/stats", timeout=5).json()
        return stats

    def family(self) -> list[psutil.Process]:
        """Every process that belongs to the demo now."""
        me = psutil.Process(self.process.pid)
        return [me, *me.children(recursive=True)]

    def eventually(self, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline_s, self.text
            assert self.process.poll() is None, self.text
            time.sleep(0.2)

    def wait_for_alerts(self, more_than: int = 0) -> None:
        self.eventually(lambda: "generator" in self.text)
        self.eventually(lambda: self.stats()["alerts"]["alert_count"] > more_than)


@contextmanager
def running_demo(directory: Path, *arguments: str) -> Iterator[Demo]:
    command = [sys.executable, "-m", "headrace", "demo", "--port", "0", "--broker-port", "0", *arguments]
    with subprocess.Popen(
        command,
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        demo = Demo(process)
        try:
            yield demo
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(60)


def environment() -> dict[str, str]:
    """This process's environment without what would lead a demo to somebody else's data."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in {"VIRTUAL_ENV", "HEADRACE_DATA", "HEADRACE_BOOTSTRAP"}
    }


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


def gone(processes: list[psutil.Process], within_s: float = 30.0) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=within_s)
    return all(process.status() == psutil.STATUS_ZOMBIE for process in alive)


def test_ctrl_c_stops_everything_and_leaves_no_process_and_no_port(tmp_path: Path) -> None:
    with running_demo(tmp_path) as demo:
        demo.wait_for_alerts()
        family, addresses = demo.family(), [demo.address("broker"), demo.address("page")]
        assert len(family) >= 6  # itself, four children, and the JVM
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(90) == 0, demo.text
    assert gone(family, within_s=1)
    assert not any(is_open(str(address)) for address in addresses)


@pytest.mark.browser
def test_the_page_shows_alerts_as_they_come(tmp_path: Path, open_page: Callable[[str], Page]) -> None:
    with running_demo(tmp_path) as demo:
        demo.eventually(lambda: "generator" in demo.text)
        page = open_page(str(demo.address("page")))
        expect(page.locator("#status")).to_contain_text("live")
        row = page.locator("#rows > li:visible").first
        expect(row).to_contain_text("transactions in 1 minute")
        expect(row).to_contain_text("ms")
        seen = int(page.locator("#count-alerts").inner_text())
        demo.eventually(lambda: int(page.locator("#count-alerts").inner_text()) > seen)
        expect(page.locator("#latency-p50")).to_have_text(re.compile(r"\d"))
        page.context.close()


def test_a_killed_broker_comes_back_and_alerts_go_on(tmp_path: Path) -> None:
    with running_demo(tmp_path) as demo:
        demo.wait_for_alerts()
        broker = next(p for p in demo.family() if "broker" in p.cmdline()[-6:])
        seen = demo.stats()["alerts"]["alert_count"]
        broker.kill()
        demo.eventually(lambda: "ended with signal SIGKILL" in demo.text)
        demo.wait_for_alerts(more_than=seen + 20)


def test_children_end_when_the_demo_itself_is_killed(tmp_path: Path) -> None:
    with running_demo(tmp_path) as demo:
        demo.wait_for_alerts()
        family = demo.family()
        demo.process.kill()
    assert gone(family)


def test_a_demo_that_saw_no_alert_fails(tmp_path: Path) -> None:
    with running_demo(tmp_path, "--rate", "1", "--seconds", "3") as demo:
        assert demo.process.wait(DEADLINE_S) == 1
    assert "no alert was seen in 3 s" in demo.text


def test_make_demo_works_in_a_fresh_clone(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    copy_sources(clone)
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    done = subprocess.run(
        ["make", "demo", "SECONDS=60"],
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ alerts were seen", done.stderr)
