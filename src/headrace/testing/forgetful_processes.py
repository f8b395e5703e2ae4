"""What every place promises of processes whose instances were told of somebody who is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, Literal

import pytest

from headrace.errors import EventsError
from headrace.events import EventStore, MemoryJournal, Recorded, Refused, decider, event
from headrace.events.processes import CommandRefused, Outcome, ProcessManager, Send, process
from headrace.events.projections.place import Place, live
from headrace.testing.accounts import Account, Open, Opened

NAME: Final = 'Zoë "Z" O\\Neil'
OTHER: Final = "Ada Lovelace"
SILENT: Final = "Grace Hopper"
"""Is not written to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Have a letter written."""

    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A letter was written."""


def letters(ends: Outcome) -> type:
    """Letters, all of which end in the same way."""

    @decider("letter")
    class Letters:
        initial = 0

        @staticmethod
        def decide(_state: int, command: Write) -> list[Written]:
            match ends:
                case Outcome.REFUSED:
                    raise Refused(f"{command.to} wants no letters")
                case Outcome.FAILED:
                    raise EventsError(f"{command.to} has no address")
                case _:
                    return [Written()]

        @staticmethod
        def evolve(state: int, _event: Written) -> int:
            return state + 1

    return Letters


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Nobody is greeted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """Somebody is greeted, and this is what is said."""

    customer: str
    owner: str
    words: tuple[str, ...]


@process("greetings")
class Greetings:
    """Greets new customers by a letter, and never ends."""

    initial = Waiting()

    @staticmethod
    def correlate(event: Recorded) -> str | None:
        """By account."""
        return event.stream if isinstance(event.data, Opened) else None

    @staticmethod
    def evolve(state: Waiting | Greeting, event: object) -> Waiting | Greeting:
        """Keep what is said, and what was refused."""
        match state, event:
            case _, Opened(customer=customer, owner=owner):
                return Greeting(customer=customer, owner=owner, words=(f"Dear {owner}, hello",))
            case Greeting(customer=customer, owner=owner, words=words), CommandRefused(reason=reason):
                return Greeting(customer=customer, owner=owner, words=(*words, reason))
            case _:
                return state

    @staticmethod
    def react(state: Waiting | Greeting, event: object) -> Iterator[Send]:
        """Write a letter."""
        if isinstance(state, Greeting) and isinstance(event, Opened):
            yield Send(stream=f"letter-{state.customer}", command=Write(to=state.owner))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reminded:
    """Somebody is written to; whom, the letter says."""

    customer: str
    refused: str = ""


@process("reminders")
class Reminders:
    """Writes a letter, and keeps nothing but why it was refused."""

    initial = Waiting()

    @staticmethod
    def correlate(event: Recorded) -> str | None:
        """By account."""
        return event.stream if isinstance(event.data, Opened) else None

    @staticmethod
    def evolve(state: Waiting | Reminded, event: object) -> Waiting | Reminded:
        """Keep why it was refused."""
        match state, event:
            case _, Opened(customer=customer):
                return Reminded(customer=customer)
            case Reminded(customer=customer), CommandRefused(reason=reason):
                return Reminded(customer=customer, refused=reason)
            case _:
                return state

    @staticmethod
    def react(_state: Waiting | Reminded, event: object) -> Iterator[Send]:
        """Write a letter."""
        if isinstance(event, Opened) and event.owner != SILENT:
            yield Send(stream=f"letter-{event.customer}", command=Write(to=event.owner))


Sign = Literal["leo", "virgo"]


