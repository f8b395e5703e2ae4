"""How a demo learns what the page has seen, and what it makes of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import typer

from headrace.cli import demo
from headrace.cli.demo_proof import AlertsSeen, StoresReached, proof_of
from headrace.errors import FaultError
from headrace.supervisor import Supervisor


class Page(HTTPServer):
    """A page that says what it is told to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, Any] = {
            "/api/stats": {
                "alerts": {"alert_count": 3},
                "input": {"per_s": 200.0},
                "latency": {"p50_ms": 12.3, "p99_ms": None},
            },
            "/api/stores": {"stores": [store("search", 5), store("cache", 0)]},
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/?token=x"


def store(pipeline: str, arrived_count: int) -> dict[str, Any]:
    return {"pipeline": pipeline, "arrived_count": arrived_count, "lag_rows": 1_000, "took_ms_p50": 250}


class Handler(BaseHTTPRequestHandler):
    """Answers."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Page)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.server.answers[self.path]).encode())

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def page() -> Iterator[Page]:
    with Page() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_page_is_asked_past_a_proxy(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    proof = proof_of("alerts", page.url)
    assert proof.status() == "200 transactions/s   3 alerts   latency p50 12 ms, p99 -"


def test_a_page_that_does_not_answer_is_a_sentence(page: Page) -> None:
    with pytest.raises(FaultError, match="does not say how many alerts"):
        AlertsSeen("http://127.0.0.1:1")
    with pytest.raises(FaultError, match="does not say what came to the stores"):
        StoresReached("http://127.0.0.1:1")
    proofs: list[AlertsSeen | StoresReached] = [AlertsSeen(page.url), StoresReached(page.url)]
    for proof in proofs:
        proof._page = "http://127.0.0.1:1"
        assert proof.status().startswith("the page does not answer: ")


def test_a_demo_that_saw_alerts_succeeds_and_one_that_saw_none_fails(page: Page) -> None:
    proof = proof_of("alerts", page.url)
    proof.count()
    with pytest.raises(FaultError, match="no alert was seen in 60 s"):
        demo._judge(proof, 60)
    page.answers["/api/stats"]["alerts"]["alert_count"] = 5
    proof.count()
    assert proof.verdict(60) == "2 alerts were seen"
    demo._judge(proof, 60)


def test_a_demo_whose_changes_came_to_all_stores_succeeds_and_another_names_those_that_lack(
    page: Page,
) -> None:
    proof = proof_of("stores", page.url)
    assert proof.status() == ("search 1,000 rows behind, took 250 ms   cache 1,000 rows behind, took 250 ms")
    page.answers["/api/stores"] = {"stores": [store("search", 9), store("cache", 0), store("view", 0)]}
    proof.count()
    with pytest.raises(FaultError, match="no change was seen in cache, view in 60 s"):
        demo._judge(proof, 60)
    # A page that was started again counts from the beginning.
    page.answers["/api/stores"] = {"stores": [store("search", 2), store("cache", 2)]}
    proof.count()
    with pytest.raises(FaultError, match="no change was seen in search in 60 s"):
        demo._judge(proof, 60)
    page.answers["/api/stores"] = {"stores": [store("search", 9), store("cache", 2), store("view", 1)]}
    proof.count()
    assert proof.verdict(60) == "changes were seen to arrive in all stores: cache 2, search 4, view 1"


def test_a_demo_that_is_to_stop_goes_on_until_it_has_shown_what_it_has_to(
    page: Page, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "STATUS_EVERY_S", 0.01)
    proof = proof_of("stores", page.url)
    proof_counts = [["search"], ["search"], ["search", "cache"]]

    class Children(Supervisor):
        """Whose stores are reached one after the other."""

        def check(self) -> None:
            reached = proof_counts.pop(0) if len(proof_counts) > 1 else proof_counts[0]
            counts = {"search": 5, "cache": 0} | dict.fromkeys(reached, 9)
            page.answers["/api/stores"] = {"stores": [store(*each) for each in counts.items()]}

    watched_s = demo._watch(Children(lambda *_: None), proof, 0.001)

    assert proof_counts == [["search", "cache"]]
    assert "not all was seen yet" in capsys.readouterr().err
    assert proof.verdict(watched_s) == "changes were seen to arrive in all stores: cache 9, search 4"


def test_a_demo_that_shows_nothing_is_given_up_some_day(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "STATUS_EVERY_S", 0.01)
    monkeypatch.setattr(demo, "PATIENCE_S", 0.05)
    proof = proof_of("alerts", page.url)
    watched_s = demo._watch(Supervisor(lambda *_: None), proof, 0.001)
    with pytest.raises(FaultError, match="no alert was seen"):
        proof.verdict(watched_s)


def test_a_demo_without_any_store_fails(page: Page) -> None:
    page.answers["/api/stores"] = {"stores": []}
    proof = proof_of("stores", page.url)
    assert proof.status() == "no store yet"
    proof.count()
    with pytest.raises(FaultError, match="no change was seen in any store"):
        demo._judge(proof, 60)


def test_a_demo_that_was_interrupted_is_not_judged() -> None:
    with pytest.raises(typer.Exit) as ended:
        demo._judge(None, 60)
    assert ended.value.exit_code == 130


def test_results_that_are_no_alerts_are_told_as_results(page: Page) -> None:
    proof = proof_of("results", page.url)
    assert proof.status() == "200 events/s   3 results   latency p50 12 ms, p99 -"
    proof.count()
    with pytest.raises(FaultError, match="no result was seen in 60 s"):
        proof.verdict(60)
    page.answers["/api/stats"]["alerts"]["alert_count"] = 5
    proof.count()
    assert proof.verdict(60) == "2 results were seen"
