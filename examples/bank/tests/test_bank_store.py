"""The bank in a store in memory: the past, old versions, and a customer who is forgotten."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from bank import Account, AccountWithoutFees, Transfer
from bank_accounts import Deposit, Open, Withdraw
from bank_books import balance_on
from bank_world import history
from headrace.events import EventStore, MemoryJournal, Refused, event
from headrace.events.comparison import Comparison
from headrace.testing.clock import ManualClock

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
MARCH = datetime(2026, 3, 1, tzinfo=UTC)
DAY_MS = 24 * 60 * 60 * 1000


@event("AccountOpened", version=1, personal={"name"}, subject="customer")
@dataclass(frozen=True, slots=True, kw_only=True)
class OldOpened:
    """As accounts were opened years ago."""

    customer: str
    name: str
    first_deposit: float
    at: datetime


@event("MoneyWithdrawn", version=1)
@dataclass(frozen=True, slots=True, kw_only=True)
class OldWithdrawn:
    """As money was withdrawn years ago."""

    amount: float
    at: datetime


def bank(journal: MemoryJournal | None = None) -> EventStore:
    return EventStore(journal or MemoryJournal(), deciders=[Account, Transfer])


def opened(at: datetime = NEW_YEAR) -> Open:
    return Open(customer="customer-7", owner="Ada Brandt", address="1 Mill Lane", at=at)


def test_the_bank_tells_what_it_knew_at_a_time_and_what_made_each_field() -> None:
    clock = ManualClock(int(NEW_YEAR.timestamp() * 1000))
    store = bank(MemoryJournal(clock))
    store.execute("account-7", opened())
    store.execute("account-7", Deposit(cents=1_000_00, at=NEW_YEAR))
    clock.advance(90 * DAY_MS)
    store.execute("account-7", Withdraw(cents=400_00, at=NEW_YEAR))

    assert store.as_of("account-7", time=MARCH).state.balance_cents == 1_000_00
    assert store.load("account-7").state.balance_cents == 600_00
    # By the day on which it was booked, the withdrawal had been there in March: it came to be known later.
    recorded = [each.data for each in store.read_stream("account-7")]
    assert balance_on(recorded, MARCH) == 600_00
    cause = store.explain("account-7").cause("balance_cents")
    assert cause is not None
    assert cause.type == "MoneyWithdrawn"


def test_old_versions_are_read_as_what_they_would_be_today() -> None:
    journal = MemoryJournal()
    old = EventStore(journal, types=[OldOpened, OldWithdrawn])
    old.append(
        "account-7",
        [
            OldOpened(customer="customer-7", name="Ada Brandt", first_deposit=12.5, at=NEW_YEAR),
            OldWithdrawn(amount=2.55, at=NEW_YEAR),
        ],
    )
    store = bank(journal)
    store.check_readable()
    state = store.load("account-7").state
    assert (state.owner, state.balance_cents, state.withdrawal_count) == ("Ada Brandt", 9_95, 1)
    assert {(each.type, each.schema_version) for each in store.versions_report()} == {
        ("AccountOpened", 1),
        ("MoneyWithdrawn", 1),
    }


def test_a_customer_is_forgotten_and_the_money_stays_right() -> None:
    store = bank()
    store.execute("account-7", opened())
    store.execute("account-7", Deposit(cents=5_00, at=NEW_YEAR))
    receipt = store.forget("customer-7")
    assert receipt.streams == ("account-7",)
    state = store.load("account-7").state
    assert (state.owner, state.balance_cents) == (None, 5_00)
    assert all(b"Ada" not in each.data and b"Mill" not in each.data for each in store.journal.read_all())


def test_a_command_that_comes_twice_counts_once() -> None:
    store = bank()
    store.execute("account-7", opened())
    command_id = uuid.uuid4()
    for _ in range(2):
        store.execute("account-7", Deposit(cents=5_00, at=NEW_YEAR), command_id=command_id)
    assert store.load("account-7").state.balance_cents == 5_00


def test_a_history_that_is_asked_for_twice_is_there_once() -> None:
    store = bank()
    counts = []
    for _ in range(2):
        for wish in history(7, since=NEW_YEAR, until=MARCH, count=150):
            try:
                store.execute(wish.stream, wish.command, command_id=wish.command_id)
            except Refused:
                continue
        counts.append(store.journal.head())
    # What was refused the first time may be allowed now, but no deposit is there twice.
    opened_count = sum(each.type == "AccountOpened" for each in store.journal.read_all())
    assert opened_count == len(store.journal.streams(category="account"))
    assert counts[0] <= counts[1] < 2 * counts[0]


def test_code_that_forgot_the_fees_differs_in_the_balances_alone() -> None:
    store = bank()
    for wish in history(7, since=NEW_YEAR, until=MARCH, count=1_500, account_count=6):
        try:
            store.execute(wish.stream, wish.command, command_id=wish.command_id)
        except Refused:
            continue
    comparison = Comparison(Account, AccountWithoutFees)
    for recorded in store.read_all():
        comparison.take(recorded.stream, recorded.data)
    found = comparison.result()
    assert {each.field for each in found.differences} == {"balance_cents"}
    for each in found.differences:
        fees = [one for one in store.read_stream(each.stream) if one.type == "FeeCharged"]
        assert each.right - each.left == sum(one.data.cents for one in fees) > 0


@pytest.mark.parametrize("stream", ["account-7", "transfer-7"])
def test_nothing_happened_in_a_stream_that_is_not_there(stream: str) -> None:
    loaded = bank().load(stream)
    assert (loaded.version, loaded.state.status) == (0, "none")
