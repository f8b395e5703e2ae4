"""A small bank account, for tests of event stores."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace import events
from headrace.events import Refused


@events.event("AccountOpened", tags=("customer",), personal={"owner"}, subject="customer")
@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An account was opened for a customer."""

    customer: str
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposited:
    """Money came."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """Money went."""

    amount: int


Event = Opened | Deposited | Withdrawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Open an account."""

    customer: str
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposit:
    """Pay in. Nothing at all is taken, and makes no event."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    """Pay out."""

    amount: int


Command = Open | Deposit | Withdraw


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What is known of an account."""

    owner: str | None = None
    balance: int = 0


@events.decider("account")
class Account:
    """An account that is opened once and never overdrawn."""

    initial = State()

    @staticmethod
    def decide(state: State, command: Command) -> list[Event]:
        """Which events a command makes."""
        match command:
            case Open():
                if state.owner is not None:
                    raise Refused("the account is open already")
                return [Opened(customer=command.customer, owner=command.owner)]
            case Deposit():
                return [Deposited(amount=command.amount)] if command.amount else []
            case Withdraw():
                if command.amount > state.balance:
                    raise Refused("insufficient funds")
                return [Withdrawn(amount=command.amount)]

    @staticmethod
    def evolve(state: State, event: Event) -> State:
        """What an event makes of an account."""
        match event:
            case Opened():
                return replace(state, owner=event.owner)
            case Deposited():
                return replace(state, balance=state.balance + event.amount)
            case Withdrawn():
                return replace(state, balance=state.balance - event.amount)
