"""The page of stores in a real browser: what is behind, what travels, and a button with a question."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from headrace.config import Address, ConsoleConfig
from headrace.console.server import ConsoleServer
from headrace.console.view import Button, View
from headrace.driver.process import ProcessId
from headrace.driver.status import Status, write_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Page
    from tests.acceptance.console.conftest import RestartableBroker, Stream

    OpenPage = Callable[..., Page]

pytestmark = pytest.mark.browser
expect.set_options(timeout=30_000)

TOPIC = "shop.public.orders"
VIEW = View(
    title="Shop",
    input="transactions",
    alerts="fraud-alerts",
    buttons=(
        Button(
            name="mistake",
            label="Delete 10,000 rows",
            question="Really delete them?",
            topic="control",
            key="mistake",
            advice="headrace replay --to {moment}",
        ),
    ),
)


@contextmanager
def console(bootstrap: str, data_dir: Path) -> Iterator[tuple[str, str]]:
    """A console on a thread of its own; its address and its token."""
    config = ConsoleConfig(
        listen=Address("127.0.0.1", 0),
        bootstrap=bootstrap,
        alerts_topic=VIEW.alerts,
        input_topic=VIEW.input,
        data_dir=data_dir,
    )
    server = ConsoleServer(config, view=VIEW)
    ready = threading.Event()
    addresses: list[Address] = []

    def on_ready(address: Address) -> None:
        addresses.append(address)
        ready.set()

    thread = threading.Thread(target=server.run, args=(on_ready,))
    thread.start()
    try:
        assert ready.wait(30)
        yield f"http://{addresses[0]}", server.token
    finally:
        server.stop()
        thread.join(30)


def write(data_dir: Path, pipeline: str, kind: str, next_offset: int) -> None:
    now = datetime.now(UTC)
    write_status(
        data_dir,
        Status(
            name=pipeline,
            state="running",
            process=ProcessId.own(),
            started_at=now,
            updated_at=now,
            mode="micro-batch",
            bootstrap="b",
            reads=(TOPIC,),
            writes=f"/data/{pipeline}",
            writes_kind=kind,
            next_offsets={TOPIC: {0: next_offset}},
        ),
    )


def event(order_id: int) -> bytes:
    source = {"ts_ms": time.time_ns() // 1_000_000}
    return json.dumps({"op": "u", "after": {"order_id": order_id}, "source": source}).encode()


def test_changes_travel_to_each_store_on_the_page_and_a_button_asks_first(
    broker: RestartableBroker, stream: Stream, tmp_path: Path, open_page: OpenPage
) -> None:
    stream.create(TOPIC, "control")
    data_dir = tmp_path / "pipelines-of-a-shop"
    write(data_dir, "warehouse", "Delta table", 0)
    write(data_dir, "search", "search index", 0)
    with console(broker.bootstrap, data_dir) as (url, token):
        page = open_page(url)
        page.goto(f"{url}/stores")
        expect(page.locator("#stores li")).to_have_count(2)
        expect(page.locator("#keys-hint")).to_be_visible()
        expect(page.get_by_role("button", name="Delete 10,000 rows")).to_be_disabled()
        page.goto(f"{url}/stores?token={token}")
        expect(page.locator("#no-changes")).to_be_visible()
        stream.send(TOPIC, event(1))
        row = page.locator("#travel-rows tr")
        expect(row).to_have_count(1)
        expect(row).to_contain_text("update · orders")
        expect(row.get_by_text("on its way")).to_have_count(2)
        write(data_dir, "search", "search index", 1)
        expect(row.get_by_text("on its way")).to_have_count(1)
        write(data_dir, "warehouse", "Delta table", 1)
        expect(row.get_by_text("on its way")).to_have_count(0)
        search = page.locator("#stores li[data-name=search]")
        expect(search).to_contain_text("search index")
        expect(search.locator("dd").first).to_have_text("0")

        page.get_by_role("button", name="Delete 10,000 rows").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Really delete them?")
        dialog.get_by_role("button", name="Cancel").click()
        expect(page.locator("#advice")).to_be_hidden()
        page.get_by_role("button", name="Delete 10,000 rows").click()
        dialog.get_by_role("button", name="Delete 10,000 rows").click()
        expect(page.locator("#advice")).to_contain_text("headrace replay --to 20")
        expect(page.locator("#buttons-said")).to_contain_text("Asked for at")
        expect(page.locator("#advice")).not_to_contain_text("pressed before")
        page.get_by_role("button", name="Delete 10,000 rows").click()
        dialog.get_by_role("button", name="Delete 10,000 rows").click()
        expect(page.locator("#advice")).to_contain_text("It was pressed before, at 20")
        for width in (320, 660, 1020, 1500):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, width
            # A key is not broken into a tower of letters: the table scrolls.
            box = row.bounding_box()
            assert box is not None
            assert box["height"] < 100, width
        page.context.close()
