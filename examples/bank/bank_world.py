"""What the bank's customers ask for, one after the other: the same for the same seed.

They only ask. Whether they get it is the bank's decision: some have too little money, and one account, to
which a transfer goes now and then, is closed. Each wish has an id of its own, made of the seed and its
number, so that a history that was half written when its writer died is written to its end by asking for all
of it again.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from bank_accounts import AccountCommand, Close, Deposit, Open, Withdraw
from bank_transfers import RequestTransfer, TransferCommand

ACCOUNT_COUNT: Final = 24
FIRST_NUMBER: Final = 1001
OPENING_DAYS: Final = 3
"""Within so many days from the beginning of a history all accounts are opened."""
RAPID_COUNT: Final = 5
RAPID_PAUSE: Final = timedelta(seconds=40)
NAMES: Final = (
    *("Ada Brandt", "Björn Dahl", "Carmen Ortiz", "Dmitri Orlov", "Esra Kaya", "Femi Adeyemi"),
    *("Greta Lund", "Hana Novák", "Ivan Petrov", "Júlia Costa", "Kofi Mensah", "Lena Vogel"),
)
STREETS: Final = ("Mill Lane", "Harbour Road", "Station Street", "Elm Avenue", "Church Hill")
PLACES: Final = ("station", "airport", "market", "town hall", "harbour")
_IDS: Final = uuid.UUID("6f1b1f0e-6b0a-4f57-9a3e-0d0c5a9f7c11")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What somebody asks of a stream."""

    stream: str
    command: AccountCommand | TransferCommand
    command_id: uuid.UUID
    at: datetime


class World:
    """Customers and their wishes. `name` tells this world's ids from those of others of the same seed."""

    def __init__(self, seed: int, name: str, *, account_count: int = ACCOUNT_COUNT) -> None:
        self._random = random.Random(f"{seed} {name}")
        self._name = f"{seed} {name}"
        self._accounts = [f"account-{FIRST_NUMBER + number}" for number in range(account_count)]
        self._count = 0

    @property
    def closed_account(self) -> str:
        """The account that is closed at the beginning."""
        return self._accounts[-1]

    def openings(self, since: datetime) -> list[Wish]:
        """Accounts are opened, each with some money in it; the last one is closed again."""
        wishes = []
        for number, account in enumerate(self._accounts):
            at = since + timedelta(days=OPENING_DAYS) * number / len(self._accounts)
            name = NAMES[number % len(NAMES)]
            address = f"{self._random.randint(1, 99)} {self._random.choice(STREETS)}"
            opened = Open(customer=f"customer-{number % len(NAMES) + 1}", owner=name, address=address, at=at)
            wishes.append(self._wish(account, opened, at))
            if account == self.closed_account:
                wishes.append(self._wish(account, Close(at=at), at))
            else:
                deposit = Deposit(cents=self._random.randint(200_00, 4_000_00), at=at)
                wishes.append(self._wish(account, deposit, at))
        return wishes

    def next(self, at: datetime) -> list[Wish]:
        """What somebody wants at a moment: one thing, or several withdrawals up to then."""
        account = self._random.choice(self._accounts[:-1])
        kind = self._random.random()
        if kind < 0.30:
            return [self._wish(account, Deposit(cents=self._sum(20_00, 1_200_00), at=at), at)]
        if kind < 0.78:
            return [self._withdrawal(account, self._sum(10_00, 300_00), at)]
        if kind < 0.785:
            return [self._withdrawal(account, self._sum(5_000_00, 9_000_00), at)]
        if kind < 0.80:
            moments = [at - RAPID_PAUSE * number for number in reversed(range(RAPID_COUNT))]
            return [self._withdrawal(account, self._sum(20_00, 60_00), moment) for moment in moments]
        return [self._transfer(account, at)]

    def _transfer(self, source: str, at: datetime) -> Wish:
        others = [account for account in self._accounts[:-1] if account != source]
        target = self.closed_account if self._random.random() < 0.05 else self._random.choice(others)
        transfer, cents = f"transfer-{self._id()}", self._sum(10_00, 500_00)
        wanted = RequestTransfer(transfer=transfer, source=source, target=target, cents=cents, at=at)
        return self._wish(transfer, wanted, at)

    def _withdrawal(self, account: str, cents: int, at: datetime) -> Wish:
        return self._wish(account, Withdraw(cents=cents, at=at, place=self._random.choice(PLACES)), at)

    def _sum(self, least: int, most: int) -> int:
        """People like round sums."""
        return self._random.randint(least // 500, most // 500) * 500

    def _wish(self, stream: str, command: AccountCommand | TransferCommand, at: datetime) -> Wish:
        self._count += 1
        return Wish(stream=stream, command=command, command_id=self._id(), at=at)

    def _id(self) -> uuid.UUID:
        return uuid.uuid5(_IDS, f"{self._name} {self._count}")


def history(
    seed: int, *, since: datetime, until: datetime, count: int, account_count: int = ACCOUNT_COUNT
) -> Iterator[Wish]:
    """So many wishes and a few more, from one moment to another, in the order of time."""
    world = World(seed, "history", account_count=account_count)
    yield from world.openings(since)
    begin = since + timedelta(days=OPENING_DAYS)
    for number in range(count):
        yield from world.next(begin + (until - begin) * (number + 1) / count)
