"""The pipelines on static rows equal the reference: the same functions that run live, in a unit test."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import card_reference as reference
import headrace.streams as hr
import pipeline
from card_reference import Profile, Transaction
from card_world import Arrivals, World
from headrace.streams.sinks.records import JSON_OPTIONS

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MODEL = Path(pipeline.__file__).with_name("model.json").read_text()


def written(rows: DataFrame) -> list[dict[str, Any]]:
    """The rows as they would be written to a topic."""
    values = rows.select(F.to_json(F.struct("*"), JSON_OPTIONS).alias("value")).collect()
    return [json.loads(row.value) for row in values]


def pipeline_alerts(
    headrace_spark: SparkSession, transactions: list[Transaction], profiles: list[Profile]
) -> dict[str, reference.Alert]:
    """What the pipeline says."""
    rows = pipeline.fraud_alerts(
        hr.static(headrace_spark, pipeline.transactions, [asdict(one) for one in transactions]),
        hr.static(headrace_spark, pipeline.profiles, [asdict(one) for one in profiles]),
    )
    found = written(rows)
    assert len({fields["alert_id"] for fields in found}) == len(found), "an alert has two versions"
    return reference.held(found)


def edges(random: Random, number: int) -> list[Transaction]:
    """A card that is used at the edges of the rules: in the same half second, or exactly a minute apart."""
    cities = ((52.52, 13.41), (52.6, 13.5), (48.86, 2.35), (40.71, -74.01))
    return [
        Transaction(
            tx_id=f"{number}-{use}",
            card_id=f"edge-{number}",
            amount=random.choice((-20.0, 1.0, 833.34, 1_250.0, random.randrange(10**6) / 100)),
            at=NOON + timedelta(milliseconds=random.choice((500, 60_000)) * random.randrange(40)),
            merchant=random.choice(("grocer", "gift-cards", None)),
            lat=(place := random.choice(cities))[0],
            lon=place[1],
        )
        for use in range(random.randrange(35))
    ]


def test_the_alerts_of_static_rows_are_those_of_the_reference(headrace_spark: SparkSession) -> None:
    random = Random(3)
    world = World(seed=3, start=NOON, rate=20, card_count=400, late_share=0.1, change_pause_s=1)
    arrivals = list(islice(Arrivals(world), 1_500))
    transactions = [reference.read_transaction(one.value) for one in arrivals]
    transactions += [one for number in range(60) for one in edges(random, number)]
    profiles = [reference.read_profile(profile.encode()) for one in arrivals for profile in one.profiles]
    profiles += [
        Profile(card_id=f"edge-{number}", since=NOON + timedelta(minutes=change), count_max=change % 9)
        for number in range(0, 60, 2)
        for change in random.sample(range(20), 3)
    ]
    delivered = [*transactions, *transactions[::7]]
    random.shuffle(delivered)

    expected = reference.alerts(transactions, profiles, reference.read_model(MODEL))
    assert {alert.rule for alert in expected.values()} == {"velocity", "spending", "travel", "model"}
    found = pipeline_alerts(headrace_spark, delivered, profiles)

    assert set(found) == set(expected)
    for alert_id, alert in expected.items():
        assert asdict(found[alert_id]) == {**asdict(alert), "value": pytest.approx(alert.value, abs=0.002)}


def test_a_window_that_the_history_does_not_cover_says_so(headrace_spark: SparkSession) -> None:
    busy = [
        {"tx_id": f"{n:03}", "card_id": "c", "amount": 1, "at": NOON, "lat": 0, "lon": 0}
        for n in range(pipeline.HISTORY_LIMIT + 10)
    ]
    rows = written(
        pipeline.fraud_alerts(
            hr.static(headrace_spark, pipeline.transactions, busy),
            hr.static(headrace_spark, pipeline.profiles, []),
        )
    )

    last = max(rows, key=lambda row: int(row["count"]))
    assert (last["count"], last["complete"]) == (pipeline.HISTORY_LIMIT, False)


def test_what_the_profile_allows_is_nothing_to_withdraw(headrace_spark: SparkSession) -> None:
    spent = {"tx_id": "t", "card_id": "c", "amount": 6_000, "at": NOON, "lat": 0, "lon": 0}
    business = {"card_id": "c", "since": NOON, "total_max": 10_000}

    rows = pipeline.fraud_alerts(
        hr.static(headrace_spark, pipeline.transactions, [spent]),
        hr.static(headrace_spark, pipeline.profiles, [business]),
    )

    assert written(rows) == []


def test_a_run_before_may_have_met_what_was_sent_before_the_batch_that_brought_the_profile(
    headrace_spark: SparkSession,
) -> None:
    rows = headrace_spark.sql(
        """
        SELECT name, transform(sent, one -> named_struct('sent_at', one)) AS new,
               transform(came, one -> named_struct('came', timestamp_millis(one))) AS versions
        FROM VALUES ('sent before', array(2000L, 1000L), array(500L, 1500L)),
                    ('sent after', array(2000L, 1000L), array(500L, 1000L)),
                    ('static', array(2000L), array(CAST(NULL AS BIGINT))),
                    ('no profile', array(2000L), CAST(array() AS ARRAY<BIGINT>)),
                    ('only a profile', CAST(array() AS ARRAY<BIGINT>), array(500L))
             AS _(name, sent, came)
        """
    )
    told = rows.select("name", pipeline.may_have_been_met_before(F.col("new"), F.col("versions")))

    assert dict(told.collect()) == {
        "sent before": True,
        "sent after": False,
        "static": False,
        "no profile": False,
        "only a profile": False,
    }


def test_a_transaction_older_than_all_kept_profiles_is_judged_by_the_usual_limits_and_says_so(
    headrace_spark: SparkSession,
) -> None:
    profiles = [
        Profile(card_id="c", since=NOON + timedelta(minutes=minute), count_max=1)
        for minute in range(pipeline.PROFILE_LIMIT + 1)
    ]
    transactions = [
        Transaction(
            tx_id=f"{minute}-{n}", card_id="c", amount=1, at=NOON + timedelta(minutes=minute, seconds=n)
        )
        for minute, count in ((0, 6), (3, 2))
        for n in range(count)
    ]

    rows = written(
        pipeline.fraud_alerts(
            hr.static(headrace_spark, pipeline.transactions, [asdict(one) for one in transactions]),
            hr.static(headrace_spark, pipeline.profiles, [asdict(one) for one in profiles]),
        )
    )

    velocity = [row for row in rows if row["rule"] == "velocity"]
    kept = profiles[-pipeline.PROFILE_LIMIT :]
    assert reference.held(velocity) == reference.alerts(transactions, kept)
    assert {row["tx_id"]: row["complete"] for row in velocity} == {"0-5": False, "3-1": True}


def test_holders_are_counted_by_alerts_that_hold_and_cards_blocked_from_the_third_on(
    headrace_spark: SparkSession,
) -> None:
    def alert(number: int, card: str, *, holds: bool = True) -> dict[str, Any]:
        at = NOON + timedelta(seconds=number)
        return {"alert_id": f"a{number}", "card_id": card, "holder_id": "h", "at": at, "holds": holds}

    versions = [
        alert(1, "c"),
        alert(1, "c"),
        alert(2, "c"),
        alert(2, "c", holds=False),
        alert(3, "d"),
        alert(4, "c"),
    ]
    rows = written(pipeline.card_status(hr.static(headrace_spark, pipeline.alerts, versions)))

    last = max(rows, key=lambda row: (row["at"], row["suspicious_count"]))
    assert last == {
        "card_id": "c",
        "holder_id": "h",
        "status": "blocked",
        "suspicious_count": 3,
        "alert_id": "a4",
        "at": "2026-01-01T12:00:04.000000Z",
    }
    assert {row["status"] for row in rows if row["at"] < "2026-01-01T12:00:04"} == {"watched"}


def test_a_card_whose_alerts_were_all_withdrawn_is_clear(headrace_spark: SparkSession) -> None:
    withdrawn = {"alert_id": "a", "card_id": "c", "holder_id": "h", "at": NOON, "holds": False}

    (row,) = written(pipeline.card_status(hr.static(headrace_spark, pipeline.alerts, [withdrawn])))

    assert (row["card_id"], row["status"], row["suspicious_count"]) == ("c", "clear", 0)


def test_what_came_more_than_a_minute_after_it_was_made_is_named(headrace_spark: SparkSession) -> None:
    # Records of static rows were all written at the beginning of the year 2000.
    written_at = datetime(2000, 1, 1, tzinfo=UTC)
    transactions = [
        {
            "tx_id": f"{late}",
            "card_id": "c",
            "amount": 1,
            "at": written_at - timedelta(seconds=late),
            "lat": 0,
        }
        | {"lon": 0}
        for late in (-10, 0, 60, 61)
    ]

    rows = written(pipeline.late_transactions(hr.static(headrace_spark, pipeline.transactions, transactions)))

    assert [(row["tx_id"], row["late_s"], row["card_id"]) for row in rows] == [("61", 61.0, "c")]
