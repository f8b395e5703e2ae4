"""The API of an event store, on one in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pytest

from headrace import events
from headrace.config import Address, ConsoleConfig
from headrace.console.app import create_app
from headrace.console.board import Board
from headrace.console.event_desk import EVENT_COUNT, StoreDesk
from headrace.errors import Refused, StoreUnavailable
from headrace.events import EventStore, MemoryJournal
from headrace.testing.clock import ManualClock
from headrace.testing.waiting import eventually

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from tests.unit.console.conftest import Client, SilentFeed

    from headrace.console.api import Back

ADDRESS = Address("127.0.0.1", 8500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """Add something."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """Something was added."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """What was added."""

    total: int = 0
    status: Literal["empty", "used"] = "empty"


@events.decider("sum")
class Adding:
    """Adds what is above 0."""

    initial = Sum()

    @staticmethod
    def decide(_state: Sum, command: Add) -> list[Added]:
        if command.count <= 0:
            raise Refused("nothing is added")
        return [Added(count=command.count)]

    @staticmethod
    def evolve(state: Sum, event: Added) -> Sum:
        return Sum(total=state.total + event.count, status="used")


@events.decider("sum")
class AddingTwice:
    """Another version."""

    initial = Sum()

    @staticmethod
    def decide(_state: Sum, command: Add) -> list[Added]:
        return [Added(count=command.count)]

    @staticmethod
    def evolve(state: Sum, event: Added) -> Sum:
        return Sum(total=state.total + 2 * event.count, status="used")


@dataclass
class Rebuilt:
    number: int = 2


class Rebuilder:
    """Builds nothing, and says how far it is."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def rebuild(self, name: str, on_progress: Callable[[int], None]) -> Rebuilt:
        self.names.append(name)
        on_progress(1)
        return Rebuilt()


class Asker:
    """Asks as the page does that was opened with the token."""

    def __init__(self, client: Client, holder: dict[str, str]) -> None:
        self.client = client
        self._holder = holder

    def get(self, path: str) -> tuple[int, Any]:
        answer = self.client.get(f"/api/event-store{path}", self._holder)
        return answer.status_code, answer.json()

    def post(self, path: str, body: object) -> tuple[int, Any]:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.client.request("POST", f"/api/event-store{path}", self._holder, content)
        return answer.status_code, answer.json()

    def job(self) -> Any:
        """The job's status once it has ended."""
        return eventually(lambda: (found := self.get("/job")[1])["state"] != "running" and found)


@pytest.fixture
def rebuilder() -> Rebuilder:
    return Rebuilder()


@pytest.fixture
def store() -> EventStore:
    return EventStore(MemoryJournal(), deciders=[Adding])


@pytest.fixture
def desk(store: EventStore, rebuilder: Rebuilder) -> StoreDesk:
    deciders: dict[str, Any] = {"Adding": Adding, "AddingTwice": AddingTwice}
    return StoreDesk(store, deciders, rebuilder=rebuilder, projections=["sums"])


Run = Callable[["Starlette", Address], AbstractContextManager["Client"]]


@pytest.fixture
def new_app(back: Back, silent_feed: SilentFeed) -> Callable[[StoreDesk | None], Starlette]:
    def make(desk: StoreDesk | None) -> Starlette:
        board = Board(ConsoleConfig(listen=ADDRESS), ManualClock(), session="s")
        return create_app(board, silent_feed, ADDRESS, lambda _: None, replace(back, event_desk=desk))

    return make


@pytest.fixture
def asker(
    desk: StoreDesk, new_app: Callable[[StoreDesk | None], Starlette], run: Run, holder: dict[str, str]
) -> Iterator[Asker]:
    with run(new_app(desk), ADDRESS) as client:
        yield Asker(client, holder)


def test_a_console_without_a_store_says_how_to_get_one(
    new_app: Callable[[StoreDesk | None], Starlette], run: Run, holder: dict[str, str]
) -> None:
    with run(new_app(None), ADDRESS) as client:
        asker = Asker(client, holder)
        code, described = asker.get("")
        assert (code, described["is_there"]) == (200, False)
        assert "--events FILE" in described["words"]
        assert asker.get("/streams")[0] == 404
        assert client.get("/event-store").status_code == 200


def test_only_the_holder_of_the_token_sees_events(asker: Asker, store: EventStore) -> None:
    store.execute("sum-1", Add(count=5))
    for path in ("/streams", "/streams/sum-1", "/streams/sum-1/state?version=1", "/job"):
        assert asker.client.get(f"/api/event-store{path}").status_code == 403
    origin = {"Origin": "http://127.0.0.1:8500"}
    answer = asker.client.request("POST", "/api/event-store/streams/sum-1/commands/Add", origin, b"{}")
    assert answer.status_code == 403
    assert asker.client.get("/api/event-store").json()["deciders"][0]["name"] == "Adding"


