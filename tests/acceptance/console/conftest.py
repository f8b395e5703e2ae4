"""The page in a real browser, served by `headrace console`, fed by a real client through a real broker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import sync_playwright

from headrace import Broker
from headrace.config import Address, BrokerConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

READY_WITHIN_S = 30.0
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class RestartableBroker:
    """A broker that keeps its address and its data over a stop."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with Broker(directory, config=BrokerConfig(listen=Address("127.0.0.1", 0))) as broker:
            self._config = BrokerConfig(listen=broker.address)
        self.bootstrap = str(self._config.listen)
        self._broker = Broker(directory, config=self._config)

    def start(self) -> None:
        self._broker.start()

    def stop(self) -> None:
        self._broker.stop()


class Stream:
    """Writes transactions and alerts, as a producer and a pipeline would."""

    def __init__(self, bootstrap: str) -> None:
        self._settings: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._producer = Producer({**self._settings, "linger.ms": 0})

    def create_topics(self) -> None:
        admin = AdminClient(self._settings)
        for made in admin.create_topics([NewTopic("transactions"), NewTopic("fraud-alerts")]).values():
            made.result(READY_WITHIN_S)

    def send(self, topic: str, *values: bytes) -> None:
        for value in values:
            self._producer.produce(topic, value)
        assert self._producer.flush(READY_WITHIN_S) == 0

    def alert(self, alert_id: str, **fields: Any) -> None:
        whole = {
            "alert_id": alert_id,
            "rule": "velocity",
            "card_id": "card-004711",
            "tx_id": f"{alert_id}-tx-2",
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "count": 7,
            "evidence": [f"{alert_id}-tx-1", f"{alert_id}-tx-2"],
            "total": 1234.5,
            "sent_at": time.time_ns() // 10**6,
        }
        self.send("fraud-alerts", json.dumps({**whole, **fields}).encode())


@contextmanager
def console_process(bootstrap: str, listen: str = "127.0.0.1:0") -> Iterator[str]:
    """`headrace console`, until the block ends; yields its URL."""
    command = [sys.executable, "-m", "headrace", "console", "--bootstrap", bootstrap, "--listen", listen]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        watchdog = threading.Timer(READY_WITHIN_S, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            yield process.stdout.readline().rpartition(" ")[2].strip()
            process.terminate()
            assert process.wait(READY_WITHIN_S) == 0
        finally:
            watchdog.cancel()
            process.kill()


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
def broker(tmp_path: Path) -> Iterator[RestartableBroker]:
    broker = RestartableBroker(tmp_path / "data")
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def stream(broker: RestartableBroker) -> Stream:
    """Both topics, empty."""
    stream = Stream(broker.bootstrap)
    stream.create_topics()
    return stream


@pytest.fixture
def console_url(broker: RestartableBroker) -> Iterator[str]:
    with console_process(broker.bootstrap) as url:
        yield url


@pytest.fixture
def run_console() -> Callable[..., Any]:
    """For tests that start and stop the console themselves."""
    return console_process


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
