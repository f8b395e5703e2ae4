"""What the bank's books say of an event: by how much it moves a balance, and whether it looks like theft.

Pure functions, which the read models and the tests share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from bank_accounts import Account, AccountState, money
from bank_events import (
    FeeCharged,
    MoneyDeposited,
    MoneyWithdrawn,
    TransferReceived,
    TransferReturned,
    TransferSent,
)

LARGE_CENTS: Final = 5_000_00
"""A withdrawal of so much is looked at."""
RAPID_COUNT: Final = 4
"""And so are this many withdrawals"""
RAPID_WITHIN: Final = timedelta(minutes=10)
"""within this time."""

Booking = MoneyDeposited | MoneyWithdrawn | FeeCharged | TransferSent | TransferReceived | TransferReturned
BOOKINGS: Final = (
    *(MoneyDeposited, MoneyWithdrawn, FeeCharged, TransferSent, TransferReceived, TransferReturned),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """Why somebody should have a look at an account."""

    rule: str
    words: str


def signed_cents(event: object) -> int:
    """By how much an event moves the balance of its account."""
    match event:
        case MoneyDeposited(cents=cents) | TransferReceived(cents=cents) | TransferReturned(cents=cents):
            return cents
        case MoneyWithdrawn(cents=cents) | FeeCharged(cents=cents) | TransferSent(cents=cents):
            return -cents
        case _:
            return 0


def suspicion_of(withdrawal: MoneyWithdrawn, earlier: Sequence[datetime]) -> Suspicion | None:
    """What is suspicious of a withdrawal, given when the last ones before it were."""
    if withdrawal.cents >= LARGE_CENTS:
        return Suspicion(rule="large", words=f"{money(withdrawal.cents)} at once")
    close = [at for at in earlier if withdrawal.at - RAPID_WITHIN < at <= withdrawal.at]
    if len(close) + 1 >= RAPID_COUNT:
        minutes = RAPID_WITHIN // timedelta(minutes=1)
        return Suspicion(rule="rapid", words=f"{len(close) + 1} withdrawals in {minutes} minutes")
    return None


def balance_on(history: Iterable[object], moment: datetime) -> int:
    """What an account had at a moment, by the time at which its events were booked.

    This is what the customer asks for. What the bank *knew* at that moment is another question, which
    `store.as_of` answers: an event may have been recorded later than it was booked.
    """
    state: AccountState = Account.initial
    for event in history:
        if event.at < moment:  # type: ignore[attr-defined]  # each event of an account has it
            state = Account.evolve(state, event)  # type: ignore[arg-type]  # the same
    return state.balance_cents
