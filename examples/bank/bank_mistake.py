"""The balances as they once were kept: by code that forgot the fees.

The events were right all the time. So the repair is to mend the code, in bank_accounts.py, and to let the
events go through it again: the read model is built anew beside the wrong one, and takes its place.
"""

from __future__ import annotations

from typing import Any

from bank_accounts import Account, AccountCommand, AccountEvent, AccountState
from bank_events import FeeCharged
from bank_read_models import BALANCES, OF_ACCOUNTS, keep_balance
from headrace import events
from headrace.events.projections import projection


@events.decider("account")
class AccountWithoutFees:
    """An account, by the code of back then."""

    initial = AccountState()

    @staticmethod
    def decide(state: AccountState, command: AccountCommand) -> list[AccountEvent]:
        """As today."""
        return Account.decide(state, command)

    @staticmethod
    def evolve(state: AccountState, event: AccountEvent) -> AccountState:
        """As today, but for fees: they came later than this code, and nobody thought of it."""
        return state if isinstance(event, FeeCharged) else Account.evolve(state, event)


@projection("balances", version=1, create=BALANCES, types=OF_ACCOUNTS)
def wrong_balances(work: Any, event: Any) -> None:
    """Fold each account's events into its row, wrongly."""
    keep_balance(work, event, AccountWithoutFees.evolve)
