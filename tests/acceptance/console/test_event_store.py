"""The page of an event store in a real browser: commands, the state at any moment, a replay, a comparison."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from bank_accounts import Account, Deposit, Open, Withdraw
from bank_mistake import AccountWithoutFees
from headrace.config import Address, ConsoleConfig
from headrace.console.event_desk import StoreDesk
from headrace.console.server import ConsoleServer
from headrace.events import EventStore, MemoryJournal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Locator, Page

    OpenPage = Callable[..., Page]

pytestmark = pytest.mark.browser
expect.set_options(timeout=30_000)

AT = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
ACCOUNT = "account-1001"


class SilentFeed:
    """There is no broker."""

    def start(self, post: object) -> None:
        """Say nothing."""

    def stop(self) -> None:
        """Go on saying nothing."""


@dataclass
class Rebuilt:
    """A generation."""

    number: int


class Rebuilder:
    """Builds anew when the test lets it."""

    def __init__(self, head: Callable[[], int]) -> None:
        self.may_end = threading.Event()
        self._head = head

    def rebuild(self, _name: str, on_progress: Callable[[int], None]) -> Rebuilt:
        on_progress(1)
        assert self.may_end.wait(60)
        on_progress(self._head())
        return Rebuilt(number=2)


def filled_store() -> EventStore:
    store = EventStore(MemoryJournal(), deciders=[Account])
    owner = "Ada <script>alert(1)</script>"
    store.execute(ACCOUNT, Open(customer="customer-1", owner=owner, address="1 Mill Lane", at=AT))
    store.execute(ACCOUNT, Deposit(cents=1_000_00, at=AT))
    for _ in range(6):
        store.execute(ACCOUNT, Withdraw(cents=10_00, at=AT, place="station"))
    store.execute("account-1002", Open(customer="customer-2", owner="Björn", address="2 Mill Lane", at=AT))
    return store


@contextmanager
def console(desk: StoreDesk) -> Iterator[tuple[str, str]]:
    """A console on a thread of its own; its address and its token."""
    config = ConsoleConfig(listen=Address("127.0.0.1", 0))
    server = ConsoleServer(config, feed=SilentFeed(), event_desk=desk)
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


def test_commands_the_state_at_any_moment_a_replay_and_a_comparison_on_the_page(open_page: OpenPage) -> None:
    store = filled_store()
    rebuilder = Rebuilder(store.journal.head)
    deciders: dict[str, Any] = {"Account": Account, "AccountWithoutFees": AccountWithoutFees}
    desk = StoreDesk(store, deciders, rebuilder=rebuilder, projections=["balances"])
    with console(desk) as (url, token):
        # A refusal is an answer that browsers report.
        page = open_page(url, expected=("Failed to load resource",))
        page.goto(f"{url}/event-store")
        expect(page.locator("#nothing")).to_contain_text("open the address that the console printed")
        expect(page.locator("#desk")).to_be_hidden()
        page.goto(f"{url}/event-store?token={token}")
        expect(page.locator("#stream")).to_have_value(ACCOUNT)

        balance = page.locator("#state [data-name=balance_cents]")
        expect(balance).to_contain_text("93900")
        expect(balance).to_contain_text("FeeCharged, version 10")
        expect(page.locator("#state [data-name=owner]")).to_contain_text("<script>")
        expect(page.locator("#log tr")).to_have_count(10)

        slide(page, balance)
        send(page, balance)
        replay(page, rebuilder)
        compare(page)
        for width in (320, 660, 1020, 1500):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, width
        page.context.close()


def slide(page: Page, balance: Locator) -> None:
    """Into the past with the keyboard, and back by a click."""
    slider = page.get_by_role("slider")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#moment-words")).to_contain_text("As it was after MoneyWithdrawn")
    expect(balance).to_contain_text("93950")
    page.keyboard.press("Home")
    expect(page.locator("#moment-words")).to_have_text("Before anything happened")
    expect(page.locator("#state [data-name=status]")).to_contain_text("from the beginning")
    page.get_by_role("button", name="Show the state after version 2", exact=True).click()
    expect(balance).to_contain_text("100000")
    expect(page.locator("#log tr.later")).to_have_count(8)


def send(page: Page, balance: Locator) -> None:
    """Ask for something, and for too much; the slider comes back to the present."""
    page.locator("#command").select_option("Deposit")
    page.get_by_label("cents").fill("500")
    page.get_by_label("cents").press("Enter")
    expect(page.locator("#ask-said")).to_contain_text("Happened: MoneyDeposited. The stream is at version 11")
    expect(balance).to_contain_text("94400")
    expect(page.locator("#moment-words")).to_have_text("As it is now")
    page.locator("#command").select_option("Withdraw")
    page.get_by_label("cents").fill("9999999")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#ask-said")).to_contain_text("Refused: insufficient funds")
    expect(page.locator("#log tr")).to_have_count(11)


def replay(page: Page, rebuilder: Rebuilder) -> None:
    """With its progress."""
    page.get_by_role("button", name="Replay").click()
    expect(page.get_by_role("progressbar", name="How much is replayed")).to_be_visible()
    expect(page.locator("#replay-said")).to_contain_text("1 of 12 events")
    expect(page.get_by_role("button", name="Compare")).to_be_disabled()
    rebuilder.may_end.set()
    expect(page.locator("#replay-said")).to_contain_text("balances was built anew, as generation 2")
    expect(page.locator("#replay-progress")).to_be_hidden()


def compare(page: Page) -> None:
    """What the code of back then makes of the same history."""
    expect(page.locator("#right")).to_have_value("AccountWithoutFees")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("#compare-said")).to_contain_text("1 field differs, in 1 of 2 streams")
    row = page.locator("#differences tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text(ACCOUNT)
    expect(row).to_contain_text("94400")
    expect(row).to_contain_text("94500")
