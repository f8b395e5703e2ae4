"""Card fraud in real time: more than 5 transactions of one card within 1 minute.

    headrace run examples/fraud/pipeline.py --realtime

The rule. For a transaction t, W(t) is the set of transactions u of the same card with

    t.at - 1 minute < u.at <= t.at

counted by tx_id, so that a transaction that is delivered twice counts once. t raises an alert when W(t) has
more than 5 members. It is a rule about sets: in which order the transactions arrive does not matter.

The stream. Whenever a transaction arrives, the windows that it falls into are looked at again: its own, and
those of up to a minute later if it came late. So an alert can come again, with the same `alert_id` and more
evidence: the last one with an id holds, which is what a topic keyed by it means.

The bound. A card's HISTORY_LIMIT newest transactions are kept; within it every count is exact. What lies
beyond is never passed over in silence: an alert whose window may begin before the kept history says
`complete: false`, and a transaction that comes too late to be kept at all, or in a batch with too many
others, raises an alert of the rule `history-overflow`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr

WINDOW = "INTERVAL 1 MINUTE"
COUNT_MAX = 5
HISTORY_LIMIT = 50

transactions = hr.topic(
    "transactions",
    schema=(
        "tx_id string not null, card_id string not null, amount double not null, at timestamp not null, "
        "merchant string, country string"
    ),
    event_time="at",
)


@hr.pipeline(writes=hr.topic("fraud-alerts", key="alert_id"))
def velocity_alerts(transactions: DataFrame) -> DataFrame:
    """Alerts of cards that are used too often."""
    sent_at = F.unix_millis("_kafka.timestamp").alias("sent_at")
    history = hr.recent(
        transactions.select("card_id", "tx_id", "amount", "at", sent_at),
        by="card_id",
        order_by="at",
        limit=HISTORY_LIMIT,
    )
    updates = history.withColumn("new", F.filter("recent", lambda u: u["is_new"]))
    suspects = updates.select("card_id", "recent", F.explode(_suspects()).alias("suspect"))
    judged = suspects.select(
        "card_id",
        "suspect.*",
        F.filter("recent", lambda u: _is_within(u["at"], F.col("suspect.at"))).alias("window"),
        _is_complete(F.col("suspect.at")).alias("complete"),
    ).withColumn("evidence", _evidence())
    return judged.where((F.size("evidence") > COUNT_MAX) | (F.col("rule") == "history-overflow")).select(
        F.sha2(F.concat_ws("/", "rule", "card_id", "tx_id"), 256).substr(1, 32).alias("alert_id"),
        "rule",
        "card_id",
        "tx_id",
        "at",
        F.size("evidence").alias("count"),
        F.transform("evidence", lambda u: u["tx_id"]).alias("evidence"),
        _total().alias("total"),
        "complete",
        F.array_max(F.transform("window", lambda u: F.when(u["is_new"], u["sent_at"]))).alias("sent_at"),
    )


def _suspects() -> Column:
    """The transactions whose windows hold something new, each with the rule that it is held against."""
    touched = F.filter("recent", lambda t: F.exists("new", lambda u: _is_within(u["at"], t["at"])))
    fast = F.transform(touched, lambda t: _suspect("velocity", t))
    overflow = F.when(
        F.col("overflow"), F.array(_suspect("history-overflow", F.element_at("recent", -1)))
    ).otherwise(F.array().cast("array<struct<rule: string, tx_id: string, at: timestamp>>"))
    return F.concat(fast, overflow)


def _suspect(rule: str, transaction: Column) -> Column:
    return F.struct(
        F.lit(rule).alias("rule"), transaction["tx_id"].alias("tx_id"), transaction["at"].alias("at")
    )


def _is_within(at: Column, end: Column) -> Column:
    return (at > end - F.expr(WINDOW)) & (at <= end)


def _is_complete(end: Column) -> Column:
    """Whether the history reaches back to where the window begins."""
    oldest = F.get("recent", F.lit(0))["at"]
    return (F.size("recent") < HISTORY_LIMIT) | (oldest <= end - F.expr(WINDOW))


def _evidence() -> Column:
    """The transactions of the window, each once, in the order of their time."""
    return F.array_sort(
        F.array_distinct(F.transform("window", lambda u: F.struct(u["at"], u["tx_id"], u["amount"])))
    )


def _total() -> Column:
    """The money, added up in cents: sums of fractions would depend on their order."""
    cents = F.transform("evidence", lambda u: F.round(u["amount"] * 100))
    return F.aggregate(cents, F.lit(0.0), lambda total, one: total + one) / 100
