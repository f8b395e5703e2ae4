"""What PySpark would print of a Java that is gone, and what must be printed all the same."""

from __future__ import annotations

import logging
import socketserver
import threading
from collections.abc import Iterator

import pytest
from py4j.java_gateway import GatewayClient, GatewayParameters

from headrace.streams.session import keep_traces_of_java_quiet


@pytest.fixture(autouse=True)
def _loggers_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "filters", [])
    for name in ("DataFrameQueryContextLogger", "py4j.clientserver"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.NOTSET)


class _Dying(socketserver.BaseRequestHandler):
    """Takes a command and is gone."""

    def handle(self) -> None:
        self.request.recv(1_000)


@pytest.fixture
def gateway() -> Iterator[GatewayClient]:
    with socketserver.TCPServer(("127.0.0.1", 0), _Dying) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        port = server.server_address[1]
        yield GatewayClient(gateway_parameters=GatewayParameters(port=port))
        server.shutdown()


def test_a_call_to_a_java_that_dies_prints_no_trace(
    gateway: GatewayClient, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.send_command("a\n")
    assert "Exception while sending command." in caplog.text
    caplog.clear()

    keep_traces_of_java_quiet()
    gateway.send_command("a\n")

    assert caplog.text == ""


def test_what_others_log_is_printed(caplog: pytest.LogCaptureFixture) -> None:
    keep_traces_of_java_quiet()

    logging.error("of the user")  # noqa: LOG015 - that it is the root logger is the point

    assert "of the user" in caplog.text
