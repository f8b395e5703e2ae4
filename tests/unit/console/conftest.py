"""Records, and a console without sockets."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from anyio.from_thread import start_blocking_portal

from headrace.console.decode import AlertRecord
from headrace.testing.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from anyio.from_thread import BlockingPortal
    from starlette.applications import Starlette

    from headrace.config import Address
    from headrace.console.observations import Observation


@dataclass
class Recorder:
    """Makes records with rising offsets."""

    clock: ManualClock
    offset: int = field(default=0)

    def raw(self, value: bytes | None, *, live: bool = True) -> AlertRecord:
        self.offset += 1
        return AlertRecord(
            partition=0,
            offset=self.offset,
            key=None,
            value=value,
            timestamp_ms=self.clock.now_ms(),
            received_ms=self.clock.now_ms(),
            live=live,
        )

    def alert(self, alert_id: str | None = None, *, live: bool = True, **fields: Any) -> AlertRecord:
        named = {} if alert_id is None else {"alert_id": alert_id}
        return self.raw(json.dumps({**named, **fields}).encode(), live=live)


class SilentFeed:
    """A feed that says only what the test makes it say."""

    def __init__(self) -> None:
        self.post: Callable[[Observation], None] | None = None
        self.stop_count = 0

    def start(self, post: Callable[[Observation], None]) -> None:
        self.post = post

    def stop(self) -> None:
        self.stop_count += 1


class Client:
    """Calls a running application without a socket."""

    def __init__(self, portal: BlockingPortal, app: Starlette, address: Address) -> None:
        self._portal = portal
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url=f"http://{address}")

    def request(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self._portal.call(partial(self._client.request, method, path, headers=headers))

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self.request("GET", path, headers)


@contextmanager
def running(app: Starlette, address: Address) -> Iterator[Client]:
    """Start the application, and stop it at the end."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(app.router.lifespan_context(app)),
    ):
        yield Client(portal, app, address)


@pytest.fixture
def run() -> Callable[[Starlette, Address], AbstractContextManager[Client]]:
    return running


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def recorder(clock: ManualClock) -> Recorder:
    return Recorder(clock)


@pytest.fixture(scope="session")
def new_recorder() -> Callable[[], Recorder]:
    """For tests that need a fresh one for each generated case."""
    return lambda: Recorder(ManualClock())


@pytest.fixture
def silent_feed() -> SilentFeed:
    return SilentFeed()
