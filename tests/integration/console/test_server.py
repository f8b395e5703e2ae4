"""The console as a server: its socket, its signals, its way to stop."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headrace.config import Address, ConsoleConfig
from headrace.console.decode import AlertRecord
from headrace.console.observations import RecordsRead
from headrace.console.server import ConsoleServer, run_console
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tests.integration.console.conftest import RunningConsole

    from headrace.console.observations import Observation

    Console = Callable[[ConsoleConfig], AbstractContextManager[RunningConsole]]

PROGRAM = """
from headrace.config import Address, ConsoleConfig
from headrace.console.server import run_console
config = ConsoleConfig(listen=Address("127.0.0.1", 0), bootstrap="127.0.0.1:1")
run_console(config, lambda url: print(url, flush=True))
print("returned", flush=True)
"""
STOP_WITHIN_S = 60.0


@contextmanager
def console_process() -> Iterator[tuple[subprocess.Popen[str], str]]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url, _, token = process.stdout.readline().strip().partition("/?token=")
            assert token
            yield process, url
        finally:
            process.kill()


def test_port_zero_picks_a_free_port_and_tells_it(console: Console, nowhere: ConsoleConfig) -> None:
    with console(nowhere) as running:
        assert running.address.port > 0
        assert httpx.get(running.url + "/").status_code == 200


def test_a_port_in_use_is_said_in_a_sentence_that_helps() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = ConsoleConfig(listen=Address("127.0.0.1", taken.getsockname()[1]))
        with pytest.raises(ConfigError, match="another program uses that port; stop it, or choose another"):
            run_console(config, lambda _: None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_with_pages_open(number: signal.Signals) -> None:
    with console_process() as (process, url), ExitStack() as pages:
        for _ in range(3):
            stream = pages.enter_context(httpx.stream("GET", url + "/events"))
            next(stream.iter_lines())
        process.send_signal(number)
        output, errors = process.communicate(timeout=STOP_WITHIN_S)
        assert (process.returncode, output, errors) == (0, "returned\n", "")


def test_a_page_that_stands_still_does_not_hold_up_the_end() -> None:
    with console_process() as (process, url), socket.create_connection(_address(url)) as page:
        page.sendall(_request(url))
        assert page.recv(15) == b"HTTP/1.1 200 OK"
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=STOP_WITHIN_S)
        assert (process.returncode, output) == (0, "returned\n")


def test_a_console_can_be_asked_to_stop_before_it_has_started(nowhere: ConsoleConfig) -> None:
    server = ConsoleServer(nowhere)
    server.stop()
    server.run(lambda _: None)


def test_two_consoles_in_one_process_do_not_disturb_each_other(
    console: Console, nowhere: ConsoleConfig
) -> None:
    with console(nowhere) as first:
        with console(nowhere) as second:
            assert first.stats()["session"] != second.stats()["session"]
        with httpx.stream("GET", first.url + "/events") as stream:
            assert next(stream.iter_lines()) == ": headrace"


def test_a_broker_that_is_not_there_is_reported_and_the_page_still_served(
    console: Console, nowhere: ConsoleConfig, eventually: Callable[..., Any]
) -> None:
    with console(nowhere) as running:
        eventually(lambda: running.get("/health")["status"] == "unreachable")
        assert "broker 127.0.0.1:1 not reachable for" in running.get("/health")["words"]
        assert httpx.get(running.url + "/health").status_code == 503


class FloodFeed:
    """Posts alerts as fast as they are taken, until told to stop."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, post: Callable[[Observation], None]) -> None:
        self._thread = threading.Thread(target=self._flood, args=(post,))
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread:
            self._thread.join()

    def _flood(self, post: Callable[[Observation], None]) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            value = json.dumps({"alert_id": str(number), "filling": "x" * 200}).encode()
            record = AlertRecord(
                partition=0, offset=number, key=None, value=value, timestamp_ms=0, received_ms=0, live=True
            )
            post(RecordsRead(records=(record,)))


def test_a_page_that_never_reads_is_cut_off_while_others_go_on(
    nowhere: ConsoleConfig, eventually: Callable[..., Any]
) -> None:
    server, found, ready = ConsoleServer(nowhere, feed=FloodFeed()), list[Address](), threading.Event()

    def on_ready(address: Address) -> None:
        found.append(address)
        ready.set()

    thread = threading.Thread(target=server.run, args=(on_ready,))
    thread.start()
    try:
        assert ready.wait(STOP_WITHIN_S)
        url = f"http://{found[0]}"
        with socket.create_connection(_address(url)) as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.sendall(_request(url))
            eventually(lambda: httpx.get(url + "/api/stats").json()["viewers"]["cut_off_count"] == 1)
            assert httpx.get(url + "/api/stats").json()["viewers"]["count"] == 0
            server.stop()
            thread.join(STOP_WITHIN_S)
            assert not thread.is_alive()
    finally:
        server.stop()
        thread.join(STOP_WITHIN_S)


def _address(url: str) -> tuple[str, int]:
    address = Address.parse(url.removeprefix("http://"))
    return address.host, address.port


def _request(url: str) -> bytes:
    return f"GET /events HTTP/1.1\r\nHost: {url.removeprefix('http://')}\r\n\r\n".encode()
