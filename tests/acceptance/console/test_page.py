"""What a person sees on the page."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from headrace.config import Address, ConsoleConfig
from headrace.console.server import ConsoleServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page
    from tests.acceptance.console.conftest import RestartableBroker, Stream

    OpenPage = Callable[..., Page]

pytestmark = pytest.mark.browser
expect.set_options(timeout=30_000)

UNKNOWN = "\N{EN DASH}"
ATTACK = "<img src=x onerror='window.hacked=1'>"


def rows(page: Page) -> Locator:
    return page.locator("#rows > li:visible")


def test_alerts_show_up_by_themselves_once_each(
    stream: Stream, console_url: str, open_page: OpenPage
) -> None:
    page = open_page(console_url)
    expect(page.locator("#empty")).to_contain_text("Waiting for the first record")
    page.evaluate("window.loadedOnce = true")
    stream.send("transactions", b"{}")
    for alert_id in ("a", "b", "a", "c", "a"):
        stream.alert(alert_id)
    expect(rows(page)).to_have_count(3)
    expect(page.locator("#count-repeats")).to_have_text("2")
    expect(page.locator("#count-alerts")).to_have_text("3")
    expect(rows(page).last).to_contain_text("came 3 times")
    expect(rows(page).first).to_contain_text("7 transactions in 1 minute")
    expect(rows(page).first).to_contain_text("•••• 4711")
    expect(rows(page).first).to_contain_text("1,234.50")
    assert page.evaluate("window.loadedOnce") is True
    assert "004711" not in page.content()


def test_numbers_move_without_a_reload(stream: Stream, console_url: str, open_page: OpenPage) -> None:
    page = open_page(console_url)
    stream.send("transactions", b"{}")
    expect(page.locator("#status")).to_contain_text("live")
    stream.send("transactions", *([b"{}"] * 500))
    expect(page.locator("#input-rate")).not_to_have_text("0")
    stream.alert("a")
    expect(page.locator("#alert-rate")).to_have_text("1")
    expect(page.locator("#latency-count")).to_have_text("1")
    expect(page.locator("#latency-p50")).not_to_have_text(UNKNOWN)
    expect(page.locator("#input-chart .js-line")).to_have_count(1)
    expect(page.locator("#input-chart")).to_have_attribute(
        "aria-label", re.compile("transactions per second")
    )


def test_a_payload_is_text_wherever_it_appears_and_runs_nothing(
    stream: Stream, console_url: str, open_page: OpenPage
) -> None:
    page = open_page(console_url)
    stream.alert(
        ATTACK, rule=ATTACK, card_id=ATTACK, tx_id=ATTACK, evidence=[ATTACK], at=ATTACK, **{ATTACK: ATTACK}
    )
    stream.alert("next", card_id=f"card-{ATTACK}")
    stream.send("fraud-alerts", f"<script>window.hacked=1</script>{ATTACK}".encode())
    expect(rows(page)).to_have_count(3)
    for index in range(3):
        rows(page).nth(index).locator("summary").click()
    expect(rows(page).nth(0).locator(".evidence")).to_contain_text("<script>window.hacked=1</script>")
    expect(rows(page).nth(0)).to_contain_text("Record that can\N{RIGHT SINGLE QUOTATION MARK}t be decoded")
    expect(rows(page).nth(1).locator(".card")).to_have_text("•••• =1'>")
    page.locator("#filter").fill("<img")
    expect(rows(page)).to_have_count(0)
    assert page.evaluate("window.hacked") is None
    assert page.locator("#rows img, #rows script").count() == 0


def test_an_alert_that_nobody_foresaw_is_shown_generically(
    stream: Stream, console_url: str, open_page: OpenPage
) -> None:
    page = open_page(console_url)
    stream.send("fraud-alerts", b'{"rule": "impossible_travel", "km": 812, "cities": ["Oslo", "Rome"]}')
    expect(rows(page)).to_contain_text("Impossible travel")
    rows(page).locator("summary").click()
    expect(rows(page).locator(".facts")).to_contain_text('["Oslo", "Rome"]')
    expect(rows(page).locator(".evidence")).to_be_hidden()


def test_the_filter_finds_plain_text_by_card_and_rule(
    stream: Stream, console_url: str, open_page: OpenPage
) -> None:
    page = open_page(console_url)
    stream.alert("a", card_id="card-001111")
    stream.alert("b", card_id="card-002222")
    stream.alert("c", rule="impossible_travel")
    expect(rows(page)).to_have_count(3)
    for needle, count in (("1111", 1), ("TRAVEL", 1), ("card-002222", 1), (".*", 0), ("(", 0), ("minute", 2)):
        page.locator("#filter").fill(needle)
        expect(rows(page)).to_have_count(count)
    page.locator("#filter").fill("2222")
    stream.alert("d", card_id="card-002222")
    expect(rows(page)).to_have_count(2)
    expect(page.locator("#shown")).to_have_text("2 of 4")
    page.locator("#filter").fill("nothing like it")
    expect(page.locator("#empty")).to_contain_text("No alert matches the filter")
    page.locator("#filter").press("Escape")
    expect(rows(page)).to_have_count(4)


def test_a_paused_list_stands_still_while_the_counts_go_on(
    stream: Stream, console_url: str, open_page: OpenPage
) -> None:
    page = open_page(console_url)
    stream.alert("a")
    expect(rows(page)).to_have_count(1)
    page.locator("#pause").click()
    stream.alert("b")
    stream.alert("c")
    expect(page.locator("#pause")).to_have_text("Resume, 2 new")
    expect(page.locator("#count-alerts")).to_have_text("3")
    expect(rows(page)).to_have_count(1)
    page.locator("#pause").click()
    expect(rows(page)).to_have_count(3)
    expect(page.locator("#pause")).to_have_text("Pause")


def test_all_of_it_can_be_used_from_the_keyboard(
    stream: Stream, console_url: str, open_page: OpenPage
) -> None:
    page = open_page(console_url)
    stream.alert("a")
    expect(rows(page)).to_have_count(1)
    page.keyboard.press("/")
    expect(page.locator("#filter")).to_be_focused()
    page.keyboard.type("p")
    expect(page.locator("#pause")).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(page.locator("#pause")).to_be_focused()
    page.keyboard.press("p")
    expect(page.locator("#pause")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Tab")
    expect(page.locator("summary")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".evidence")).to_contain_text("a-tx-1")
    expect(page.locator(".evidence .trigger")).to_have_text("a-tx-2")


def test_a_restarted_console_is_found_again_and_nothing_is_missing_or_twice(
    broker: RestartableBroker, stream: Stream, run_console: Callable[..., Any], open_page: OpenPage
) -> None:
    with run_console(broker.bootstrap) as url:
        page = open_page(url, expected=("Failed to load resource: net::ERR_",))
        page.evaluate("window.loadedOnce = true")
        stream.alert("a")
        expect(rows(page)).to_have_count(1)
    expect(page.locator("#status")).to_contain_text("console not reachable for")
    stream.alert("b")
    with run_console(broker.bootstrap, listen=url.removeprefix("http://")):
        expect(rows(page)).to_have_count(2)
        expect(page.locator("#status")).not_to_contain_text("not reachable")
        stream.alert("c")
        expect(rows(page)).to_have_count(3)
        assert page.evaluate("window.loadedOnce") is True


def test_a_lost_broker_is_said_in_words_and_its_return_is_noticed(
    broker: RestartableBroker, stream: Stream, console_url: str, open_page: OpenPage
) -> None:
    page = open_page(console_url)
    stream.send("transactions", b"{}")
    stream.alert("a")
    expect(rows(page)).to_have_count(1)
    broker.stop()
    expect(page.locator("#status")).to_contain_text(f"broker {broker.bootstrap} not reachable for")
    expect(page.locator("body")).to_have_attribute("data-status", "unreachable")
    expect(page.locator("#input-rate")).to_have_text(UNKNOWN)
    broker.start()
    stream.send("transactions", b"{}")
    stream.alert("b")
    expect(page.locator("body")).to_have_attribute("data-status", "live")
    expect(rows(page)).to_have_count(2)


def test_a_stall_is_said_in_words_with_its_length(
    stream: Stream, console_url: str, open_page: OpenPage
) -> None:
    page = open_page(console_url)
    stream.send("transactions", b"{}")
    expect(page.locator("#status")).to_contain_text("live")
    expect(page.locator("#status")).to_contain_text(re.compile(r"no transactions for \d+ s"))
    expect(page.locator("#status")).to_contain_text(re.compile(r"no transactions for ([7-9]|\d\d) s"))
    expect(page.locator("#status-spoken")).to_have_text("Stalled: the input stands still")
    stream.send("transactions", b"{}")
    expect(page.locator("#status")).to_contain_text("live")


def test_a_page_without_anything_to_show_says_what_it_waits_for(
    broker: RestartableBroker, console_url: str, open_page: OpenPage
) -> None:
    page = open_page(console_url)
    expect(page.locator("#empty")).to_contain_text("Waiting for fraud-alerts")
    expect(page.locator("#empty")).to_contain_text(f"There is no such topic on {broker.bootstrap} yet")
    expect(page.locator("#status")).to_contain_text("waiting for topics transactions and fraud-alerts")


def test_nothing_is_wider_than_the_screen(stream: Stream, console_url: str, open_page: OpenPage) -> None:
    page = open_page(console_url)
    stream.alert("a", rule="x" * 250, card_id="y" * 250, total=1e15, evidence=["z" * 250], note="w" * 250)
    stream.send("fraud-alerts", b"v" * 500)
    expect(rows(page)).to_have_count(2)
    for index in range(2):
        rows(page).nth(index).locator("summary").click()
    for width in (320, 390, 660, 661, 820, 1020, 1021, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_it_is_dark_or_light_as_the_reader_prefers(
    stream: Stream, console_url: str, open_page: OpenPage
) -> None:
    def lightness(page: Page) -> int:
        return sum(
            page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        )

    assert lightness(open_page(console_url, color_scheme="dark")) < 150
    assert lightness(open_page(console_url, color_scheme="light")) > 600


def test_a_hidden_page_holds_no_connection_and_catches_up_when_it_is_seen(
    stream: Stream, console_url: str, open_page: OpenPage
) -> None:
    def set_hidden(hidden: bool) -> None:
        page.evaluate(
            "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
            " document.dispatchEvent(new Event('visibilitychange')); }",
            hidden,
        )

    def viewer_count() -> int:
        return int(page.request.get(console_url + "/api/stats").json()["viewers"]["count"])

    page = open_page(console_url)
    stream.alert("a")
    expect(rows(page)).to_have_count(1)
    set_hidden(True)
    page.wait_for_function("async () => (await (await fetch('/api/stats')).json()).viewers.count === 0")
    stream.alert("b")
    set_hidden(False)
    expect(rows(page)).to_have_count(2)
    assert viewer_count() == 1


def test_one_page_too_many_says_so_and_gets_in_when_another_is_closed(
    broker: RestartableBroker, stream: Stream, open_page: OpenPage
) -> None:
    config = ConsoleConfig(listen=Address("127.0.0.1", 0), bootstrap=broker.bootstrap, viewer_count_max=1)
    server, found, ready = ConsoleServer(config), list[Address](), threading.Event()

    def on_ready(address: Address) -> None:
        found.append(address)
        ready.set()

    thread = threading.Thread(target=server.run, args=(on_ready,))
    thread.start()
    try:
        assert ready.wait(30)
        first = open_page(f"http://{found[0]}")
        expect(first.locator("#status")).to_contain_text("waiting")
        second = open_page(
            f"http://{found[0]}",
            expected=("Failed to load resource: the server responded with a status of 503",),
        )
        expect(second.locator("#status")).to_contain_text("too many pages are open; close one")
        first.close()
        expect(second.locator("#status")).to_contain_text("waiting")
    finally:
        server.stop()
        thread.join(30)


def test_many_alerts_at_once_keep_the_newest_on_top(
    stream: Stream, console_url: str, open_page: OpenPage
) -> None:
    page = open_page(console_url)
    for number in range(300):
        stream.alert(f"alert-{number}", count=number)
    expect(page.locator("#count-alerts")).to_have_text("300")
    expect(rows(page)).to_have_count(200)
    expect(rows(page).first).to_contain_text("299 transactions")
    expect(rows(page).last).to_contain_text("100 transactions")
