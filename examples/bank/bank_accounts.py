"""Accounts: what may be asked of one, when it is refused, and what becomes of it.

Both functions of the decider are pure. `decide` has no clock: whoever asks says when. The same `evolve`
serves commands, the past, the read models, and the pipeline on Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from bank_events import (
    AccountClosed,
    AccountOpened,
    FeeCharged,
    MoneyDeposited,
    MoneyWithdrawn,
    TransferReceived,
    TransferReturned,
    TransferSent,
)
from headrace import events
from headrace.events import Refused

CENTS_MAX: Final = 1_000_000_00
"""The most that is moved at once."""
FREE_WITHDRAWAL_COUNT: Final = 4
"""So many withdrawals of a month cost nothing."""
FEE_CENTS: Final = 50

AccountEvent = (
    AccountOpened
    | MoneyDeposited
    | MoneyWithdrawn
    | FeeCharged
    | TransferSent
    | TransferReceived
    | TransferReturned
    | AccountClosed
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Open an account for a customer."""

    customer: str
    owner: str
    address: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposit:
    """Put money in."""

    cents: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    """Take money out."""

    cents: int
    at: datetime
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTransfer:
    """Give money to a transfer, which takes it to another account."""

    transfer: str
    to: str
    cents: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveTransfer:
    """Take the money of a transfer."""

    transfer: str
    sender: str
    cents: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnTransfer:
    """Take back what was sent, because the other account could not take it."""

    transfer: str
    cents: int
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """Close an empty account."""

    at: datetime


AccountCommand = Open | Deposit | Withdraw | SendTransfer | ReceiveTransfer | ReturnTransfer | Close


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountState:
    """An account, as it is after some of its events."""

    status: Literal["none", "open", "closed"] = "none"
    customer: str = ""
    owner: str | None = None
    balance_cents: int = 0
    month: str = ""
    """The month of the last withdrawal."""
    withdrawal_count: int = 0
    """Withdrawals in that month."""


def _withdrawn(state: AccountState, command: Withdraw) -> list[AccountEvent]:
    month = month_of(command.at)
    count = state.withdrawal_count if month == state.month else 0
    fee_cents = FEE_CENTS if count >= FREE_WITHDRAWAL_COUNT else 0
    _require_funds(state, command.cents + fee_cents)
    withdrawn = MoneyWithdrawn(cents=command.cents, at=command.at, place=command.place)
    if not fee_cents:
        return [withdrawn]
    reason = f"more than {FREE_WITHDRAWAL_COUNT} withdrawals in {month}"
    return [withdrawn, FeeCharged(cents=fee_cents, at=command.at, reason=reason)]


def _sent(state: AccountState, command: SendTransfer) -> list[AccountEvent]:
    _require_funds(state, command.cents)
    return [TransferSent(transfer=command.transfer, to=command.to, cents=command.cents, at=command.at)]


def _closed(state: AccountState, command: Close) -> list[AccountEvent]:
    if state.balance_cents:
        raise Refused(f"the account still has {money(state.balance_cents)}: withdraw it first")
    return [AccountClosed(at=command.at)]


def _credited(command: Deposit | ReceiveTransfer | ReturnTransfer) -> AccountEvent:
    match command:
        case Deposit(cents=cents, at=at):
            return MoneyDeposited(cents=cents, at=at)
        case ReceiveTransfer(transfer=transfer, sender=sender, cents=cents, at=at):
            return TransferReceived(transfer=transfer, sender=sender, cents=cents, at=at)
        case ReturnTransfer(transfer=transfer, cents=cents, at=at, reason=reason):
            return TransferReturned(transfer=transfer, cents=cents, at=at, reason=reason)


@events.decider("account")
class Account:
    """An account of a customer: `account-<number>`."""

    initial = AccountState()

    @staticmethod
    def decide(state: AccountState, command: AccountCommand) -> list[AccountEvent]:
        """What happens when this is asked for, or a refusal."""
        _check(state, command)
        match command:
            case Open(customer=customer, owner=owner, address=address, at=at):
                return [AccountOpened(customer=customer, owner=owner, address=address, at=at)]
            case Withdraw():
                return _withdrawn(state, command)
            case SendTransfer():
                return _sent(state, command)
            case Close():
                return _closed(state, command)
            case _:
                return [_credited(command)]

    @staticmethod
    def evolve(state: AccountState, event: AccountEvent) -> AccountState:
        """The account after one more event."""
        match event:
            case AccountOpened(customer=customer, owner=owner):
                return replace(state, status="open", customer=customer, owner=owner)
            case MoneyWithdrawn(cents=cents, at=at):
                month = month_of(at)
                count = state.withdrawal_count if month == state.month else 0
                balance_cents = state.balance_cents - cents
                return replace(state, balance_cents=balance_cents, month=month, withdrawal_count=count + 1)
            case FeeCharged(cents=cents) | TransferSent(cents=cents):
                return replace(state, balance_cents=state.balance_cents - cents)
            case MoneyDeposited(cents=cents) | TransferReceived(cents=cents) | TransferReturned(cents=cents):
                return replace(state, balance_cents=state.balance_cents + cents)
            case AccountClosed():
                return replace(state, status="closed")


def _check(state: AccountState, command: AccountCommand) -> None:
    """What holds for all commands: the account is there, and sums are sums."""
    if isinstance(command, Open):
        if state.status != "none":
            raise Refused("there is an account of that number already")
        return
    if state.status == "none":
        raise Refused("there is no such account")
    # What was sent comes back also to an account that was closed meanwhile: it must not be lost.
    if state.status == "closed" and not isinstance(command, ReturnTransfer):
        raise Refused("the account is closed")
    cents = getattr(command, "cents", 1)
    if not 0 < cents <= CENTS_MAX:
        raise Refused(f"{money(cents)} can't be moved: it must be above 0, and at most {money(CENTS_MAX)}")


def _require_funds(state: AccountState, cents: int) -> None:
    if state.balance_cents < cents:
        raise Refused(f"insufficient funds: the account has {money(state.balance_cents)}, not {money(cents)}")


def month_of(at: datetime) -> str:
    """The month in which something was booked, such as 2026-03."""
    return f"{at:%Y-%m}"


def money(cents: int) -> str:
    """A sum as people write it."""
    return f"{'-' if cents < 0 else ''}{abs(cents) // 100:,}.{abs(cents) % 100:02}"
