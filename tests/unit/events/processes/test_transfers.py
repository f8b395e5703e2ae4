"""A transfer between two accounts as a process: commands once, compensation, time-outs, restarts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ConfigError, ProjectionStopped
from headrace.events import Decider, EventStore, MemoryJournal, Recorded, Refused, decider
from headrace.events.processes import (
    CancelTimer,
    CommandRefused,
    Input,
    Process,
    ProcessManager,
    Send,
    SetTimer,
    TimedOut,
    process,
    step,
)
from headrace.events.processes.step import command_id
from headrace.events.projections import MemoryPlace, Projection
from headrace.events.projections.memory_place import MemoryBatch
from headrace.testing.clock import ManualClock


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposit:
    cents: int
    transfer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    cents: int
    transfer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposited:
    cents: int
    transfer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    cents: int
    transfer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    cents: int = 0
    is_open: bool = True


@decider("account")
class Account:
    initial = Balance()

    @staticmethod
    def decide(state: Balance, command: Deposit | Withdraw | Close) -> list[Deposited | Withdrawn | Closed]:
        if not state.is_open:
            raise Refused("the account is closed")
        match command:
            case Deposit(cents=cents, transfer=transfer):
                return [Deposited(cents=cents, transfer=transfer)]
            case Withdraw(cents=cents, transfer=transfer):
                if cents > state.cents:
                    raise Refused("insufficient funds")
                return [Withdrawn(cents=cents, transfer=transfer)]
            case Close():
                return [Closed()]

    @staticmethod
    def evolve(state: Balance, event: Deposited | Withdrawn | Closed) -> Balance:
        match event:
            case Deposited(cents=cents):
                return Balance(cents=state.cents + cents, is_open=state.is_open)
            case Withdrawn(cents=cents):
                return Balance(cents=state.cents - cents, is_open=state.is_open)
            case Closed():
                return Balance(cents=state.cents, is_open=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    source: str
    target: str
    cents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    source: str
    target: str
    cents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    outcome: str


@decider("transfer")
class Transfer:
    initial = ""

    @staticmethod
    def decide(_state: str, command: Begin | End) -> list[Begun | Ended]:
        if isinstance(command, Begin):
            return [Begun(source=command.source, target=command.target, cents=command.cents)]
        return [Ended(outcome=command.outcome)]

    @staticmethod
    def evolve(_state: str, event: Begun | Ended) -> str:
        return event.outcome if isinstance(event, Ended) else "begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotBegun:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    source: str
    target: str
    cents: int
    id: str
    step: str = "withdraw"


@process("transfers")
class Transfers:
    initial = NotBegun()

    @staticmethod
    def correlate(event: Recorded) -> str | None:
        if event.stream.startswith("transfer-"):
            return event.stream
        return getattr(event.data, "transfer", "") or None

    @staticmethod
    def evolve(  # noqa: PLR0911 - a table of what follows on what
        state: NotBegun | Moving, event: object
    ) -> NotBegun | Moving:
        match state, event:
            case NotBegun(), Begun(source=source, target=target, cents=cents):
                return Moving(source=source, target=target, cents=cents, id=f"transfer-{source}-{target}")
            case Moving(step="withdraw"), Withdrawn():
                return moved(state, "deposit")
            case Moving(step="deposit"), CommandRefused():
                return moved(state, "give back")
            case Moving(step="withdraw"), CommandRefused() | TimedOut():
                return moved(state, "refused")
            case Moving(step="deposit"), Deposited():
                return moved(state, "done")
            case Moving(step="give back"), Deposited():
                return moved(state, "given back")
            case Moving(), Ended():
                return NotBegun()
            case _:
                return state

    @staticmethod
    def react(state: NotBegun | Moving, event: object) -> Iterator[Send | SetTimer | CancelTimer]:
        if isinstance(state, NotBegun) or isinstance(event, TimedOut):
            return
        match state.step, event:
            case "withdraw", Begun():
                yield SetTimer(name="late", after=timedelta(hours=1))
                yield Send(stream=state.source, command=Withdraw(cents=state.cents, transfer=state.id))
            case "deposit", Withdrawn():
                yield Send(stream=state.target, command=Deposit(cents=state.cents, transfer=state.id))
            case "give back", CommandRefused():
                yield Send(stream=state.source, command=Deposit(cents=state.cents, transfer=state.id))
            case ("done" | "refused" | "given back") as outcome, Deposited() | CommandRefused():
                yield CancelTimer(name="late")
                yield Send(stream=state.id, command=End(outcome=outcome))


def moved(state: Moving, step: str) -> Moving:
    return Moving(source=state.source, target=state.target, cents=state.cents, id=state.id, step=step)


def bank() -> EventStore:
    store = EventStore(MemoryJournal(), deciders=cast("list[Decider]", [Account, Transfer]))
    store.execute("account-a", Deposit(cents=100))
    store.execute("account-b", Deposit(cents=10))
    return store


def cents(store: EventStore, account: str) -> int:
    return int(store.load(f"account-{account}").state.cents)


def begin(store: EventStore, source: str, target: str, amount: int) -> str:
    name = f"transfer-account-{source}-account-{target}"
    store.execute(name, Begin(source=f"account-{source}", target=f"account-{target}", cents=amount))
    return name


def test_money_moves_once_and_the_instance_is_forgotten() -> None:
    store = bank()
    manager = ProcessManager(store, MemoryPlace(), Transfers)
    name = begin(store, "a", "b", 30)
    manager.catch_up()
    assert (cents(store, "a"), cents(store, "b")) == (70, 40)
    assert store.load(name).state == "done"
    assert manager.instances() == {}
    assert manager.position == store.journal.head()
    moved_events = [event for event in store.read_all() if getattr(event.data, "transfer", "")]
    # What led to each is known: the withdrawal came of the beginning, the deposit of the withdrawal.
    assert moved_events[1].causation_id == f"{moved_events[0].id}/0"


def test_a_withdrawal_that_is_refused_ends_the_transfer() -> None:
    store = bank()
    manager = ProcessManager(store, MemoryPlace(), Transfers)
    name = begin(store, "a", "b", 1_000)
    manager.catch_up()
    assert store.load(name).state == "refused"
    assert (cents(store, "a"), cents(store, "b")) == (100, 10)


def test_a_deposit_that_is_refused_is_compensated() -> None:
    store = bank()
    store.execute("account-b", Close())
    manager = ProcessManager(store, MemoryPlace(), Transfers)
    name = begin(store, "a", "b", 30)
    manager.catch_up()
    assert store.load(name).state == "given back"
    assert (cents(store, "a"), cents(store, "b")) == (100, 10)


def test_a_timer_fires_once_when_its_time_has_come_and_not_when_it_was_cancelled() -> None:
    told: list[object] = []

    @process("reminders")
    class Reminders:
        initial = NotBegun()
        states = (NotBegun, Begun)

        @staticmethod
        def correlate(event: Recorded) -> str | None:
            return event.stream if event.stream.startswith("transfer-") else None

        @staticmethod
        def evolve(state: object, event: object) -> object:
            return event if isinstance(event, Begun) else state

        @staticmethod
        def react(_state: object, event: object) -> list[SetTimer | CancelTimer]:
            told.append(event)
            if isinstance(event, Begun):
                return [
                    SetTimer(name="a", after=timedelta(hours=1)),
                    SetTimer(name="b", after=timedelta(hours=2)),
                ]
            return [CancelTimer(name="b")] if isinstance(event, TimedOut) else []

    store = bank()
    clock = ManualClock(int(datetime.now(UTC).timestamp() * 1000))
    manager = ProcessManager(store, MemoryPlace(), Reminders, clock=clock)
    begin(store, "a", "b", 1)
    manager.catch_up()
    assert [type(each) for each in told] == [Begun]
    clock.advance(90 * 60 * 1000)
    manager.catch_up()
    assert told[1:] == [TimedOut(name="a")]
    clock.advance(24 * 3600 * 1000)
    manager.catch_up()
    assert told[1:] == [TimedOut(name="a")]


class DyingPlace(MemoryPlace):
    """A place whose process dies around the end of some batches."""

    def __init__(self, deaths: list[str]) -> None:
        super().__init__()
        self.deaths = deaths

    @contextmanager
    def begin(self, projection: Projection, number: int, *, alone: bool) -> Iterator[MemoryBatch]:
        death = self.deaths.pop() if self.deaths else "never"
        with super().begin(projection, number, alone=alone) as batch:
            yield batch
            if death == "before":
                raise KeyboardInterrupt
        if death == "after":
            raise KeyboardInterrupt


@settings(max_examples=100, deadline=None)
@given(
    transfers=st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("cd"), st.integers(1, 60)), max_size=5, unique=True
    ),
    closed=st.sampled_from(["", "c", "d"]),
    deaths=st.lists(st.sampled_from(["before", "after", "never", "never"]), max_size=60),
)
def test_no_money_is_lost_or_made_wherever_the_process_dies(
    transfers: list[tuple[str, str, int]], closed: str, deaths: list[str]
) -> None:
    store = bank()
    if closed:
        store.execute(f"account-{closed}", Close())
    place = DyingPlace(deaths)
    names = []
    for number, (source, target, amount) in enumerate(transfers):
        command = Begin(source=f"account-{source}", target=f"account-{target}", cents=amount)
        names.append(f"transfer-account-{source}-account-{target}")
        if number == names.index(names[-1]):
            store.execute(names[-1], command)
        while True:
            try:
                ProcessManager(store, place, Transfers).catch_up()
                break
            except KeyboardInterrupt:
                continue
    assert sum(cents(store, account) for account in "abcd") == 110
    assert all(cents(store, account) >= 0 for account in "abcd")
    for name in set(names):
        assert store.load(name).state in {"done", "refused", "given back"}
        ended = [event for event in store.read_stream(name) if isinstance(event.data, Ended)]
        assert len(ended) == 1
    place.deaths.clear()
    assert ProcessManager(store, place, Transfers).instances() == {}


def test_a_step_gives_the_same_ids_each_time_and_others_for_other_inputs() -> None:
    begun = Begun(source="account-a", target="account-b", cents=5)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    first, again = (step(Transfers, NotBegun(), Input(id="1", data=begun, at=at)) for _ in range(2))
    other = step(Transfers, NotBegun(), Input(id="2", data=begun, at=at))
    assert first == again
    assert first.commands[0].id != other.commands[0].id
    assert first.timers == {"late": at + timedelta(hours=1)}


def test_code_that_fails_stops_the_process_where_it_is() -> None:
    @process("broken")
    class Broken:
        initial = NotBegun()

        @staticmethod
        def correlate(event: Recorded) -> str | None:
            return event.stream

        @staticmethod
        def evolve(state: NotBegun, _event: object) -> NotBegun:
            return state

        @staticmethod
        def react(_state: NotBegun, _event: object) -> list[Send]:
            raise ZeroDivisionError("by zero")

    store, place = bank(), MemoryPlace()
    manager = ProcessManager(store, place, Broken)
    with pytest.raises(ProjectionStopped, match="broken stands still at position 1"):
        manager.catch_up()
    assert manager.position == 0


def sending(command: Send) -> Process | type:
    """A process that sends one command at the first event of all."""

    @process("sending")
    class Sending:
        initial = NotBegun()

        @staticmethod
        def correlate(event: Recorded) -> str | None:
            return "only" if event.position == 1 else None

        @staticmethod
        def evolve(state: NotBegun, _event: object) -> NotBegun:
            return state

        @staticmethod
        def react(_state: NotBegun, _event: object) -> list[Send]:
            return [command]

    return Sending


def test_a_command_to_what_is_no_stream_stops_the_process_before_it_is_kept() -> None:
    manager = ProcessManager(bank(), MemoryPlace(), sending(Send(stream="nobody", command=Close())))
    with pytest.raises(ProjectionStopped, match="'nobody' is not the name of a stream"):
        manager.catch_up()


def test_a_command_that_can_be_neither_executed_nor_refused_is_kept_with_its_cause() -> None:
    store = bank()
    first = next(iter(store.read_all(limit=1)))
    taken = command_id("sending", f"{first.id}/0", 0)
    store.execute("account-z", Deposit(cents=1), command_id=taken)
    manager = ProcessManager(store, MemoryPlace(), sending(Send(stream="account-a", command=Close())))
    manager.catch_up()
    (failed,) = manager.failed_commands()
    assert (failed.id, failed.stream, failed.attempt_count) == (taken, "account-a", 5)
    assert "was used for another command" in failed.reason
    assert cents(store, "a") == 100


def test_what_can_not_be_a_process_is_refused() -> None:
    with pytest.raises(ConfigError, match="can't be called 'Transfers!'"):
        process("Transfers!")
    with pytest.raises(ConfigError, match="has no initial state"):
        process("a")(type("A", (), {}))
    with pytest.raises(ConfigError, match="needs a function evolve of 2 arguments"):
        process("a")(type("A", (), {"initial": 1}))
    with pytest.raises(ConfigError, match="1 to 200 letters"):
        SetTimer(name="", after=timedelta(1))
