"""The event store over a journal in memory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread
from uuid import uuid4

import pytest

from headrace.errors import (
    CommandIdReused,
    ConditionConflict,
    EventsError,
    Refused,
    StoreUnavailable,
    VersionConflict,
)
from headrace.events import NONE, Appended, Condition, EventStore, MemoryJournal, Retries, Write
from headrace.events.records import Append
from headrace.testing.accounts import Account, Deposit, Deposited, Open, Opened, State, Withdraw, Withdrawn
from headrace.testing.clock import ManualClock

ACCOUNT = "account-1"


@pytest.fixture
def store() -> EventStore:
    return EventStore(MemoryJournal(), [Account])


def test_a_command_becomes_events_and_state(store: EventStore) -> None:
    store.execute(ACCOUNT, Open(customer="c1", owner="Ada"))
    executed = store.execute(ACCOUNT, Deposit(amount=10))

    assert executed.events == (Deposited(amount=10),)
    assert (executed.version, executed.position, executed.is_repeat) == (2, 2, False)
    loaded = store.load(ACCOUNT)
    assert (loaded.state, loaded.version) == (State(owner="Ada", balance=10), 2)


def test_a_refused_command_appends_nothing_and_says_why(store: EventStore) -> None:
    with pytest.raises(Refused, match="insufficient funds"):
        store.execute(ACCOUNT, Withdraw(amount=1))

    assert store.read_all() == []


def test_a_refused_command_may_be_sent_again_under_its_id(store: EventStore) -> None:
    with pytest.raises(Refused):
        store.execute(ACCOUNT, Withdraw(amount=1), command_id="w")
    store.execute(ACCOUNT, Deposit(amount=1))

    assert store.execute(ACCOUNT, Withdraw(amount=1), command_id="w").events == (Withdrawn(amount=1),)


def test_a_command_that_was_taken_gives_its_first_result_again(store: EventStore) -> None:
    store.execute(ACCOUNT, Deposit(amount=1))
    first = store.execute(ACCOUNT, Withdraw(amount=1), command_id="w")
    store.execute(ACCOUNT, Deposit(amount=0), command_id="nothing")

    # What it has made of the state would refuse it now.
    again = store.execute(ACCOUNT, Withdraw(amount=1), command_id="w")

    assert again.is_repeat
    assert (again.events, again.version, again.position) == (first.events, first.version, first.position)
    assert store.execute(ACCOUNT, Withdraw(amount=1), command_id="w", expected=1).is_repeat
    assert len(store.read_all()) == 2


def test_a_command_that_made_no_event_is_remembered(store: EventStore) -> None:
    first = store.execute(ACCOUNT, Deposit(amount=0), command_id="nothing")
    store.execute(ACCOUNT, Deposit(amount=5))
    again = store.execute(ACCOUNT, Deposit(amount=0), command_id="nothing")

    assert (first.events, again.events, again.is_repeat, again.version) == ((), (), True, 0)


def test_another_command_under_the_same_id_is_an_error(store: EventStore) -> None:
    store.execute(ACCOUNT, Deposit(amount=1), command_id="d")

    with pytest.raises(CommandIdReused):
        store.execute(ACCOUNT, Deposit(amount=2), command_id="d")
    with pytest.raises(CommandIdReused):
        store.execute("account-2", Deposit(amount=1), command_id="d")
    with pytest.raises(CommandIdReused):
        store.append(ACCOUNT, [Deposited(amount=1)], command_id="d")


def test_an_append_may_have_a_command_id_too(store: EventStore) -> None:
    first = store.append(ACCOUNT, [Deposited(amount=1)], command_id="a")
    again = store.append(ACCOUNT, [Deposited(amount=1)], command_id="a")

    assert again.is_repeat
    assert again.position == first.position == store.journal.head()


def test_a_conflict_carries_the_newer_events(store: EventStore) -> None:
    store.append(ACCOUNT, [Deposited(amount=1), Deposited(amount=2), Deposited(amount=3)])

    with pytest.raises(VersionConflict) as conflict:
        store.append(ACCOUNT, [Deposited(amount=4)], expected=1)
    assert [event.data.amount for event in conflict.value.newer] == [2, 3]
    with pytest.raises(VersionConflict) as conflict:
        store.execute(ACCOUNT, Deposit(amount=4), expected=NONE)
    assert [event.data.amount for event in conflict.value.newer] == [1, 2, 3]


def test_a_condition_keeps_a_rule_across_streams(store: EventStore) -> None:
    """One account for each customer: decided on what is known of the customer in all streams."""
    known = store.journal.head()
    only_one = Condition(after=known, types=frozenset({"AccountOpened"}), tags=frozenset({"customer:c1"}))
    store.append("account-1", [Opened(customer="c1", owner="Ada")], condition=only_one)

    with pytest.raises(ConditionConflict) as conflict:
        store.append("account-2", [Opened(customer="c1", owner="Ada")], condition=only_one)

    assert [event.stream for event in conflict.value.newer] == ["account-1"]
    store.append("account-3", [Opened(customer="c2", owner="Bob")], condition=[only_one_of("c2")])


def only_one_of(customer: str) -> Condition:
    """That a customer has no account yet."""
    return Condition(after=0, types=frozenset({"AccountOpened"}), tags=frozenset({f"customer:{customer}"}))


def test_several_streams_are_appended_together(store: EventStore) -> None:
    store.append("account-1", [Deposited(amount=5)])
    appended = store.append_many(
        [Write("account-1", [Withdrawn(amount=5)], 1), Write("account-2", [Deposited(amount=5)], NONE)]
    )

    assert appended.versions == {"account-1": 2, "account-2": 1}
    assert [event.stream for event in store.read_all(1)] == ["account-1", "account-2"]


def test_what_is_told_of_a_change_is_read_with_it(store: EventStore) -> None:
    store.execute(ACCOUNT, Deposit(amount=1), command_id="d", actor="teller", correlation_id="visit-7")
    store.execute(ACCOUNT, Deposit(amount=1))

    told, untold = store.read_stream(ACCOUNT)
    assert (told.actor, told.correlation_id, told.causation_id) == ("teller", "visit-7", "d")
    assert (untold.actor, untold.correlation_id, untold.causation_id) == (None, None, None)


def test_the_past_is_folded_as_of_a_version_a_position_or_a_time() -> None:
    clock = ManualClock()
    store = EventStore(MemoryJournal(clock), [Account])
    start = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    for day in range(4):
        store.execute(ACCOUNT, Deposit(amount=10**day))
        store.execute("account-2", Deposit(amount=7))
        clock.advance(86_400_000)

    balances = [store.as_of(ACCOUNT, version=version).state.balance for version in range(6)]
    assert balances == [0, 1, 11, 111, 1111, 1111]
    assert store.as_of(ACCOUNT, position=4).state.balance == 11
    assert store.as_of(ACCOUNT, position=5).state.balance == 111
    assert store.as_of(ACCOUNT, time=start + timedelta(days=2, hours=-1)).state.balance == 11
    assert store.as_of(ACCOUNT, time=start + timedelta(days=2)).state.balance == 111
    assert store.as_of(ACCOUNT, time=start - timedelta(seconds=1)) == store.as_of(ACCOUNT, version=0)


def test_the_past_needs_one_point_in_it(store: EventStore) -> None:
    with pytest.raises(EventsError, match="one of time, version and position"):
        store.as_of(ACCOUNT)
    with pytest.raises(EventsError, match="one of time, version and position"):
        store.as_of(ACCOUNT, version=1, position=1)
    with pytest.raises(EventsError, match="time zone"):
        store.as_of(ACCOUNT, time=datetime(2026, 3, 1))  # noqa: DTZ001


def test_each_field_is_explained_by_the_events_that_made_it(store: EventStore) -> None:
    store.execute(ACCOUNT, Open(customer="c1", owner="Ada"))
    store.execute(ACCOUNT, Deposit(amount=10))
    store.execute(ACCOUNT, Withdraw(amount=3))

    explained = store.explain(ACCOUNT)

    assert explained.state == store.load(ACCOUNT).state
    told = [(each.before, each.after, each.event.version) for each in explained.changes["balance"]]
    assert told == [(0, 10, 2), (10, 7, 3)]
    owner = explained.cause("owner")
    assert owner is not None
    assert owner.version == 1
    assert store.explain("account-9").cause("owner") is None


def test_a_stream_is_read_in_pages(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.events.reading.READ_EVENTS_MAX", 3)
    monkeypatch.setattr("headrace.events.loading.READ_EVENTS_MAX", 3)
    store.append(ACCOUNT, [Deposited(amount=1) for _ in range(9)])

    assert [event.version for event in store.read_stream(ACCOUNT)] == list(range(1, 10))
    assert [event.version for event in store.read_stream(ACCOUNT, after_version=2, limit=5)] == [
        3,
        4,
        5,
        6,
        7,
    ]
    assert len(store.read_all(4, limit=100)) == 3
    assert store.load(ACCOUNT).state.balance == 9
    assert store.as_of(ACCOUNT, version=5).state.balance == 5


def test_events_are_read_by_class(store: EventStore) -> None:
    store.execute(ACCOUNT, Open(customer="c1", owner="Ada"))
    store.execute(ACCOUNT, Deposit(amount=10))

    assert [event.type for event in store.read_all(types=[Opened])] == ["AccountOpened"]
    assert [event.position for event in store.read_all(types=["Deposited", Opened])] == [1, 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """No event of the store."""


def test_what_the_store_does_not_know_is_refused(store: EventStore) -> None:
    with pytest.raises(EventsError, match="no decider has: there are account"):
        store.load("order-1")
    with pytest.raises(EventsError, match="Foreign is no event"):
        store.append(ACCOUNT, [Foreign()])
    with pytest.raises(EventsError, match="can't be expected"):
        store.append(ACCOUNT, [Deposited(amount=1)], expected=-2)
    with pytest.raises(EventsError, match="command id"):
        store.append(ACCOUNT, [Deposited(amount=1)], command_id="")


def test_writers_that_meet_decide_again(store: EventStore) -> None:
    """Eight withdraw what three can have: as each decides on what is there, the account is not overdrawn."""
    store.execute(ACCOUNT, Deposit(amount=10))
    barrier, results = Barrier(8), list[str]()

    def withdraw() -> None:
        # A store of its own, as in a process of its own.
        other = EventStore(store.journal, [Account])
        barrier.wait()
        try:
            other.execute(ACCOUNT, Withdraw(amount=3), retries=Retries(attempts=100))
        except Refused:
            results.append("refused")
        else:
            results.append("taken")

    threads = [Thread(target=withdraw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(results) == ["refused"] * 5 + ["taken"] * 3
    assert store.load(ACCOUNT).state.balance == 1


class Unreliable(MemoryJournal):
    """Loses its connection: before an append, or after it."""

    def __init__(self, *losses: str) -> None:
        super().__init__()
        self.losses = list(losses)

    def append(self, append: Append) -> Appended:
        loss = self.losses.pop(0) if self.losses else None
        if loss == "before":
            raise StoreUnavailable("the connection was lost")
        appended = super().append(append)
        if loss == "after":
            raise StoreUnavailable("the connection was lost")
        return appended


def test_a_command_with_an_id_survives_lost_connections() -> None:
    store = EventStore(Unreliable("before", "after", "before"), [Account])

    executed = store.execute(ACCOUNT, Deposit(amount=1), command_id=uuid4())

    assert executed.is_repeat
    assert executed.events == (Deposited(amount=1),)
    assert store.load(ACCOUNT).state.balance == 1


def test_a_command_without_an_id_is_not_sent_twice() -> None:
    store = EventStore(Unreliable("after"), [Account])

    with pytest.raises(StoreUnavailable):
        store.execute(ACCOUNT, Deposit(amount=1))

    assert store.load(ACCOUNT).state.balance == 1


def test_attempts_end() -> None:
    store = EventStore(Unreliable(*["before"] * 5), [Account])

    with pytest.raises(StoreUnavailable):
        store.execute(ACCOUNT, Deposit(amount=1), command_id="d", retries=Retries(attempts=3, pause_ms=0))

    assert store.journal.head() == 0
