"""Personal fields are sealed, and a person can be forgotten."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import pytest

from headrace.errors import EventsError, SubjectForgotten, UnreadableEvents
from headrace.events import (
    FORGOTTEN,
    EventStore,
    MemoryJournal,
    SnapshotPolicy,
    SubjectWasForgotten,
    decider,
    event,
    renamed,
    upcast,
)
from headrace.events.codec import sealed_fields
from headrace.events.records import Append, StreamWrite
from headrace.testing.accounts import Account, Deposited, Open, Opened
from headrace.testing.journals import new

ACCOUNT = "account-1"
NAME = "Ada Lovelace"


@pytest.fixture
def store() -> EventStore:
    store = EventStore(MemoryJournal(), [Account], snapshots=SnapshotPolicy(every_events=1))
    store.execute(ACCOUNT, Open(customer="c1", owner=NAME), command_id="open")
    return store


def test_personal_fields_are_not_in_the_log_and_are_read_all_the_same(store: EventStore) -> None:
    (stored,) = store.journal.read_all()

    assert NAME.encode() not in stored.data
    assert sealed_fields(stored.data) == ["owner"]
    assert stored.subjects == ("c1",)
    assert store.load(ACCOUNT).state.owner == NAME
    assert store.read_all()[0].data == Opened(customer="c1", owner=NAME)


def test_equal_values_are_sealed_differently(store: EventStore) -> None:
    store.append("account-2", [Opened(customer="c1", owner=NAME)])

    first, second = store.journal.read_all()
    assert first.data != second.data


def test_a_forgotten_person_reads_as_a_placeholder_everywhere(store: EventStore) -> None:
    store.load(ACCOUNT)
    assert not store.verify_forgotten("c1", [NAME]).is_forgotten

    receipt = store.forget("c1", actor="clerk")

    assert (receipt.event_count, receipt.streams, receipt.snapshots_dropped) == (1, (ACCOUNT,), 1)
    assert store.load(ACCOUNT).state.owner == FORGOTTEN
    assert store.read_all()[0].data == Opened(customer="c1", owner=FORGOTTEN)
    assert store.as_of(ACCOUNT, version=1).state.owner == FORGOTTEN
    marker = store.read_all(receipt.position - 1)[0]
    assert (marker.data, marker.actor) == (SubjectWasForgotten(subject="c1"), "clerk")
    assert marker.tags == ("subject:c1",)
    check = store.verify_forgotten("c1", [NAME])
    assert (check.is_forgotten, check.event_count) == (True, 1)


def test_a_person_is_forgotten_once(store: EventStore) -> None:
    first = store.forget("c1")
    again = store.forget("c1")

    assert again == replace(first, is_repeat=True)
    with pytest.raises(EventsError, match="nobody"):
        store.forget("")


@pytest.mark.parametrize("subject", ["", "a\0b", "a\x1eb"])
def test_a_name_that_can_not_be_stored_is_refused_wherever_events_are_kept(
    store: EventStore, subject: str
) -> None:
    with pytest.raises(EventsError, match=r"names nobody|control character"):
        store.forget(subject)


def test_nothing_personal_is_kept_of_who_was_forgotten(store: EventStore) -> None:
    store.forget("c1")

    with pytest.raises(SubjectForgotten, match="c1"):
        store.append("account-2", [Opened(customer="c1", owner=NAME)])
    store.append(ACCOUNT, [Deposited(amount=1)])
    assert store.load(ACCOUNT).state.balance == 1


def test_others_are_not_forgotten(store: EventStore) -> None:
    store.execute("account-2", Open(customer="c2", owner="Bob"))

    store.forget("c1")

    assert store.load("account-2").state.owner == "Bob"


def test_a_text_in_clear_is_found(store: EventStore) -> None:
    store.append("account-2", [Opened(customer=f"{NAME} & sons", owner="x")])
    store.forget("c1")

    check = store.verify_forgotten("c1", [NAME])
    assert not check.is_forgotten
    assert check.readable_positions == (2,)


def test_a_sealed_field_can_not_be_moved_to_another_type(store: EventStore) -> None:
    (stored,) = store.journal.read_all()
    moved = new("AccountRenamed", stored.data, subjects=("c1",))
    store.journal.append(Append(writes=(StreamWrite(stream="account-2", events=(moved,)),)))
    other = EventStore(store.journal, [Account], upcasts=[upcast("AccountRenamed", 1, dict)])

    with pytest.raises(UnreadableEvents, match="does not open"):
        other.load("account-2")


@event(
    "Moved",
    version=2,
    personal={"giver": "giver_id", "address": "taker_id"},
    forgotten={"address": ("", "")},
    upcasts=[upcast("Moved", 1, renamed(place="address"))],
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Tells of two persons."""

    giver_id: str
    taker_id: str
    giver: str | None
    address: tuple[str, str]


@decider("house")
class House:
    """Its last move."""

    initial: Moved | None = None
    states = (Moved,)

    @staticmethod
    def decide(state: Moved | None, command: Moved) -> list[Moved]:
        return [command]

    @staticmethod
    def evolve(state: Moved | None, event: Moved) -> Moved:
        return event


MOVED = Moved(giver_id="g", taker_id="t", giver="Gil", address=("High Street", "7"))


def test_one_event_may_tell_of_two_persons() -> None:
    store = EventStore(MemoryJournal(), [House])
    store.execute("house-1", MOVED)
    assert store.load("house-1").state == MOVED

    store.forget("t")
    assert store.load("house-1").state == replace(MOVED, address=("", ""))
    store.forget("g")
    assert store.load("house-1").state == replace(MOVED, address=("", ""), giver=None)


def test_old_versions_with_sealed_fields_are_upcast() -> None:
    store = EventStore(MemoryJournal(), [House])
    store.execute("house-1", MOVED)
    (stored,) = store.journal.read_all()
    # Fields are bound to their name: one that was sealed as `place` stays so, whatever it is called later.
    journal = MemoryJournal()
    fields = msgspec.json.decode(stored.data)
    fields["place"] = {"$sealed": "AAAA", "subject": "t"}
    del fields["address"]
    old = new("Moved", msgspec.json.encode(fields))._replace(schema_version=1, subjects=("t", "g"))
    journal.append(Append(writes=(StreamWrite(stream="house-1", events=(old,)),)))

    read = EventStore(journal, [House]).load("house-1").state
    assert read == replace(MOVED, address=("", ""), giver=None)


def test_none_is_not_sealed() -> None:
    store = EventStore(MemoryJournal(), [House])
    store.execute("house-1", replace(MOVED, giver=None))

    assert sealed_fields(store.journal.read_all()[0].data) == ["address"]


@event(
    "Greeted", tags=lambda greeted: [greeted.by.replace("Zoe", "Zoë")], personal={"name"}, subject="person"
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Greeted:
    """Has a tag of its own making."""

    person: str
    name: str
    by: str = "Ann"


@pytest.mark.parametrize("place", ["tag", "actor", "stream", "data"])
def test_a_text_is_found_wherever_it_stands(place: str) -> None:
    store = EventStore(MemoryJournal(), types=[Greeted])
    greeted = Greeted(person="p" if place != "data" else "p Zoë", name="Zoë")
    store.append(
        "house-Zoë" if place == "stream" else "house-1",
        [replace(greeted, by="Zoe") if place == "tag" else greeted],
        actor="Zoë" if place == "actor" else "Ann",
    )
    store.append("house-2", [Greeted(person="q", name="Zoë")])
    store.forget("p")

    check = store.verify_forgotten("p", ["Zoë"])

    assert (check.readable_positions, check.is_forgotten) == ((1,), False)
