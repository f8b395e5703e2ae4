"""The part of the API that asks and acts, called without a socket, a broker or a process."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from headrace.config import Address, ConsoleConfig
from headrace.console.app import create_app
from headrace.console.board import Board
from headrace.console.observations import StoresSeen
from headrace.console.travel import Change, Store
from headrace.console.view import Button, Control, View
from headrace.testing.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from starlette.applications import Starlette
    from tests.unit.console.conftest import Client, FakeActions, FakeCatalog, SilentFeed

    from headrace.console.api import Back
    from headrace.testing.clock import ManualClock

    Run = Callable[[Starlette, Address], AbstractContextManager[Client]]

ADDRESS = Address("127.0.0.1", 8500)
RATE = Control(
    name="rate",
    label="Per second",
    minimum=0,
    maximum=1000,
    step=10,
    value=200,
    topic="control",
    key="world",
)
MISTAKE = Button(name="mistake", label="Delete", question="Really?", topic="control", key="mistake")


@pytest.fixture
def board(clock: ManualClock) -> Board:
    view = View(title="Orders", input="orders", alerts="alerts", controls=(RATE,), buttons=(MISTAKE,))
    return Board(ConsoleConfig(), clock, session="s1", view=view)


@pytest.fixture
def client(
    board: Board, silent_feed: SilentFeed, run: Run, back: Back, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Client]:
    monkeypatch.setattr("headrace.console.app.RECALL_EVERY_S", 0.001)
    with run(create_app(board, silent_feed, ADDRESS, lambda _: None, back), ADDRESS) as client:
        yield client


def value_of(board: Board) -> float:
    return float(board.stats()["controls"][0]["value"])


def test_stores_and_changes_are_to_be_had_as_json_and_keys_by_the_token_alone(
    client: Client, board: Board, holder: dict[str, str]
) -> None:
    assert client.get("/api/stores").json() == {"stores": [], "changes": []}
    store = Store(
        pipeline="carts",
        kind="cache",
        name="carts",
        state="running",
        reads=("shop.carts",),
        next_offsets={"shop.carts": {0: 7}},
        updated_ms=board.now_ms(),
    )
    change = Change(topic="shop.carts", partition=0, offset=7, committed_ms=1, key="secret")
    board.apply(StoresSeen(stores=(store,), changes=(change,)))

    told = client.get("/api/stores").json()
    assert [each["pipeline"] for each in told["stores"]] == ["carts"]
    assert told["changes"][0]["stores"] == {"carts": {"has": False, "took_ms": None}}
    assert told["changes"][0]["key"] is None
    assert client.get("/api/stores", headers=holder).json()["changes"][0]["key"] == "secret"


def test_a_button_is_pressed_by_the_token_alone_and_all_pages_know_when(
    client: Client, board: Board, holder: dict[str, str], actions: FakeActions, clock: ManualClock
) -> None:
    assert client.request("POST", "/api/buttons/mistake").status_code == 403
    unknown = client.request("POST", "/api/buttons/other", headers=holder)
    assert (unknown.status_code, unknown.json()) == (409, {"error": "there is no button 'other'"})
    assert board.stats()["buttons"][0]["presses_ms"] == []
    answer = client.request("POST", "/api/buttons/mistake", headers=holder)
    assert answer.json() == {"name": "mistake", "pressed_ms": board.now_ms()}
    assert actions.done == [("mistake", board.now_ms())]
    first_ms = board.now_ms()
    clock.advance(5_000)
    client.request("POST", "/api/buttons/mistake", headers=holder)
    assert board.stats()["buttons"][0]["presses_ms"] == [first_ms, first_ms + 5_000]


def test_topics_and_their_partitions_are_to_be_had_as_json(client: Client) -> None:
    assert client.get("/api/topics").json()["topics"][0]["name"] == "orders"
    assert client.get("/api/topics/orders").json()["partitions"][0]["end"] == 3


def test_what_is_not_there_and_a_silent_broker_are_told_apart_in_words(client: Client) -> None:
    missing, silent = client.get("/api/topics/nowhere"), client.get("/api/groups")
    assert (missing.status_code, missing.json()) == (404, {"error": "there is no topic nowhere"})
    assert (silent.status_code, silent.json()) == (503, {"error": "the broker does not answer"})


def test_a_topic_counted_anew_tells_alerts_repeats_and_what_cant_be_decoded(
    client: Client, holder: dict[str, str]
) -> None:
    assert client.get("/api/recount", headers=holder).json() == {
        "record_count": 4,
        "alert_count": 2,
        "repeat_count": 1,
        "withdrawn_count": 0,
        "deleted_count": 0,
        "undecodable_count": 1,
        "is_complete": True,
    }


def test_a_topic_is_counted_once_at_a_time_and_nothing_that_acts_waits_for_it(
    client: Client, holder: dict[str, str], actions: FakeActions, catalog: FakeCatalog
) -> None:
    catalog.may_read.clear()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(client.get, "/api/recount", headers=holder)
        assert catalog.reading.wait(30)
        second = client.get("/api/recount", headers=holder)
        killed = client.request("POST", "/api/pipelines/alerts/kill", headers=holder)
        catalog.may_read.set()
    assert (second.status_code, killed.status_code, first.result().status_code) == (409, 200, 200)
    assert "being counted already" in second.json()["error"]
    assert actions.done == [("kill", "alerts")]
    assert client.get("/api/recount", headers=holder).status_code == 200


def test_sliders_stand_where_they_were_left_and_where_they_are_moved(
    client: Client, board: Board, holder: dict[str, str], actions: FakeActions
) -> None:
    eventually(lambda: value_of(board) == 300)
    answer = client.request("POST", "/api/controls/rate", headers=holder, content=b'{"value": 500}')
    assert (answer.status_code, value_of(board)) == (200, 500)
    assert actions.done == [("rate", 500)]


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b"5", b"{}", b"[" * 900),
        *(b'{"value": "5"}', b'{"value": true}', b'{"value": NaN}', b'{"value": 1' + b"0" * 400 + b"}"),
    ],
)
def test_a_body_that_is_no_number_moves_nothing(
    client: Client, holder: dict[str, str], actions: FakeActions, body: bytes
) -> None:
    answer = client.request("POST", "/api/controls/rate", headers=holder, content=body)
    assert (answer.status_code, actions.done) == (409, [])


def test_a_body_that_is_too_long_is_not_read_to_its_end(
    client: Client, holder: dict[str, str], actions: FakeActions
) -> None:
    long = json.dumps({"value": 5, "filling": "x" * 2_000}).encode()
    answer = client.request("POST", "/api/controls/rate", headers=holder, content=long)
    assert (answer.status_code, actions.done) == (409, [])
    assert "more than 1024 bytes" in answer.json()["error"]


def test_a_refused_action_says_why(client: Client, holder: dict[str, str]) -> None:
    answer = client.request("POST", "/api/pipelines/nobody/kill", headers=holder)
    assert (answer.status_code, answer.json()) == (409, {"error": "there is no pipeline 'nobody' here"})


@pytest.mark.parametrize("path", ["/api/pipelines/alerts/kill", "/api/controls/rate"])
def test_looking_at_what_acts_does_nothing(client: Client, path: str, actions: FakeActions) -> None:
    assert client.get(path).status_code == 405
    assert actions.done == []
