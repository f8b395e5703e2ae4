"""Balances on Spark, from the log: the events that `headrace capture` publishes, through the same `evolve`.

    headrace run examples/bank/bank_pipeline.py

The event table is captured like any other. Its rows come in the order of their positions, and a stream's
events meet its state, which Spark keeps; each balance is written once, whatever is killed when. Personal
fields stay encrypted on the topic and here: this needs no keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark.sql import DataFrame

import headrace.streams as hr
from bank_accounts import Account, AccountState
from headrace.events import MemoryJournal
from headrace.events.codec import EventCodec
from headrace.events.sealing import Keyring

BUCKETS: Final = 2
"""How many parts the state has: a batch of some events costs nearly the same for each part."""
ROW: Final = (
    "struct<aggregatetype: string, aggregateid: string, version: bigint, type: string, "
    "schema_version: int, payload: string>"
)

bank_events = hr.topic("bank.headrace_events.events", schema=f"op string not null, after {ROW}")
balances = hr.topic("bank-balances", key="account")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An account, as far as Spark has to know it."""

    status: str = "none"
    customer: str = ""
    balance_cents: int = 0
    month: str = ""
    withdrawal_count: int = 0


def follow(_account: str, row: dict[str, Any], state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Bring the state of an account forward by one event."""
    codec, no_keys = EventCodec(Account.events), Keyring(MemoryJournal())
    account = AccountState(**state)
    for event in codec.decode(row["type"], row["schema_version"], row["payload"].encode(), no_keys):
        account = Account.evolve(account, event)
    state.update({name: getattr(account, name) for name in asdict(Kept())})
    yield {
        "status": account.status,
        "balance_cents": account.balance_cents,
        "version": row["version"],
        "last_event": row["type"],
    }


@hr.pipeline(writes=balances)
def account_balances(bank_events: DataFrame) -> DataFrame:
    """The balance of an account after each of its events."""
    of_accounts = bank_events.where("op IN ('c', 'r') AND after.aggregatetype = 'account'")
    return hr.keyed(
        of_accounts.selectExpr("_kafka", "after.aggregateid AS account", "after.*"),
        by="account",
        step=follow,
        state=Kept,
        returns="status string, balance_cents bigint, version bigint, last_event string",
        buckets=BUCKETS,
    )
