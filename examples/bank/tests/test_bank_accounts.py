"""Accounts and transfers: what is refused, and what follows from what happened."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bank_accounts import (
    CENTS_MAX,
    FEE_CENTS,
    FREE_WITHDRAWAL_COUNT,
    Account,
    AccountCommand,
    AccountState,
    Close,
    Deposit,
    Open,
    ReceiveTransfer,
    ReturnTransfer,
    SendTransfer,
    Withdraw,
    money,
)
from bank_books import balance_on, signed_cents
from bank_events import AccountClosed, AccountOpened, FeeCharged, MoneyDeposited, MoneyWithdrawn
from bank_transfers import (
    CompleteTransfer,
    FailTransfer,
    RequestTransfer,
    Transfer,
)
from headrace.events import Refused, fold

AT = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
LATER = datetime(2026, 4, 1, tzinfo=UTC)
OPENED = AccountOpened(customer="c-1", owner="Ada", address="1 Mill Lane", at=AT)


def account(*events: object) -> AccountState:
    state: AccountState = fold(Account, [OPENED, *events])
    return state


def with_cents(cents: int) -> AccountState:
    return account(MoneyDeposited(cents=cents, at=AT))


def test_an_account_is_opened_once() -> None:
    wanted = Open(customer="c-1", owner="Ada", address="1 Mill Lane", at=AT)
    assert Account.decide(Account.initial, wanted) == [OPENED]
    with pytest.raises(Refused, match="already"):
        Account.decide(account(), wanted)


def test_what_is_asked_of_an_account_that_is_not_there_or_closed_is_refused() -> None:
    with pytest.raises(Refused, match="no such account"):
        Account.decide(Account.initial, Deposit(cents=1, at=AT))
    with pytest.raises(Refused, match="closed"):
        Account.decide(account(AccountClosed(at=AT)), Deposit(cents=1, at=AT))


def test_nobody_gets_more_than_is_there() -> None:
    assert Account.decide(with_cents(500), Withdraw(cents=500, at=AT)) == [MoneyWithdrawn(cents=500, at=AT)]
    with pytest.raises(Refused, match=r"insufficient funds: the account has 5\.00, not 5\.01"):
        Account.decide(with_cents(500), Withdraw(cents=501, at=AT))
    with pytest.raises(Refused, match="insufficient funds"):
        Account.decide(with_cents(500), SendTransfer(transfer="t", to="account-2", cents=501, at=AT))


@pytest.mark.parametrize("cents", [0, -1, CENTS_MAX + 1])
def test_sums_that_are_none_are_refused(cents: int) -> None:
    for wanted in (Deposit(cents=cents, at=AT), Withdraw(cents=cents, at=AT)):
        with pytest.raises(Refused, match="can't be moved"):
            Account.decide(with_cents(CENTS_MAX), wanted)


def test_further_withdrawals_of_a_month_cost_a_fee_and_the_next_month_begins_anew() -> None:
    free = [MoneyWithdrawn(cents=100, at=AT)] * FREE_WITHDRAWAL_COUNT
    state = account(MoneyDeposited(cents=10_000, at=AT), *free)
    (withdrawn, fee) = Account.decide(state, Withdraw(cents=100, at=AT))
    assert isinstance(withdrawn, MoneyWithdrawn)
    assert isinstance(fee, FeeCharged)
    assert fee.cents == FEE_CENTS
    (alone,) = Account.decide(state, Withdraw(cents=100, at=LATER))
    assert alone == MoneyWithdrawn(cents=100, at=LATER)


def test_the_fee_must_be_there_too() -> None:
    free = [MoneyWithdrawn(cents=100, at=AT)] * FREE_WITHDRAWAL_COUNT
    state = account(MoneyDeposited(cents=100 * FREE_WITHDRAWAL_COUNT + 100, at=AT), *free)
    with pytest.raises(Refused, match="insufficient funds"):
        Account.decide(state, Withdraw(cents=100, at=AT))


def test_only_an_empty_account_is_closed() -> None:
    with pytest.raises(Refused, match=r"still has 0\.01"):
        Account.decide(with_cents(1), Close(at=AT))
    assert Account.decide(account(), Close(at=AT)) == [AccountClosed(at=AT)]


def test_what_comes_back_of_a_transfer_is_not_lost_when_the_account_was_closed_meanwhile() -> None:
    state = account(AccountClosed(at=AT))
    (event,) = Account.decide(state, ReturnTransfer(transfer="t", cents=70, at=AT, reason="closed"))
    assert Account.evolve(state, event).balance_cents == 70
    with pytest.raises(Refused, match="closed"):
        Account.decide(state, ReceiveTransfer(transfer="t", sender="account-2", cents=70, at=AT))


commands = st.one_of(
    st.builds(Deposit, cents=st.integers(-5, 2_000), at=st.just(AT)),
    st.builds(Withdraw, cents=st.integers(-5, 2_000), at=st.sampled_from([AT, LATER])),
    st.builds(
        SendTransfer,
        transfer=st.just("t"),
        to=st.just("account-2"),
        cents=st.integers(1, 900),
        at=st.just(AT),
    ),
    st.builds(
        ReceiveTransfer,
        transfer=st.just("t"),
        sender=st.just("account-2"),
        cents=st.integers(1, 900),
        at=st.just(AT),
    ),
    st.builds(Close, at=st.just(AT)),
)


@settings(max_examples=100)
@given(st.lists(commands, max_size=30))
def test_whatever_is_asked_for_a_balance_is_the_sum_of_its_bookings_and_never_negative(
    asked: list[AccountCommand],
) -> None:
    state, bookings = account(), 0
    for command in asked:
        try:
            decided = Account.decide(state, command)
        except Refused:
            continue
        for event in decided:
            state = Account.evolve(state, event)
            bookings += signed_cents(event)
        assert state.balance_cents == bookings >= 0


def test_the_balance_of_march_1_is_that_of_what_was_booked_before() -> None:
    history = [
        OPENED,
        MoneyDeposited(cents=1_000, at=datetime(2026, 2, 28, 23, 59, tzinfo=UTC)),
        MoneyWithdrawn(cents=300, at=datetime(2026, 3, 1, tzinfo=UTC)),
    ]
    assert balance_on(history, datetime(2026, 3, 1, tzinfo=UTC)) == 1_000
    assert balance_on(history, datetime(2026, 3, 2, tzinfo=UTC)) == 700
    assert balance_on(history, datetime(2026, 1, 1, tzinfo=UTC)) == 0


def test_a_transfer_ends_once() -> None:
    wanted = RequestTransfer(transfer="transfer-1", source="account-1", target="account-2", cents=5, at=AT)
    requested = Transfer.decide(Transfer.initial, wanted)
    state = fold(Transfer, requested)
    done = fold(Transfer, Transfer.decide(state, CompleteTransfer(at=AT)), state)
    assert done.status == "completed"
    for late in (CompleteTransfer(at=AT), FailTransfer(at=AT, reason="late"), wanted):
        with pytest.raises(Refused):
            Transfer.decide(done, late)


@pytest.mark.parametrize(
    ("target", "cents"), [("account-1", 5), ("account-2", 0), ("account-2", CENTS_MAX + 1)]
)
def test_a_transfer_that_makes_no_sense_is_refused(target: str, cents: int) -> None:
    with pytest.raises(Refused):
        Transfer.decide(
            Transfer.initial,
            RequestTransfer(transfer="transfer-1", source="account-1", target=target, cents=cents, at=AT),
        )


@pytest.mark.parametrize(
    ("cents", "text"), [(0, "0.00"), (-5, "-0.05"), (123_456_78, "123,456.78"), (-123_00, "-123.00")]
)
def test_sums_are_told_as_people_write_them(cents: int, text: str) -> None:
    assert money(cents) == text
