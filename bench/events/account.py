"""The account that is measured: events and state are Structs, the fastest that can be folded."""

from __future__ import annotations

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
