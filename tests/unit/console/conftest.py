"""Records, and a console without sockets."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import httpx
import pytest
from anyio.from_thread import start_blocking_portal

from headrace.config import Address
from headrace.console.api import Back
from headrace.console.decode import AlertRecord
from headrace.console.security import Session
from headrace.errors import BrokerUnavailable, ConfigError
from headrace.testing.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from anyio.from_thread import BlockingPortal
    from starlette.applications import Starlette

    from headrace.console.actions import Actions
    from headrace.console.catalog import KafkaCatalog
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

    def request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> httpx.Response:
        return self._portal.call(
            partial(self._client.request, method, path, headers=headers, content=content)
        )

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self.request("GET", path, headers)


class FakeCatalog:
    """A broker with one topic of three alerts, of which one came twice."""

    def __init__(self) -> None:
        self.is_closed = False
        self.reading, self.may_read = threading.Event(), threading.Event()
        self.may_read.set()

    def topics(self) -> list[dict[str, Any]]:
        return [{"name": "orders", "partition_count": 1, "record_count": 3, "per_s": None}]

    def topic(self, name: str) -> dict[str, Any]:
        if name == "nowhere":
            raise ConfigError("there is no topic nowhere")
        return {"name": name, "partitions": [{"partition": 0, "first": 0, "end": 3}]}

    def groups(self) -> list[dict[str, Any]]:
        raise BrokerUnavailable("the broker does not answer")

    def messages(self, name: str, count: int) -> list[dict[str, Any]]:
        return [{"value": f"{count} at most of {name}"}]

    def read_all(self, _topic: str, take: Callable[[Any], None]) -> bool:
        self.reading.set()
        assert self.may_read.wait(30)
        for value in (b'{"alert_id": "a"}', b'{"alert_id": "b"}', b'{"alert_id": "a"}', b"?"):
            take(FakeMessage(value))
        return True

    def close(self) -> None:
        self.is_closed = True


@dataclass
class FakeMessage:
    """What is read."""

    content: bytes

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return self.content


@dataclass
class FakeActions:
    """Remembers what was asked for."""

    done: list[tuple[str, Any]] = field(default_factory=list)
    recall_count: int = 0

    def recall(self, _catalog: object) -> dict[str, float]:
        """Like a broker that is not there when it is first asked."""
        self.recall_count += 1
        return {"rate": 300.0} if self.is_recalled else {}

    @property
    def is_recalled(self) -> bool:
        return self.recall_count > 1

    def kill(self, pipeline: str) -> int:
        if pipeline != "alerts":
            raise ConfigError(f"there is no pipeline {pipeline!r} here")
        self.done.append(("kill", pipeline))
        return 4711

    def move(self, name: str, value: float) -> None:
        self.done.append((name, value))

    def press(self, name: str, now_ms: int) -> None:
        if name != "mistake":
            raise ConfigError(f"there is no button {name!r}")
        self.done.append((name, now_ms))


TOKEN = "a-token-for-tests"


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
def actions() -> FakeActions:
    return FakeActions()


@pytest.fixture
def catalog() -> FakeCatalog:
    return FakeCatalog()


@pytest.fixture
def back(actions: FakeActions, catalog: FakeCatalog) -> Back:
    """What the pages need beside the board, without a broker or a process."""
    return Back(
        session=Session(Address("127.0.0.1", 8500), TOKEN),
        actions=cast("Actions", actions),
        catalog=cast("KafkaCatalog", catalog),
        alerts_topic="fraud-alerts",
    )


@pytest.fixture
def holder() -> dict[str, str]:
    """The headers of a page that was opened with the token."""
    return {"Cookie": f"other=1; headrace-8500={TOKEN}", "Origin": "http://127.0.0.1:8500"}


@pytest.fixture
def silent_feed() -> SilentFeed:
    return SilentFeed()