@event(
    personal={"name", "born", "sign", "friends"},
    subject="guest",
    forgotten={"born": date(1, 1, 1), "friends": {}},
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Invited:
    """Somebody is invited, with friends: how many of each name."""

    guest: str
    name: str
    born: date
    sign: Sign | None
    friends: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A guest is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A guest is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delayed:
    """A guest is late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Who is expected. The types of some fields take no other text."""

    name: str
    born: date
    sign: Sign
    friends: dict[str, int]
    letters: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """Who is there."""

    name: str


@process("guests")
class Guests:
    """Expects guests, and has a letter written when they are late."""

    initial = Waiting()

    @staticmethod
    def correlate(event: Recorded) -> str | None:
        """By guest."""
        return event.stream if isinstance(event.data, Invited | Delayed | Arrived | Left) else None

    @staticmethod
    def evolve(state: Waiting | Expected | Received, event: object) -> Waiting | Expected | Received:
        """Keep all that is told, until the guest is there."""
        match state, event:
            case _, Invited(name=name, born=born, sign=sign, friends=friends) if sign is not None:
                letters = f"letter-{name}"
                return Expected(name=name, born=born, sign=sign, friends=friends, letters=letters)
            case Expected(name=name), Arrived():
                return Received(name=name)
            case _, Left():
                return Waiting()
            case _:
                return state

    @staticmethod
    def react(state: Waiting | Expected | Received, event: object) -> Iterator[Send]:
        """Write to where the guest is written to."""
        if isinstance(state, Expected) and isinstance(event, Delayed):
            yield Send(stream=state.letters, command=Write(to="whom it may concern"))


class ForgetfulProcessContract:
    """Tests for any place; `place` is a fixture that gives an empty one."""

    @pytest.mark.parametrize("ends", [Outcome.DONE, Outcome.REFUSED, Outcome.FAILED])
    @pytest.mark.parametrize("is_sent_before", [True, False])
    def test_a_process_keeps_nothing_of_a_person_once_it_has_heard_of_it(
        self, place: Place, ends: Outcome, *, is_sent_before: bool
    ) -> None:
        store, manager = greeted(place, ends)
        if is_sent_before:
            manager.catch_up()
        else:
            # Both letters are still to be written when the person is forgotten.
            _take_events(manager, place)
        assert place.traces([NAME])

        store.forget("c1")
        manager.catch_up()

        assert place.traces([NAME]) == []
        # What it has of others stays, and so does the instance itself.
        assert place.traces([OTHER])
        instances: dict[str, Any] = dict(manager.instances())
        assert sorted(instances) == ["account-1", "account-2"]
        assert (instances["account-1"].customer, instances["account-1"].owner) == ("c1", "[forgotten]")
        assert instances["account-1"].words[0] == "Dear [forgotten], hello"
        assert instances["account-2"].owner == OTHER
        assert len(manager.failed_commands()) == (2 if ends is Outcome.FAILED else 0)

    def test_a_letter_is_written_once_whenever_its_receiver_is_forgotten(self, place: Place) -> None:
        store, manager = greeted(place, Outcome.DONE)
        _take_events(manager, place)
        store.forget("c1")
        manager.catch_up()
        store.forget("c2")
        manager.catch_up()

        assert [store.load(f"letter-{each}").state for each in ("c1", "c2")] == [1, 1]
        assert place.traces([NAME, OTHER]) == []

    @pytest.mark.parametrize("ends", [Outcome.DONE, Outcome.FAILED])
    def test_beside_its_commands_a_process_keeps_no_text_that_its_state_has_not(
        self, place: Place, ends: Outcome
    ) -> None:
        store = EventStore(MemoryJournal(), [Account, letters(ends)])
        manager = ProcessManager(store, place, Reminders)
        store.execute("account-1", Open(customer="c1", owner=NAME))
        store.execute("account-2", Open(customer="c2", owner=SILENT))
        manager.catch_up()

        assert place.traces([SILENT]) == []
        assert {each.table.rpartition("commands")[1] for each in place.traces([NAME])} == {"commands"}
        store.forget("c1")
        manager.catch_up()
        assert place.traces([NAME]) == []

    @pytest.mark.parametrize("is_sent_before", [True, False])
    def test_a_text_that_a_refusal_brings_back_is_found(self, place: Place, *, is_sent_before: bool) -> None:
        store = EventStore(MemoryJournal(), [Account, letters(Outcome.REFUSED)])
        manager = ProcessManager(store, place, Reminders)
        store.execute("account-1", Open(customer="c1", owner=NAME))
        if is_sent_before:
            manager.catch_up()
        else:
            _take_events(manager, place, "reminders")
        store.forget("c1")
        if not is_sent_before:
            _take_events(manager, place, "reminders")
            assert manager.not_forgotten() == {"account-1": ("c1",)}
        manager.catch_up()

        assert place.traces([NAME]) == []
        assert manager.not_forgotten() == {}
        expected = Reminded(customer="c1", refused="[forgotten] wants no letters")
        assert dict(manager.instances()) == {"account-1": expected}

    def test_an_instance_that_has_ended_without_a_command_leaves_nothing_behind(self, place: Place) -> None:
        store, manager = _invited(place, NAME)
        store.append("guest-1", [Left()])
        manager.catch_up()

        assert dict(manager.instances()) == {}
        assert place.traces([NAME, "g1"]) == []

    def test_what_a_type_does_not_let_go_is_named_and_all_else_is_forgotten(
        self, place: Place, caplog: pytest.LogCaptureFixture
    ) -> None:
        store, manager = _invited(place, "Zoë O'Neil")
        manager.catch_up()
        assert manager.not_forgotten() == {}
        store.forget("g1")
        manager.catch_up()

        assert dict(manager.instances()) == {
            "guest-1": Expected(
                name="[forgotten]",
                born=date(1, 1, 1),
                sign="leo",
                friends={"[forgotten]": 2, "[forgotten] 2": 3},
                letters="letter-[forgotten]",
            )
        }
        assert manager.not_forgotten() == {"guest-1": ("g1",)}
        assert [each.levelname for each in caplog.records if "instance guest-1" in each.message] == [
            "WARNING"
        ]

        store.append("guest-1", [Arrived()])
        manager.catch_up()
        assert dict(manager.instances()) == {"guest-1": Received(name="[forgotten]")}
        assert manager.not_forgotten() == {}
        assert place.traces(["leo"]) == []

    def test_commands_go_on_to_the_same_stream_and_a_name_in_it_is_named(self, place: Place) -> None:
        store, manager = _invited(place, "Anna")
        manager.catch_up()
        store.forget("g1")
        store.append("guest-1", [Delayed()])
        manager.catch_up()

        assert store.load("letter-Anna").state == 1
        (state,) = manager.instances().values()
        assert (state.name, state.letters) == ("[forgotten]", "letter-Anna")
        assert manager.not_forgotten() == {"guest-1": ("g1",)}


def _invited(place: Place, name: str) -> tuple[EventStore, ProcessManager]:
    types = [Invited, Delayed, Arrived, Left]
    store = EventStore(MemoryJournal(), [letters(Outcome.DONE)], types=types)
    manager = ProcessManager(store, place, Guests)
    friends = {"Ada Lovelace": 2, "Grace Hopper": 3}
    invited = Invited(guest="g1", name=name, born=date(1815, 12, 10), sign="leo", friends=friends)
    store.append("guest-1", [invited])
    return store, manager


def greeted(place: Place, ends: Outcome) -> tuple[EventStore, ProcessManager]:
    """A process that is to greet two customers."""
    store = EventStore(MemoryJournal(), [Account, letters(ends)])
    manager = ProcessManager(store, place, Greetings)
    store.execute("account-1", Open(customer="c1", owner=NAME))
    store.execute("account-2", Open(customer="c2", owner=OTHER))
    return store, manager


def _take_events(manager: ProcessManager, place: Place, name: str = "greetings") -> None:
    """The first third of `run_once`: as if the process had died after it."""
    manager._subscription.run_once(live(place, name))  # noqa: SLF001 - see above
