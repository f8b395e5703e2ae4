"""Accounts, as an application has them: what the benchmarks of the projection fold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from headrace.events import Decider, decider


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An account was opened."""

    owner: str
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposited:
    """Money came."""

    cents: int
    reference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """Money went."""

    cents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """What an account holds."""

    owner: str = ""
    cents: int = 0
    count: int = 0


@decider("account")
class _Account:
    initial = Balance()

    @staticmethod
    def decide(_state: Balance, _command: object) -> list[Opened | Deposited | Withdrawn]:
        return []

    @staticmethod
    def evolve(state: Balance, event: Opened | Deposited | Withdrawn) -> Balance:
        if type(event) is Deposited:
            return Balance(owner=state.owner, cents=state.cents + event.cents, count=state.count + 1)
        if type(event) is Withdrawn:
            return Balance(owner=state.owner, cents=state.cents - event.cents, count=state.count + 1)
        if type(event) is Opened:
            return Balance(owner=event.owner, cents=0, count=1)
        return state


Account = cast("Decider", _Account)
"""To a type checker, a decorated class is still a class."""
