"""The page of an application in a real browser: the crash test, sliders, the flow, and the general pages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from headrace.config import Address, ConsoleConfig
from headrace.console.server import ConsoleServer
from headrace.console.view import Control, View
from headrace.driver.process import ProcessId
from headrace.driver.status import Status, write_status
from headrace.testing.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Page
    from tests.acceptance.console.conftest import RestartableBroker, Stream

    OpenPage = Callable[..., Page]

pytestmark = pytest.mark.browser
expect.set_options(timeout=30_000)

VIEW = View(
    title="Card fraud",
    input="transactions",
    alerts="fraud-alerts",
    event_time="at",
    latitude="lat",
    longitude="lon",
    controls=(
        Control(
            name="rate",
            label="Transactions per second",
            minimum=10,
            maximum=100,
            step=10,
            value=20,
            topic="control",
            key="world",
        ),
    ),
)


class Pipeline:
    """A process that stands for a driver, and the status that it would write."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.process = self._spawn()

    def start_again(self) -> None:
        self.end()
        self.process = self._spawn()

    def _spawn(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        now = datetime.now(UTC)
        status = Status(
            name="velocity_alerts",
            state="running",
            process=ProcessId.of(process.pid),
            started_at=now,
            updated_at=now,
            running_since=now,
            mode="micro-batch",
            bootstrap="b",
            reads=("transactions",),
            writes="fraud-alerts",
            watermark=now.isoformat(),
        )
        write_status(self._data_dir, status)
        return process

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    pipeline = Pipeline(tmp_path)
    yield pipeline
    pipeline.end()


@contextmanager
def serving(config: ConsoleConfig) -> Iterator[tuple[str, str]]:
    """A console with the view above; yields its URL and its token."""
    server, found, ready = ConsoleServer(config, view=VIEW), list[Address](), threading.Event()

    def on_ready(address: Address) -> None:
        found.append(address)
        ready.set()

    thread = threading.Thread(target=server.run, args=(on_ready,))
    thread.start()
    try:
        assert ready.wait(30)
        yield f"http://{found[0]}", server.token
    finally:
        server.stop()
        thread.join(30)


@pytest.fixture
def console(broker: RestartableBroker, tmp_path: Path) -> Iterator[tuple[str, str]]:
    config = ConsoleConfig(listen=Address("127.0.0.1", 0), bootstrap=broker.bootstrap, data_dir=tmp_path)
    with serving(config) as console:
        yield console


def transaction(number: int) -> bytes:
    at = datetime.now(UTC).isoformat()
    return json.dumps({"tx_id": str(number), "at": at, "lat": 50 + number % 5, "lon": 10}).encode()


def test_a_driver_is_killed_from_the_page_and_nothing_is_lost_or_counted_twice(
    stream: Stream, pipeline: Pipeline, console: tuple[str, str], open_page: OpenPage
) -> None:
    url, token = console
    page = open_page(url)
    expect(page.locator("#kill")).to_be_disabled()
    page.goto(f"{url}/?token={token}")
    assert page.url == f"{url}/"
    stream.send("transactions", *map(transaction, range(20)))
    for alert_id in ("a", "b", "a"):
        stream.alert(alert_id)
    expect(page.locator("#count-alerts")).to_have_text("2")
    expect(page.locator("#count-repeats")).to_have_text("1")
    killed = pipeline.process
    page.get_by_role("button", name="kill -9 velocity_alerts").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert killed.poll() is None
    page.get_by_role("button", name="kill -9 velocity_alerts").click()
    page.get_by_role("dialog").get_by_role("button", name="kill -9").click()
    assert killed.wait(30) == -9
    expect(page.locator("#crash-said")).to_have_text(f"Process {killed.pid} was killed.")
    expect(page.locator("#incidents")).to_contain_text("down for")
    expect(page.locator("#flow-list")).to_contain_text("crashed")
    expect(page.locator("#kill")).to_be_disabled()
    caused_ms = time.time_ns() // 10**6
    while time.time_ns() // 10**6 == caused_ms:
        # The driver is started again in a later millisecond.
        pass
    pipeline.start_again()
    expect(page.locator("#incidents")).to_contain_text("running again after")
    stream.alert("c", sent_at=caused_ms)
    stream.alert("b")
    expect(page.locator("#incidents")).to_contain_text("first alert after")
    expect(page.locator("#incidents")).to_contain_text("1 alerts of what came while it was down")
    expect(page.locator("#incidents")).to_contain_text("since then 1 alerts; 1 came again and counted once")
    page.get_by_role("button", name="Count the topic").click()
    expect(page.locator("#crash-said")).to_contain_text(
        "5 records on fraud-alerts are 3 alerts, 2 that came again"
    )
    expect(page.locator("#crash-said")).to_contain_text("This page has seen 3 alerts.")
    expect(page.locator("#kill")).to_be_enabled()


def test_sliders_flow_event_time_map_and_theme_work_on_one_page(
    stream: Stream, pipeline: Pipeline, console: tuple[str, str], open_page: OpenPage
) -> None:
    url, token = console
    stream.create("control")
    page = open_page(url, color_scheme="dark")
    page.goto(f"{url}/?token={token}")
    expect(page.get_by_role("heading", level=1)).to_have_text("Card fraud")
    slider = page.get_by_role("slider", name="Transactions per second")
    expect(slider).to_have_value("20")
    expect(slider).to_be_enabled()
    with page.expect_response(re.compile("/api/controls/rate")) as moved:
        slider.press("ArrowRight")
    assert moved.value.json() == {"name": "rate", "value": 30}
    expect(page.locator(".slider output")).to_have_text("30")

    def is_told() -> bool:
        # The page takes samples of what comes in, so some of it may pass unseen.
        stream.send("transactions", *map(transaction, range(20)))
        return "Half of the events come within" in page.locator("#time-words").inner_text()

    eventually(is_told, "how late events come", pause_s=0.5)
    expect(page.locator("#time-chart .point").first).to_be_attached()
    expect(page.locator("#map-chart .point").first).to_be_attached()
    event = {"tx_id": "t", "amount": 5, "merchant": "grocer", "lat": 48.1, "lon": 11.6}
    stream.alert("a", transactions=[event, {**event, "lat": 1.5, "lon": -70}], tx_id="t")
    page.locator("#rows summary").click()
    expect(page.locator("#map-words")).to_contain_text("48.10° N 11.60° E, then 1.50° N 70.00° W")
    expect(page.locator("#rows .events tbody tr")).to_have_count(2)
    expect(page.locator("#flow-list a")).to_have_count(3)
    page.locator("#flow-list a").last.focus()
    stream.send("fraud-alerts", *(b"?" for _ in range(50)))
    expect(page.locator("#count-undecodable")).to_have_text("50")
    expect(page.locator("#flow-list a").last).to_be_focused()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Switch to light").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    page.reload()
    expect(page.get_by_role("button", name="Switch to dark")).to_be_visible()


def test_topics_records_pipelines_and_groups_have_pages_of_their_own(
    stream: Stream, pipeline: Pipeline, console: tuple[str, str], open_page: OpenPage
) -> None:
    url, token = console
    attack = "<img src=x onerror='window.hacked=1'>"
    stream.send("transactions", b'{"tx_id": "t1"}', attack.encode())
    page = open_page(url, expected=("Failed to load resource: the server responded with a status of 403",))
    page.get_by_role("link", name="Topics").click()
    page.get_by_role("link", name="transactions").click()
    expect(page.locator("#partitions tr")).to_have_count(1)
    expect(page.locator("#messages-nothing")).to_contain_text("open the address it printed")
    page.goto(f"{url}/topics/transactions?token={token}")
    expect(page.locator("#messages li")).to_have_count(2)
    expect(page.locator("#messages")).to_contain_text(attack)
    assert page.evaluate("window.hacked") is None
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Pipelines").click()
    expect(page.locator("#pipelines")).to_contain_text("velocity_alerts")
    expect(page.locator("#pipelines .pill")).to_have_text("running")
    expect(page.get_by_role("button", name="kill -9 velocity_alerts")).to_be_enabled()
    page.get_by_role("link", name="Groups").click()
    expect(page.locator("#nothing")).to_contain_text("No consumer group has committed anything yet")
    for path in ("/", "/topics", "/topics/transactions", "/pipelines", "/stores", "/groups"):
        page.goto(url + path)
        expect(page.locator("#status")).to_contain_text(re.compile("live|no transactions for"))
        for width in (320, 660, 1020, 1220, 1221, 1500):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
