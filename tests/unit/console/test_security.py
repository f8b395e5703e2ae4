"""Who may talk to the console."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.config import Address, ConsoleConfig
from headrace.console.app import create_app
from headrace.console.board import Board
from headrace.console.security import own_hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from starlette.applications import Starlette
    from tests.unit.console.conftest import Client, FakeActions, SilentFeed

    from headrace.console.api import Back
    from headrace.testing.clock import ManualClock

    Run = Callable[[Starlette, Address], AbstractContextManager[Client]]

OWN = "http://127.0.0.1:8500"


@pytest.fixture
def client(clock: ManualClock, silent_feed: SilentFeed, run: Run, back: Back) -> Iterator[Client]:
    board = Board(ConsoleConfig(), clock, session="s1")
    address = Address("127.0.0.1", 8500)
    with run(create_app(board, silent_feed, address, lambda _: None, back), address) as client:
        yield client


@pytest.mark.parametrize("host", ["127.0.0.1:8500", "localhost:8500", "[::1]:8500", "LOCALHOST:8500"])
def test_our_own_names_with_our_port_are_answered(client: Client, host: str) -> None:
    assert client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example:8500", "127.0.0.1", "127.0.0.1:8501", "localhost", "127.0.0.1.evil.example:8500", "", "@"],
)
@pytest.mark.parametrize("path", ["/", "/events", "/api/alerts", "/static/live.js", "/nowhere"])
def test_any_other_host_is_refused_everywhere(client: Client, host: str, path: str) -> None:
    answer = client.get(path, headers={"Host": host})
    assert answer.status_code == 403
    assert "does not answer to the host" in answer.text


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8500", ""]
)
def test_pages_of_other_origins_are_refused(client: Client, origin: str) -> None:
    answer = client.get("/api/alerts", headers={"Origin": origin})
    assert answer.status_code == 403
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize("origin", [OWN, "http://localhost:8500"])
def test_our_own_origin_is_answered_without_cors_headers(client: Client, origin: str) -> None:
    answer = client.get("/api/alerts", headers={"Origin": origin})
    assert answer.status_code == 200
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_may_link_to_the_page_but_not_load_from_it(client: Client, site: str) -> None:
    loaded = client.get("/api/alerts", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"})
    linked = client.get("/", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"})
    assert (loaded.status_code, linked.status_code) == (403, 200)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_than_get_and_post_are_refused(client: Client, method: str) -> None:
    answer = client.request(method, "/api/alerts")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")
    assert "use GET" in answer.text


KILL = "/api/pipelines/alerts/kill"


def test_whoever_holds_the_token_may_act(
    client: Client, holder: dict[str, str], actions: FakeActions
) -> None:
    assert client.request("POST", KILL, headers=holder).json() == {"pid": 4711}
    assert actions.done == [("kill", "alerts")]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": OWN},
        {"Cookie": "headrace-8500=a-token-for-tests"},
        {"Cookie": "headrace-8500=wrong", "Origin": OWN},
        {"Cookie": "headrace-8500=", "Origin": OWN},
        {"Cookie": "headrace-8501=a-token-for-tests", "Origin": OWN},
        {"Cookie": "headrace-8500=a-token-for-tests", "Origin": "http://evil.example"},
        {"Cookie": "headrace-8500=a-token-for-tests", "Origin": OWN, "Sec-Fetch-Site": "cross-site"},
    ],
)
def test_nobody_else_may_act(client: Client, headers: dict[str, str], actions: FakeActions) -> None:
    answer = client.request("POST", KILL, headers=headers)
    assert (answer.status_code, actions.done) == (403, [])


@pytest.mark.parametrize("path", ["/api/topics/orders/messages", "/api/recount"])
def test_records_are_shown_to_holders_of_the_token_only(
    client: Client, path: str, holder: dict[str, str]
) -> None:
    assert client.get(path).status_code == 403
    assert "open the address it printed" in client.get(path).json()["error"]
    assert client.get(path, headers=holder).status_code == 200


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_cant_use(client: Client) -> None:
    answer = client.get("/?token=a-token-for-tests")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("headrace-8500=a-token-for-tests;")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie


@pytest.mark.parametrize("token", ["", "wrong", "\N{SNOWMAN}", "x" * 5_000])
def test_a_wrong_token_lets_nobody_in(client: Client, token: str) -> None:
    answer = client.get(f"/?token={token}")
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_the_page_can_ask_whether_it_may_act(client: Client, holder: dict[str, str]) -> None:
    assert client.get("/api/session").json() == {"may_act": False}
    assert client.get("/api/session", headers=holder).json() == {"may_act": True}


@pytest.mark.parametrize("path", ["/", "/static/live.js", "/api/stats", "/health", "/nowhere"])
def test_every_answer_forbids_frames_foreign_code_and_sniffing(client: Client, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"


def test_a_refusal_carries_the_same_headers(client: Client) -> None:
    answer = client.get("/", headers={"Host": "evil.example"})
    assert "content-security-policy" in answer.headers


def test_the_default_port_of_http_may_be_left_out() -> None:
    assert "localhost" in own_hosts(Address("127.0.0.1", 80))
    assert "localhost" not in own_hosts(Address("127.0.0.1", 8500))
    assert "127.0.0.2:8500" in own_hosts(Address("127.0.0.2", 8500))
