"""What the bank looks things up in: tables that follow the events, and can be built anew from them.

    balances       the balance of each account, by the same `evolve` as the commands'
    statements     a line for each account and month: what was there, what came, what went
    suspicions     withdrawals that are large, or follow quickly on others
    owners         whose account it is; who is forgotten is forgotten here, too

Each is kept by a function over events, in order, each event once. Balances are in their second version: the
first one, which is in bank_mistake.py, forgot the fees. Suspicions came last: they are a new read model over
old events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from bank_accounts import Account, AccountState, month_of
from bank_books import BOOKINGS, RAPID_WITHIN, signed_cents, suspicion_of
from bank_events import AccountClosed, AccountOpened, FeeCharged, MoneyWithdrawn
from headrace.events import SubjectWasForgotten
from headrace.events.projections import projection

Evolve = Callable[[AccountState, Any], AccountState]

OF_ACCOUNTS: Final = (AccountOpened, *BOOKINGS, AccountClosed)

BALANCES: Final = """
CREATE TABLE balances (
    account text PRIMARY KEY,
    customer text NOT NULL,
    status text NOT NULL,
    balance_cents bigint NOT NULL
)
"""
STATEMENTS: Final = """
CREATE TABLE statements (
    account text,
    month text,
    opening_cents bigint NOT NULL,
    in_cents bigint NOT NULL,
    out_cents bigint NOT NULL,
    fee_cents bigint NOT NULL,
    entry_count int NOT NULL,
    PRIMARY KEY (account, month)
)
"""
SUSPICIONS: Final = """
CREATE TABLE withdrawals (event_id uuid PRIMARY KEY, account text NOT NULL, at timestamptz NOT NULL);
CREATE INDEX ON withdrawals (account, at);
CREATE TABLE suspicions (
    event_id uuid PRIMARY KEY,
    account text NOT NULL,
    at timestamptz NOT NULL,
    rule text NOT NULL,
    words text NOT NULL
)
"""
OWNERS: Final = "CREATE TABLE owners (account text PRIMARY KEY, customer text NOT NULL, owner text)"


@projection("balances", version=2, create=BALANCES, types=OF_ACCOUNTS)
def balances(work: Any, event: Any) -> None:
    """Fold each account's events into its row."""
    keep_balance(work, event, Account.evolve)


def keep_balance(work: Any, event: Any, evolve: Evolve) -> None:
    """Bring the row of an account forward by one event."""
    row = work.execute(
        "SELECT status, customer, balance_cents FROM balances WHERE account = %s", (event.stream,)
    ).fetchone()
    state = AccountState()
    if row is not None:
        state = AccountState(status=row[0], customer=row[1], balance_cents=row[2])
    state = evolve(state, event.data)
    work.execute(
        "INSERT INTO balances VALUES (%s, %s, %s, %s) ON CONFLICT (account) DO UPDATE "
        "SET customer = excluded.customer, status = excluded.status, balance_cents = excluded.balance_cents",
        (event.stream, state.customer, state.status, state.balance_cents),
    )


@projection("statements", create=STATEMENTS, types=BOOKINGS)
def statements(work: Any, event: Any) -> None:
    """Add an event to the line of its month. A line begins with what the one before it came to."""
    cents = signed_cents(event.data)
    fee_cents = -cents if isinstance(event.data, FeeCharged) else 0
    work.execute(
        "INSERT INTO statements SELECT %(account)s, %(month)s, coalesce(("
        "  SELECT opening_cents + in_cents - out_cents FROM statements"
        "  WHERE account = %(account)s AND month < %(month)s ORDER BY month DESC LIMIT 1), 0), 0, 0, 0, 0 "
        "ON CONFLICT (account, month) DO NOTHING",
        {"account": event.stream, "month": month_of(event.data.at)},
    )
    work.execute(
        "UPDATE statements SET in_cents = in_cents + %s, out_cents = out_cents + %s, "
        "fee_cents = fee_cents + %s, entry_count = entry_count + 1 WHERE account = %s AND month = %s",
        (max(cents, 0), max(-cents, 0), fee_cents, event.stream, month_of(event.data.at)),
    )
    # What is booked for an earlier month moves the beginnings of all later ones.
    work.execute(
        "UPDATE statements SET opening_cents = opening_cents + %s WHERE account = %s AND month > %s",
        (cents, event.stream, month_of(event.data.at)),
    )


@projection("suspicions", create=SUSPICIONS, types=(MoneyWithdrawn,))
def suspicions(work: Any, event: Any) -> None:
    """Keep what somebody should have a look at, and of each account the last withdrawals."""
    withdrawal: MoneyWithdrawn = event.data
    earlier = work.execute(
        "SELECT at FROM withdrawals WHERE account = %s AND at > %s AND at <= %s",
        (event.stream, withdrawal.at - RAPID_WITHIN, withdrawal.at),
    ).fetchall()
    found = suspicion_of(withdrawal, [at for (at,) in earlier])
    work.execute("INSERT INTO withdrawals VALUES (%s, %s, %s)", (event.id, event.stream, withdrawal.at))
    if found is not None:
        work.execute(
            "INSERT INTO suspicions VALUES (%s, %s, %s, %s, %s)",
            (event.id, event.stream, withdrawal.at, found.rule, found.words),
        )


@projection("owners", create=OWNERS, types=(AccountOpened, SubjectWasForgotten))
def owners(work: Any, event: Any) -> None:
    """Keep names as long as they may be kept."""
    match event.data:
        case AccountOpened(customer=customer, owner=owner):
            work.execute("INSERT INTO owners VALUES (%s, %s, %s)", (event.stream, customer, owner))
        case SubjectWasForgotten(subject=subject):
            work.execute("UPDATE owners SET owner = NULL WHERE customer = %s", (subject,))


READ_MODELS: Final = (balances, statements, suspicions, owners)
