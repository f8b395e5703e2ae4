"""What every place promises of processes whose instances were told of somebody who is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from headrace.errors import EventsError
from headrace.events import EventStore, MemoryJournal, Recorded, Refused, decider
from headrace.events.processes import CommandRefused, Outcome, ProcessManager, Send, process
from headrace.events.projections.place import Place, live
from headrace.testing.accounts import Account, Open, Opened

NAME: Final = 'Zoë "Z" O\\Neil'
OTHER: Final = "Ada Lovelace"


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


def greeted(place: Place, ends: Outcome) -> tuple[EventStore, ProcessManager]:
    """A process that is to greet two customers."""
    store = EventStore(MemoryJournal(), [Account, letters(ends)])
    manager = ProcessManager(store, place, Greetings)
    store.execute("account-1", Open(customer="c1", owner=NAME))
    store.execute("account-2", Open(customer="c2", owner=OTHER))
    return store, manager


def _take_events(manager: ProcessManager, place: Place) -> None:
    """The first third of `run_once`: as if the process had died after it."""
    manager._subscription.run_once(live(place, "greetings"))  # noqa: SLF001 - see above
