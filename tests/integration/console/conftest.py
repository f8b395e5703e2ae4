"""A console in a thread, real clients, and a way to read a stream of events."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headrace.config import Address, ConsoleConfig
from headrace.console.server import ConsoleServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

WITHIN_S = 30.0


class RunningConsole:
    """A console that serves in a thread of the test's process."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.url = f"http://{address}"

    def get(self, path: str) -> Any:
        """The JSON at a path, whatever the status."""
        return httpx.get(self.url + path).json()

    def stats(self) -> Any:
        return self.get("/api/stats")

    def alerts(self) -> list[Any]:
        """The retained rows, oldest first."""
        return list(reversed(self.get("/api/alerts")["alerts"]))

    def alert_ids(self) -> list[str]:
        return [row["alert_id"] for row in self.alerts() if row["kind"] == "alert"]


@contextmanager
def running_console(config: ConsoleConfig) -> Iterator[RunningConsole]:
    server, ready, found = ConsoleServer(config), threading.Event(), list[Address]()

    def on_ready(address: Address) -> None:
        found.append(address)
        ready.set()

    thread = threading.Thread(target=server.run, args=(on_ready,))
    thread.start()
    try:
        assert ready.wait(WITHIN_S), "the console did not start"
        yield RunningConsole(found[0])
    finally:
        server.stop()
        thread.join(WITHIN_S)
    assert not thread.is_alive(), "the console did not stop"


def poll_until(probe: Callable[[], Any], within_s: float = WITHIN_S) -> Any:
    """Ask until the answer is true; fail with the last one after a while."""
    deadline = time.monotonic() + within_s
    while not (answer := probe()):
        assert time.monotonic() < deadline, f"still {answer!r} after {within_s} s"
        time.sleep(0.02)
    return answer


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Ask until the answer is true."""
    return poll_until


@pytest.fixture
def console() -> Callable[[ConsoleConfig], AbstractContextManager[RunningConsole]]:
    """Run a console for a while."""
    return running_console


@pytest.fixture
def nowhere() -> ConsoleConfig:
    """A console whose broker does not exist."""
    return ConsoleConfig(listen=Address("127.0.0.1", 0), bootstrap="127.0.0.1:1")
