"""The bank on PostgreSQL: its books follow, a mistake is repaired by replay, and money is never lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from bank_accounts import Account, Deposit, Open, Withdraw
from bank_books import balance_on, signed_cents
from bank_generate import Bank, write_history
from bank_mistake import wrong_balances
from bank_read_models import READ_MODELS, balances
from bank_transfers import RequestTransfer
from bank_workflow import TRY_AGAIN_AFTER
from headrace.events import fold
from headrace.testing.clock import ManualClock
from headrace.testing.postgres import TestDatabase

UNTIL = datetime(2026, 10, 31, tzinfo=UTC)
MARCH = datetime(2026, 3, 1, tzinfo=UTC)
AT = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


@pytest.fixture
def bank(headrace_postgres: TestDatabase) -> Iterator[Bank]:
    made = Bank(headrace_postgres.dsn)
    yield made
    made.close()


@pytest.fixture
def grown(headrace_postgres: TestDatabase) -> Iterator[Bank]:
    """A bank with a year behind it."""
    write_history(headrace_postgres.dsn, 7, count=250, until=UNTIL)
    made = Bank(headrace_postgres.dsn)
    yield made
    made.close()


def folded(bank: Bank) -> dict[str, int]:
    """The balances by the events themselves."""
    streams = [each.stream for each in bank.store.journal.streams(category="account")]
    return {
        stream: fold(Account, (each.data for each in bank.store.read_stream(stream))).balance_cents
        for stream in streams
    }


def kept(database: TestDatabase) -> dict[str, int]:
    """The balances by the read model."""
    return dict(database.execute("SELECT account, balance_cents FROM balances"))


def test_the_books_say_what_the_events_say(grown: Bank, headrace_postgres: TestDatabase) -> None:
    balances_now = folded(grown)
    assert kept(headrace_postgres) == balances_now
    closing = headrace_postgres.execute(
        "SELECT DISTINCT ON (account) account, opening_cents + in_cents - out_cents FROM statements "
        "ORDER BY account, month DESC"
    )
    assert dict(closing) == {account: balances_now[account] for account, _ in closing}
    moved = Counter(
        each.type
        for account in balances_now
        for each in grown.store.read_stream(account)
        if signed_cents(each.data)
    )
    counted = headrace_postgres.execute("SELECT sum(entry_count), sum(fee_cents) FROM statements")
    assert counted == [(sum(moved.values()), 50 * moved["FeeCharged"])]
    rules = dict(headrace_postgres.execute("SELECT rule, count(*) FROM suspicions GROUP BY rule"))
    assert rules["rapid"] > 0


def test_what_was_the_balance_on_march_1(grown: Bank) -> None:
    for account in folded(grown):
        recorded = [each.data for each in grown.store.read_stream(account)]
        then = grown.store.as_of(account, time=MARCH - timedelta(milliseconds=1)).state
        assert then.balance_cents == balance_on(recorded, MARCH)


def test_transfers_end_and_no_money_is_lost_on_the_way(grown: Bank) -> None:
    grown.transfers.catch_up()
    assert grown.transfers.instances() == {}
    assert grown.transfers.failed_commands() == []
    states = [
        grown.store.load(each.stream).state
        for each in grown.store.journal.streams(category="transfer", limit=1_000)
    ]
    ends = Counter(state.status for state in states)
    assert set(ends) == {"completed", "failed"}
    # What came over the counter, less what left it, is in the accounts: transfers only move it.
    at_the_counter = {"MoneyDeposited", "MoneyWithdrawn", "FeeCharged"}
    came = sum(
        signed_cents(each.data)
        for account in folded(grown)
        for each in grown.store.read_stream(account)
        if each.type in at_the_counter
    )
    assert sum(folded(grown).values()) == came


def test_a_transfer_that_nobody_takes_is_tried_again_and_comes_back(
    headrace_postgres: TestDatabase,
) -> None:
    clock = ManualClock()
    with closing(Bank(headrace_postgres.dsn, clock)) as bank:
        bank.store.execute("account-1", Open(customer="c", owner="Ada", address="", at=AT))
        bank.store.execute("account-1", Deposit(cents=100, at=AT))
        transfer = "transfer-1"
        wanted = RequestTransfer(transfer=transfer, source="account-1", target="account-3", cents=70, at=AT)
        bank.store.execute(transfer, wanted)
        bank.transfers.catch_up()
        # The money is on its way, and the account that is to take it may be opened yet.
        assert bank.store.load("account-1").state.balance_cents == 30
        assert bank.store.load(transfer).state.status == "requested"
        clock.advance(TRY_AGAIN_AFTER // timedelta(milliseconds=1))
        bank.transfers.catch_up()
        assert bank.store.load("account-1").state.balance_cents == 100
        ended = bank.store.load(transfer).state
        assert (ended.status, ended.reason) == ("failed", "there is no such account")


def test_a_transfer_to_an_account_that_is_opened_late_arrives(headrace_postgres: TestDatabase) -> None:
    clock = ManualClock()
    with closing(Bank(headrace_postgres.dsn, clock)) as bank:
        bank.store.execute("account-1", Open(customer="c", owner="Ada", address="", at=AT))
        bank.store.execute("account-1", Deposit(cents=100, at=AT))
        transfer = "transfer-1"
        wanted = RequestTransfer(transfer=transfer, source="account-1", target="account-3", cents=70, at=AT)
        bank.store.execute(transfer, wanted)
        bank.transfers.catch_up()
        bank.store.execute("account-3", Open(customer="d", owner="Björn", address="", at=AT))
        clock.advance(TRY_AGAIN_AFTER // timedelta(milliseconds=1))
        bank.transfers.catch_up()
        assert bank.store.load("account-3").state.balance_cents == 70
        assert bank.store.load(transfer).state.status == "completed"


def test_a_mistake_of_a_read_model_is_repaired_by_replay_while_the_bank_goes_on(
    headrace_postgres: TestDatabase,
) -> None:
    write_history(headrace_postgres.dsn, 7, count=400, until=UNTIL, read_models=[wrong_balances])
    with closing(Bank(headrace_postgres.dsn, read_models=[balances])) as bank:
        right = folded(bank)
        fees = {account: fees_of(bank, account) for account in right}
        assert sum(fees.values()) > 0
        assert kept(headrace_postgres) == {account: right[account] + fees[account] for account in right}

        assert bank.read_models.rebuild("balances").version == 2
        assert kept(headrace_postgres) == right
        some = next(account for account, cents in right.items() if cents > 0)
        bank.store.execute(some, Withdraw(cents=1, at=AT))
        bank.read_models.catch_up()
        assert kept(headrace_postgres) == folded(bank) != right


def fees_of(bank: Bank, account: str) -> int:
    return sum(each.data.cents for each in bank.store.read_stream(account) if each.type == "FeeCharged")


def test_a_new_read_model_sees_all_old_events(bank: Bank, headrace_postgres: TestDatabase) -> None:
    bank.store.execute("account-1", Open(customer="c", owner="Ada", address="", at=AT))
    bank.store.execute("account-1", Deposit(cents=9_000_00, at=AT))
    bank.store.execute("account-1", Withdraw(cents=6_000_00, at=AT))
    bank.read_models.catch_up()
    assert headrace_postgres.execute("SELECT account, rule, words FROM suspicions") == [
        ("account-1", "large", "6,000.00 at once")
    ]


def test_who_is_forgotten_is_in_no_table(bank: Bank, headrace_postgres: TestDatabase) -> None:
    bank.store.execute("account-1", Open(customer="c-1", owner="Ada Brandt", address="1 Mill Lane", at=AT))
    bank.store.execute("account-2", Open(customer="c-2", owner="Björn Dahl", address="2 Mill Lane", at=AT))
    bank.read_models.catch_up()
    assert headrace_postgres.execute("SELECT owner FROM owners ORDER BY account") == [
        ("Ada Brandt",),
        ("Björn Dahl",),
    ]
    bank.store.forget("c-1")
    bank.read_models.catch_up()
    bank.read_models.rebuild("owners")
    assert headrace_postgres.execute("SELECT owner FROM owners ORDER BY account") == [
        (None,),
        ("Björn Dahl",),
    ]
    assert bank.store.load("account-1").state.owner is None


def test_all_read_models_have_names_of_their_own() -> None:
    assert len({each.name for each in READ_MODELS}) == len(READ_MODELS)


def test_a_replay_that_somebody_else_starts_does_not_stop_the_banks_own_books(
    bank: Bank, headrace_postgres: TestDatabase
) -> None:
    bank.store.execute("account-1", Open(customer="c", owner="Ada", address="", at=AT))
    is_over = threading.Event()

    def deposit() -> None:
        while not is_over.is_set():
            bank.store.execute("account-1", Deposit(cents=1, at=AT))

    customer = threading.Thread(target=deposit)
    with closing(Bank(headrace_postgres.dsn)) as other, bank.read_models.running():
        customer.start()
        for _ in range(10):
            other.read_models.rebuild("balances")
        is_over.set()
        customer.join()
        head = bank.store.journal.head()
        bank.read_models.wait_for("balances", head, timeout_s=60)
        assert [each.stopped for each in bank.read_models.status()] == [None] * len(READ_MODELS)
    assert kept(headrace_postgres) == {"account-1": head - 1}
