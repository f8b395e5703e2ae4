"""The account that is measured: events and state are Structs, the fastest that can be folded.

The same account of frozen dataclasses is folded beside it. Both are decoded equally fast; Python needs
several times as long to make a frozen dataclass as a Struct, and `evolve` makes a state for every event.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from headrace import events


class Deposited(msgspec.Struct, frozen=True, gc=False):
    """Money came."""

    amount: int


class Deposit(msgspec.Struct, frozen=True):
    """Pay in."""

    amount: int


class State(msgspec.Struct, frozen=True, gc=False):
    """What is there."""

    balance: int = 0


@events.decider("account")
class Account:
    """Adds up."""

    initial = State()

    @staticmethod
    def decide(state: State, command: Deposit) -> list[Deposited]:  # noqa: ARG004
        """Which events a command makes."""
        return [Deposited(command.amount)]

    @staticmethod
    def evolve(state: State, event: Deposited) -> State:
        """What an event makes of the state."""
        return State(state.balance + event.amount)


@events.event("Deposited")
@dataclass(frozen=True, slots=True)
class PlainDeposited:
    """Money came, as a dataclass."""

    amount: int


@dataclass(frozen=True, slots=True)
class PlainState:
    """What is there, as a dataclass."""

    balance: int = 0


@events.decider("account")
class PlainAccount:
    """Adds up, with dataclasses."""

    initial = PlainState()

    @staticmethod
    def decide(state: PlainState, command: Deposit) -> list[PlainDeposited]:  # noqa: ARG004
        """Which events a command makes."""
        return [PlainDeposited(command.amount)]

    @staticmethod
    def evolve(state: PlainState, event: PlainDeposited) -> PlainState:
        """What an event makes of the state."""
        return PlainState(state.balance + event.amount)
