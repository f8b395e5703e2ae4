"""The pipeline on static rows equals the reference: the same function that runs live, in a unit test."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from examples.fraud.pipeline import HISTORY_LIMIT, velocity_alerts
from examples.fraud.pipeline import transactions as topic
from examples.fraud.reference import Alert, Transaction, alerts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def pipeline_alerts(spark: SparkSession, transactions: list[Transaction]) -> dict[str, Alert]:
    """What the pipeline says: of several versions of an alert, the one with the most evidence."""
    rows = velocity_alerts(hr.static(spark, topic, [asdict(one) for one in transactions]))
    found: dict[str, Alert] = {}
    for row in rows.withColumn("micros", F.unix_micros("at")).orderBy("count").collect():
        found[row.alert_id] = Alert(
            alert_id=row.alert_id,
            rule=row.rule,
            card_id=row.card_id,
            tx_id=row.tx_id,
            at=datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row.micros),
            count=row["count"],
            evidence=tuple(row.evidence),
            total=row.total,
        )
    return found


def card(number: int, uses: list[tuple[int, int]]) -> list[Transaction]:
    """One card, used at so many half seconds after noon for so many cents."""
    return [
        Transaction(
            tx_id=f"{number}-{use}",
            card_id=f"card-{number}",
            amount=cents / 100,
            at=NOON + timedelta(milliseconds=500 * half_seconds),
        )
        for use, (half_seconds, cents) in enumerate(uses)
    ]


USE_COUNT_MAX = HISTORY_LIMIT * 3 // 4
"""Some are delivered twice, and the history must hold them all."""
uses = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 10**7)), max_size=USE_COUNT_MAX)
"""Many uses fall on the same half second, or exactly a minute apart: the edges of the rule."""


@settings(
    max_examples=3, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cards=st.lists(uses, min_size=20, max_size=60), random=st.randoms(use_true_random=False))
def test_the_alerts_of_static_rows_are_those_of_the_reference(
    spark: SparkSession, cards: list[list[tuple[int, int]]], random: Random
) -> None:
    transactions = [one for number, uses in enumerate(cards) for one in card(number, uses)]
    delivered = [*transactions, *transactions[::7]]
    random.shuffle(delivered)

    assert pipeline_alerts(spark, delivered) == alerts(transactions)


def test_a_window_that_the_history_does_not_cover_says_so(spark: SparkSession) -> None:
    busy = card(1, [(0, 1)] * (HISTORY_LIMIT + 10))

    rows = velocity_alerts(hr.static(spark, topic, [asdict(one) for one in busy])).collect()

    assert max(row["count"] for row in rows) == HISTORY_LIMIT
    assert [row.complete for row in sorted(rows, key=lambda row: row["count"])][-1] is False
