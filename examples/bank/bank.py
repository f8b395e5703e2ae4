"""All that the bank is made of, for those who open its store: `headrace events check examples/bank/bank.py`.

Account and Transfer decide. AccountWithoutFees is the code of back then, to be compared with Account's.
"""

from __future__ import annotations

from bank_accounts import Account
from bank_mistake import AccountWithoutFees
from bank_read_models import balances, owners, statements, suspicions
from bank_transfers import Transfer

__all__ = ["Account", "AccountWithoutFees", "Transfer", "balances", "owners", "statements", "suspicions"]
