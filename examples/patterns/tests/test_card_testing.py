"""Card testing is found, live and in batch, as a loop over each card's payments finds it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from card_testing import card_testing, orders, transactions, unconfirmed_orders
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.streams.sinks.records import JSON_OPTIONS

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


def payments(count: int) -> list[dict[str, Any]]:
    """Payments of a few cards, in the order of their times; many of them small."""
    chance = Random(3)
    cards = ["c1", "c2", "ü", None]
    return [
        {
            "tx_id": str(number),
            "card_id": chance.choice(cards),
            "amount": chance.choice([1.0, 2.5, 9.99, 5.0, 10.0, 5000.0, None]),
            "at": at(number * 20 + chance.random()),
        }
        for number in range(count)
    ]


def by_a_loop(rows: list[dict[str, Any]]) -> set[tuple[str, ...]]:
    """The ids of the four payments of each series."""
    found = set()
    for card in {row["card_id"] for row in rows}:
        mine = [row for row in rows if row["card_id"] == card]
        for four in zip(mine, mine[1:], mine[2:], mine[3:], strict=False):
            amounts = [row["amount"] for row in four]
            if None in amounts or four[3]["at"] - four[0]["at"] > timedelta(minutes=5):
                continue
            if max(amounts[:3]) < 10 and amounts[3] > 1000:
                found.add(tuple(row["tx_id"] for row in four))
    return found


def written(rows: DataFrame) -> list[dict[str, Any]]:
    values = rows.select(F.to_json(F.struct("*"), JSON_OPTIONS).alias("value")).collect()
    return [json.loads(row.value) for row in values]


def ids(match: dict[str, Any]) -> tuple[str, ...]:
    return tuple(each["row"]["tx_id"] for each in match["evidence"])


def test_what_is_found_live_through_a_crash_is_what_is_found_in_batch_and_by_a_loop(
    headrace_pipeline: Any, headrace_spark: SparkSession
) -> None:
    rows = payments(300)
    expected = by_a_loop(rows)
    assert len(expected) > 5
    script = headrace_pipeline(card_testing)
    script.add(transactions, *rows[:150]).process()
    script.add(transactions, *rows[150:])
    # What was found is written, and the batch is not finished: it runs again from the state before.
    script.crash("pipeline.task.produced")
    batch = written(card_testing(hr.static(headrace_spark, transactions, rows)))
    script.advance(transactions, at(100_000)).expect(*batch)

    assert {ids(match) for match in batch} == expected
    assert len({match["id"] for match in batch}) == len(batch) == len(expected)
    assert {match["outcome"] for match in batch} == {"match"}
    assert {tuple(each["matched"] for each in match["evidence"]) for match in batch} == {
        ("probe", "probe", "probe", "big")
    }


def test_an_order_that_nobody_confirms_is_told_of_when_its_time_is_over(
    headrace_spark: SparkSession,
) -> None:
    rows = [
        {"order_id": order, "status": status, "at": at(second)}
        for order, status, second in [
            ("o1", "placed", 0),
            ("o1", "confirmed", 299),
            ("o2", "placed", 10),
            ("o2", "packed", 20),
            ("o2", "confirmed", 311),
            ("o3", "placed", 30),
            ("o3", "cancelled", 40),
        ]
    ]
    found = written(unconfirmed_orders(hr.static(headrace_spark, orders, rows)))
    assert [(match["order_id"], match["start"], match["end"]) for match in found] == [
        ("o2", "2026-01-02T12:00:10.000000Z", "2026-01-02T12:05:10.000000Z")
    ]
