"""Old versions of events read as what they are written as today."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import EventsError, UnreadableEvents
from headrace.events import (
    EventStore,
    MemoryJournal,
    Write,
    Written,
    added,
    decider,
    event,
    into,
    renamed,
    upcast,
)
from headrace.events.records import Append, NewEvent, StreamWrite
from headrace.events.upcasting import Upcasts
from headrace.testing.journals import new


@event(
    "Opened",
    version=3,
    upcasts=[upcast("Opened", 1, renamed(name="owner")), upcast("Opened", 2, added(currency="EUR"))],
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Version 1 called the owner name, version 2 had no currency."""

    owner: str
    currency: str


@event("Paid", version=1, upcasts=[upcast("Deposit", 1, into("Paid", 1))])
@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    """Was called Deposit once."""

    amount: int


def split(data: dict[str, Any]) -> list[Written]:
    """What was one event is two since, or one where nothing was paid."""
    opened = Written("Opened", 2, {"owner": data["owner"]})
    return [opened, Written("Deposit", 1, {"amount": data["paid"]})] if data["paid"] else [opened]


SPLIT = upcast("OpenedWithDeposit", 1, split, leads_to=[("Opened", 2), ("Deposit", 1)])


@decider("account")
class Account:
    """Remembers all that it was told."""

    initial: tuple[object, ...] = ()
    upcasts = (SPLIT,)

    @staticmethod
    def decide(state: tuple[object, ...], command: object) -> list[Any]:
        return []

    @staticmethod
    def evolve(state: tuple[object, ...], event: Opened | Paid) -> tuple[object, ...]:
        return (*state, event)


def written(type_: str, version: int, data: bytes) -> NewEvent:
    """An event as an old program has written it."""
    plain = new(type_, data)
    return NewEvent(id=plain.id, type=type_, schema_version=version, data=data)


def store_with(*old: NewEvent) -> EventStore:
    """A store whose journal an old program has filled."""
    journal = MemoryJournal()
    journal.append(Append(writes=(StreamWrite(stream="account-1", events=old),)))
    return EventStore(journal, [Account])


def test_old_versions_read_as_the_current_one() -> None:
    store = store_with(
        written("Opened", 1, b'{"name":"Ada"}'),
        written("Opened", 2, b'{"owner":"Bob"}'),
        written("Opened", 3, b'{"owner":"Eve","currency":"USD"}'),
        written("Deposit", 1, b'{"amount":5}'),
    )

    store.check_readable()
    assert store.load("account-1").state == (
        Opened(owner="Ada", currency="EUR"),
        Opened(owner="Bob", currency="EUR"),
        Opened(owner="Eve", currency="USD"),
        Paid(amount=5),
    )


def test_a_split_event_keeps_its_place_and_is_read_in_parts() -> None:
    store = store_with(
        written("OpenedWithDeposit", 1, b'{"owner":"Ada","paid":5}'),
        written("OpenedWithDeposit", 1, b'{"owner":"Bob","paid":0}'),
    )

    read = store.read_all()
    assert [(each.position, each.part, each.data) for each in read] == [
        (1, 0, Opened(owner="Ada", currency="EUR")),
        (1, 1, Paid(amount=5)),
        (2, 0, Opened(owner="Bob", currency="EUR")),
    ]
    loaded = store.load("account-1")
    assert (loaded.version, len(loaded.state)) == (2, 3)


def test_what_nothing_reads_is_named_at_start() -> None:
    store = store_with(written("Opened", 9, b"{}"), written("Closed", 1, b"{}"), written("Opened", 1, b"{}"))

    with pytest.raises(UnreadableEvents, match=r"version 1 of Closed, version 9 of Opened \(current is 3\)"):
        store.check_readable()
    with pytest.raises(UnreadableEvents, match="Opened"):
        store.load("account-1")


def test_a_way_that_ends_nowhere_is_found_without_reading() -> None:
    ways = Upcasts({"New": 2}, [upcast("Old", 1, into("New", 1))])

    assert ways.missing([("Old", 1), ("New", 2)]) == [("New", 1)]


def test_data_that_does_not_fit_its_class_is_told() -> None:
    store = store_with(written("Paid", 1, b'{"amount":"much"}'))

    with pytest.raises(UnreadableEvents, match=r"Paid of version 1 does not fit .*amount"):
        store.load("account-1")


def test_upcasts_that_go_in_circles_are_told() -> None:
    ways = Upcasts({}, [upcast("A", 1, into("B", 1)), upcast("B", 1, into("A", 1))])

    assert ways.missing([("A", 1)]) == []
    with pytest.raises(EventsError, match="don't come to an end"):
        ways.apply(Written("A", 1, {}))


def test_an_upcast_gives_only_what_it_says() -> None:
    ways = Upcasts({"C": 1}, [upcast("A", 1, lambda data: [Written("C", 1, data)], leads_to=[("B", 1)])])

    with pytest.raises(EventsError, match="name it in leads_to"):
        ways.apply(Written("A", 1, {}))


def test_one_version_has_one_upcast_and_the_current_one_none() -> None:
    step = upcast("A", 1, added(x=1))
    with pytest.raises(EventsError, match="two upcasts"):
        Upcasts({"A": 2}, [step, upcast("A", 1, added(x=2))])
    with pytest.raises(EventsError, match="is current"):
        Upcasts({"A": 1}, [step])


@given(st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.text(max_size=5)), max_size=20))
def test_upcasting_changes_nothing_but_the_form(history: list[tuple[int, str]]) -> None:
    """The same history, written by programs of three ages, folds to the same state."""
    forms = {
        1: lambda name: new("Opened", _json({"name": name})),
        2: lambda name: new("Opened", _json({"owner": name})),
        3: lambda name: new("Opened", _json({"owner": name, "currency": "EUR"})),
    }
    old = [written("Opened", version, forms[version](name).data) for version, name in history]
    today = [Opened(owner=name, currency="EUR") for _, name in history]
    fresh = EventStore(MemoryJournal(), [Account])
    fresh.append_many([Write("account-1", today)])

    assert store_with(*old).load("account-1") == fresh.load("account-1")


def _json(data: dict[str, str]) -> bytes:
    return json.dumps(data).encode()
