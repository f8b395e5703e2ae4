"""How a demo learns what the page has seen, and what it makes of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import typer

from headrace.cli import demo
from headrace.errors import FaultError


class Page(BaseHTTPRequestHandler):
    """A page that has seen three alerts."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"alerts": {"alert_count": 3}}).encode())

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def page() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_page_is_asked_past_a_proxy(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert demo._alert_count(page) == 3


def test_a_page_that_does_not_answer_is_a_sentence() -> None:
    with pytest.raises(FaultError, match="does not say how many alerts"):
        demo._alert_count("http://127.0.0.1:1")


def test_a_demo_that_saw_alerts_succeeds() -> None:
    demo._judge(1, 60)


def test_a_demo_that_saw_none_fails() -> None:
    with pytest.raises(FaultError, match="no alert was seen in 60 s"):
        demo._judge(0, 60)


def test_a_demo_that_was_interrupted_is_not_judged() -> None:
    with pytest.raises(typer.Exit) as ended:
        demo._judge(None, 60)
    assert ended.value.exit_code == 130