def test_commands_are_described_decided_and_refused(asker: Asker, store: EventStore) -> None:
    _, described = asker.get("")
    assert [each["name"] for each in described["deciders"]] == ["Adding", "AddingTwice"]
    (command,) = described["deciders"][0]["commands"]
    assert command["fields"][0] == {"name": "count", "kind": "integer", "is_needed": True, "hint": ""}
    code, done = asker.post("/streams/sum-1/commands/Add", {"count": 5})
    assert (code, done["version"], done["events"][0]["data"]) == (200, 1, {"count": 5})
    assert asker.post("/streams/sum-1/commands/Add", {"count": 0}) == (409, {"error": "nothing is added"})
    (recorded,) = store.read_stream("sum-1")
    assert recorded.actor == "console"


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/streams/sum-1/commands/Add", {"count": "many"}, "count"),
        ("/streams/sum-1/commands/Add", {}, "count"),
        ("/streams/sum-1/commands/Add", b"[]", "object"),
        ("/streams/sum-1/commands/Add", b"{", "not JSON"),
        ("/streams/sum-1/commands/Add", b" " * 70_000, "bytes"),
        ("/streams/sum-1/commands/Take", {}, "there is no command 'Take'"),
        ("/streams/other-1/commands/Add", {"count": 1}, "no decider"),
        ("/streams/sum/commands/Add", {"count": 1}, "not the name of a stream"),
        ("/compare", {"left": "Adding", "right": "Other"}, "there is no decider 'Other'"),
        ("/compare", {"left": "Adding"}, "right"),
        ("/replay", {"projection": "other"}, "there is no read model 'other'"),
        ("/replay", {"projection": 5}, "projection"),
    ],
)
def test_what_can_not_be_is_refused_in_a_sentence(
    asker: Asker, store: EventStore, path: str, body: object, words: str
) -> None:
    code, answer = asker.post(path, body)
    assert code == 409
    assert words in answer["error"]
    assert store.journal.head() == 0


def test_a_stream_has_its_events_and_its_state_at_any_version(asker: Asker, store: EventStore) -> None:
    for count in (5, 7):
        store.execute("sum-1", Add(count=count))
    assert asker.get("/streams?category=sum")[1] == {
        "streams": [{"stream": "sum-1", "version": 2}],
        "has_more": False,
    }
    _, stream = asker.get("/streams/sum-1")
    assert [each["data"]["count"] for each in stream["events"]] == [5, 7]
    _, first = asker.get("/streams/sum-1/state?version=1")
    assert {each["name"]: (each["value"], each["version"]) for each in first["fields"]} == {
        "total": (5, 1),
        "status": ("used", 1),
    }
    _, before = asker.get("/streams/sum-1/state?version=0")
    assert {each["name"]: (each["value"], each["version"]) for each in before["fields"]} == {
        "total": (0, None),
        "status": ("empty", None),
    }
    assert asker.get("/streams/sum-1/state?version=-1")[0] == 404
    assert asker.get("/streams/sum-1/state")[0] == 404


def test_of_a_long_stream_the_newest_events_are_shown(asker: Asker, store: EventStore) -> None:
    store.append("sum-1", [Added(count=1)] * (EVENT_COUNT + 5))
    _, stream = asker.get("/streams/sum-1")
    assert (stream["version"], stream["first_version"], len(stream["events"])) == (205, 6, EVENT_COUNT)


def test_two_versions_of_the_code_are_compared_on_the_same_history(asker: Asker, store: EventStore) -> None:
    store.execute("sum-1", Add(count=5))
    assert asker.post("/compare", {"left": "Adding", "right": "AddingTwice"})[0] == 200
    job = asker.job()
    assert (job["state"], job["done"], job["total"]) == ("done", 1, 1)
    assert job["result"]["differences"] == [{"stream": "sum-1", "field": "total", "left": 5, "right": 10}]


def test_a_read_model_is_built_anew(asker: Asker, rebuilder: Rebuilder) -> None:
    assert asker.post("/replay", {"projection": "sums"})[0] == 200
    job = asker.job()
    assert (job["kind"], job["state"]) == ("replay", "done")
    assert "generation 2" in job["result"]["words"]
    assert rebuilder.names == ["sums"]


def test_a_store_that_does_not_answer_is_said_so(
    asker: Asker, store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("the database does not answer")

    monkeypatch.setattr(store.journal, "streams", away)
    assert asker.get("/streams") == (503, {"error": "the database does not answer"})
