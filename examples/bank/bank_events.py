"""What has happened at the bank: facts, which are kept for ever and never changed.

Money is in cents, and each fact has the moment at which it was booked. Names and addresses are personal: they
are kept encrypted, with a key for each customer, so that a customer can be forgotten.

Facts that were written years ago look different. Each type has a version, and a function makes of an old one
what it would be today:

    AccountOpened 1     `name` is `owner` today, there was no address, and a first deposit was part of it:
                        it becomes two facts
    MoneyWithdrawn 1    had an amount in euros, as a fraction
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headrace import events
from headrace.events import Written, upcast


def opened_with_deposit(data: dict[str, Any]) -> list[Written]:
    """Version 1 of AccountOpened: the owner was called name, and the first deposit was part of it."""
    opened = {"customer": data["customer"], "owner": data["name"], "at": data["at"]}
    deposit_cents = round(data["first_deposit"] * 100)
    if not deposit_cents:
        return [Written("AccountOpened", 2, opened)]
    deposited = {"cents": deposit_cents, "at": data["at"]}
    return [Written("AccountOpened", 2, opened), Written("MoneyDeposited", 1, deposited)]


def withdrawn_in_euros(data: dict[str, Any]) -> dict[str, Any]:
    """Version 1 of MoneyWithdrawn: an amount in euros, as a fraction."""
    return {"cents": round(data["amount"] * 100), "at": data["at"]}


@events.event(
    "AccountOpened",
    version=2,
    tags=["customer"],
    personal={"owner", "address"},
    subject="customer",
    upcasts=[
        upcast(
            "AccountOpened",
            1,
            opened_with_deposit,
            leads_to=[("AccountOpened", 2), ("MoneyDeposited", 1)],
        )
    ],
)
@dataclass(frozen=True, slots=True, kw_only=True)
class AccountOpened:
    """A customer has an account."""

    customer: str
    owner: str | None
    address: str | None = None
    at: datetime


@events.event("MoneyDeposited")
@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyDeposited:
    """Money came in over the counter."""

    cents: int
    at: datetime


@events.event("MoneyWithdrawn", version=2, upcasts=[upcast("MoneyWithdrawn", 1, withdrawn_in_euros)])
@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyWithdrawn:
    """Money went out of a machine."""

    cents: int
    at: datetime
    place: str = ""


@events.event("FeeCharged")
@dataclass(frozen=True, slots=True, kw_only=True)
class FeeCharged:
    """The bank took something for itself."""

    cents: int
    at: datetime
    reason: str


@events.event("TransferSent")
@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSent:
    """Money left the account for another one."""

    transfer: str
    to: str
    cents: int
    at: datetime


@events.event("TransferReceived")
@dataclass(frozen=True, slots=True, kw_only=True)
class TransferReceived:
    """Money came from another account."""

    transfer: str
    sender: str
    cents: int
    at: datetime


@events.event("TransferReturned")
@dataclass(frozen=True, slots=True, kw_only=True)
class TransferReturned:
    """Money came back that the other account could not take."""

    transfer: str
    cents: int
    at: datetime
    reason: str


@events.event("AccountClosed")
@dataclass(frozen=True, slots=True, kw_only=True)
class AccountClosed:
    """The account takes and gives nothing any more."""

    at: datetime


@events.event("TransferRequested")
@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRequested:
    """A customer wants money to go from one account to another."""

    transfer: str
    """Its own stream."""
    source: str
    target: str
    cents: int
    at: datetime


@events.event("TransferCompleted")
@dataclass(frozen=True, slots=True, kw_only=True)
class TransferCompleted:
    """It has arrived."""

    at: datetime


@events.event("TransferFailed")
@dataclass(frozen=True, slots=True, kw_only=True)
class TransferFailed:
    """It has not arrived, and the money is where it was."""

    at: datetime
    reason: str
