"""Balances on Spark, from the log: the events that `headrace capture` publishes, through the same `evolve`.

    headrace run examples/bank/bank_pipeline.py

The event table is captured like any other. Its rows come in the order of their positions, and a stream's
events meet its state, which Spark keeps; each balance is written once, whatever is killed when. Personal
fields stay encrypted on the topic and here: this needs no keys.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

import headrace.streams as hr
from bank_accounts import Account
from headrace.events.folding import Folding

BUCKETS: Final = 2
"""How many parts the state has: a batch of some events costs nearly the same for each part."""
ROW: Final = (
    "struct<aggregatetype: string, aggregateid: string, version: bigint, type: string, "
    "schema_version: int, payload: string>"
)

bank_events = hr.topic("bank.headrace_events.events", schema=f"op string not null, after {ROW}")


@hr.pipeline(writes=hr.topic("bank-balances", key="stream"))
def account_balances(bank_events: DataFrame) -> DataFrame:
    """Each account as it is after a batch of events that has changed it."""
    of_accounts = bank_events.where("op IN ('c', 'r') AND after.aggregatetype = 'account'")
    rows = of_accounts.selectExpr(
        "_kafka",
        "after.aggregateid AS stream",
        "after.version",
        "after.type",
        "after.schema_version",
        "after.payload AS data",
    )
    return hr.project(rows, Folding(Account), returns="status string, balance_cents bigint", buckets=BUCKETS)
