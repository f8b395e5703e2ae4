"""Deciders: what a class must have to be one, and what is known of it."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pytest

from headrace import events
from headrace.errors import EventsError
from headrace.events.decider import category_of
from headrace.testing.accounts import Account, Deposited, Open, Opened, State, Withdrawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One more."""


def test_events_commands_and_states_are_read_from_hints() -> None:
    account = events.as_decider(Account)
    assert account.events == (Opened, Deposited, Withdrawn)
    assert account.commands[0] is Open
    assert account.states == (State,)


def test_functions_need_no_staticmethod() -> None:
    class Counter:
        initial = 0
        events = (Counted,)

        def decide(state: int, command: object) -> list[Counted]:  # type: ignore[misc]  # noqa: N805
            return [Counted()]

        def evolve(state: int, event: Counted) -> int:  # type: ignore[misc]  # noqa: N805
            return state + 1

    counter = events.decider("counter")(Counter)

    assert list(counter.decide(0, "count")) == [Counted()]
    assert events.fold(counter, [Counted(), Counted()]) == 2
    assert events.fold(counter, [Counted()], 40) == 41


def test_a_fold_may_begin_with_none() -> None:
    class Last:
        initial = "nothing"
        events = (Counted,)

        @staticmethod
        def decide(state: Any, command: object) -> list[Counted]:
            return []

        @staticmethod
        def evolve(state: Any, event: Counted) -> Any:
            return state

    assert events.fold(events.decider("last")(Last), [Counted()], None) is None


def test_a_decider_pickles_by_reference() -> None:
    restored = pickle.loads(pickle.dumps(Account))  # noqa: S301

    assert restored == Account
    assert restored.evolve is Account.evolve


@pytest.mark.parametrize("category", ["", "bank-account"])
def test_a_category_has_no_dash(category: str) -> None:
    with pytest.raises(EventsError, match="category"):
        events.decider(category)


@pytest.mark.parametrize("stream", ["account-\0", "account-a\x1eb", "acc\x1eount-1"])
def test_a_stream_has_no_character_that_a_journal_can_not_keep(stream: str) -> None:
    with pytest.raises(EventsError, match="control character"):
        category_of(stream)


@pytest.mark.parametrize("stream", ["", "account", "-1", "account-", "a-" + "x" * 500])
def test_a_stream_is_named_by_category_and_id(stream: str) -> None:
    with pytest.raises(EventsError, match="not the name of a stream"):
        category_of(stream)


def test_an_id_may_have_dashes() -> None:
    assert category_of("account-4-2") == "account"
    assert events.as_decider(Account).stream("4-2") == "account-4-2"


def test_a_class_that_lacks_something_is_refused() -> None:
    with pytest.raises(EventsError, match="is no decider"):
        events.as_decider(Counted)
    with pytest.raises(EventsError, match="no initial state"):
        events.decider("a")(type("A", (), {}))
    with pytest.raises(EventsError, match=r"decide\(state, command\)"):
        events.decider("a")(type("A", (), {"initial": 0, "decide": lambda self, state, command: []}))
    both = {"initial": 0, "decide": lambda state, command: [], "evolve": lambda state, event: state}
    with pytest.raises(EventsError, match="which events"):
        events.decider("a")(type("A", (), both))
