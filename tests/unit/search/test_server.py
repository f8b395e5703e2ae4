"""Requests to a search server."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import trustme

from headrace.errors import ConfigError, FaultError, StoreUnavailable
from headrace.search.server import Address, Server, _trusted

URL = "https://me:s%40cret@search.example:9200/prefix?ca=/x.pem"


def server(answer: Callable[[httpx.Request], httpx.Response], slept_s: list[float] | None = None) -> Server:
    slept = [] if slept_s is None else slept_s
    return Server(
        "http://me:s%40cret@search.example:9200/prefix",
        transport=httpx.MockTransport(answer),
        sleep=slept.append,
    )


def test_an_address_is_a_url_with_a_login_and_certificates() -> None:
    address = Address.parse(URL)
    assert address.url == "https://search.example:9200/prefix"
    assert (address.user, address.password, address.ca) == ("me", "s@cret", "/x.pem")
    assert "cret" not in repr(address)
    assert Address.parse("http://[::1]:9200").url == "http://[::1]:9200"


@pytest.mark.parametrize(
    "url", ["http://", "http://h:99999", "http://h?verify=no", "http://h/#x", "http://h:x"]
)
def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match="can't be read") as refused:
        Address.parse(url.replace("//", "//me:s3cret@"))
    assert "s3cret" not in str(refused.value)


def test_certificates_of_ones_own_are_trusted_and_those_that_can_not_be_read_are_told(tmp_path: Path) -> None:
    authority = tmp_path / "own.pem"
    trustme.CA().cert_pem.write_to_path(str(authority))
    trusted = _trusted(str(authority))
    assert isinstance(trusted, ssl.SSLContext)
    assert len(trusted.get_ca_certs()) == 1
    with pytest.raises(ConfigError, match="can't be read"):
        Server(f"https://h:9200?ca={tmp_path / 'none.pem'}")


def test_a_request_has_its_login_its_parameters_and_its_kind_of_content() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={"found": True})

    with_json = server(answer).ask("PUT", "/i/_doc/%5B1%5D", {"a": 1}, what="asking", op_type="create")
    assert with_json.body == {"found": True}
    server(answer).ask("POST", "/i/_bulk", b"{}\n", what="asking")
    first, second = asked
    assert str(first.url) == "http://search.example:9200/prefix/i/_doc/%5B1%5D?op_type=create"
    assert first.headers["Authorization"].startswith("Basic ")
    assert first.headers["Content-Type"] == "application/json"
    assert second.headers["Content-Type"] == "application/x-ndjson"


def test_a_server_that_is_busy_or_away_is_asked_again_after_pauses_that_grow() -> None:
    slept: list[float] = []
    left = [429, 503, None, 502]

    def answer(_request: httpx.Request) -> httpx.Response:
        if not left:
            return httpx.Response(200, json={})
        status = left.pop(0)
        if status is None:
            raise httpx.ConnectError("refused")
        return httpx.Response(status, text="busy")

    assert server(answer, slept).ask("GET", "/", what="asking").status == 200
    assert slept == [0.1, 0.2, 0.4, 0.8]


@pytest.mark.parametrize("is_away", [True, False])
def test_it_is_not_asked_for_ever(is_away: bool) -> None:
    slept: list[float] = []

    def answer(_request: httpx.Request) -> httpx.Response:
        if is_away:
            raise httpx.ReadTimeout("no answer")
        return httpx.Response(503, json={"error": {"reason": "no master"}})

    told = "asking: no answer of http://search.example:9200/prefix"
    with pytest.raises(StoreUnavailable, match=told) as failed:
        server(answer, slept).ask("GET", "/", what="asking")
    assert ("ReadTimeout" if is_away else "503 no master") in str(failed.value)
    assert "cret" not in str(failed.value)
    assert max(slept) == 5.0
    assert sum(slept) <= 30


@pytest.mark.parametrize(
    ("status", "kind"), [(401, ConfigError), (403, ConfigError), (400, FaultError), (500, FaultError)]
)
def test_what_is_wrong_is_told_in_the_servers_words(status: int, kind: type[Exception]) -> None:
    error = {"root_cause": [{"reason": "one  thing"}, {"reason": "one thing"}], "type": "bad_exception"}
    asked = server(lambda _request: httpx.Response(status, json={"error": error, "status": status}))
    with pytest.raises(kind, match=f"{status} one thing"):
        asked.ask("GET", "/", what="asking")
    answer = asked.ask("GET", "/", what="asking", accepted={status})
    assert (answer.status, answer.kind) == (status, "bad_exception")
    plain = server(lambda _request: httpx.Response(status, text="<html>")).ask(
        "GET", "/", what="asking", accepted={status}
    )
    assert (plain.body, plain.kind, plain.words) == ({}, "", f"{status} <html>")


def test_what_is_not_to_be_done_any_more_is_not_asked_again() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(503)

    def refuse_second() -> None:
        if len(asked) == 2:
            raise FaultError("too late")

    with pytest.raises(FaultError, match="too late"):
        server(answer).ask("POST", "/x", what="asking", before_each=refuse_second)
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "index_closed_exception"), (403, "index_create_block_exception")]
)
def test_an_index_that_is_closed_or_blocked_is_unavailable_whatever_is_accepted(
    status: int, kind: str
) -> None:
    error = {"error": {"type": kind, "reason": "closed"}}
    asked = server(lambda _request: httpx.Response(status, json=error))
    with pytest.raises(StoreUnavailable, match=f"not possible on .* for now: {status} closed"):
        asked.ask("POST", "/x", what="asking", accepted={status})
