"""Records, compared in Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.streams.plans.results import Results
from headrace.streams.tallies import compare

pytestmark = pytest.mark.spark

BETWEEN = 123456789.05
"""Of ten digits, the last is 0 or 1, depending on what an order of adding has left behind the 5."""
UP, DOWN = BETWEEN + 1e-6, BETWEEN - 1e-6
SCHEMA = (
    "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>, "
    "partition int, offset bigint, timestamp timestamp"
)


def records(spark: SparkSession, rows: list[tuple[Any, Any, Any]]) -> DataFrame:
    values = [json.dumps({"id": id_, "total": total, "mean": mean}).encode() for id_, total, mean in rows]
    return spark.createDataFrame(
        [("out", None, bytearray(value), None, 0, number, None) for number, value in enumerate(values)],
        SCHEMA,
    )


def test_a_sum_that_was_rounded_up_here_and_down_there_is_among_what_was_written(
    spark: SparkSession,
) -> None:
    results = Results(
        way="contained", uncertain={}, uncertain_rows=frozenset(), approximate=("total", "mean")
    )
    computed = [
        ("close", UP, DOWN),
        ("unit", 1.00000000051, None),
        ("same", 1.5, None),
        ("far", UP, None),
        ("null", None, UP),
        ("twice", UP, None),
        ("twice", UP, None),
        ("other", UP, None),
    ]
    written = [
        ("close", 1.0, 1.0),
        ("close", DOWN, UP),
        ("unit", 1.00000000049, None),
        ("same", 1.5, None),
        ("far", UP + 1, None),
        ("null", 0.0, UP),
        ("twice", DOWN, None),
        ("another", UP, None),
    ]

    found = compare(records(spark, computed), records(spark, written), results)

    told = {(json.loads(each.computed or "{}")["id"], each.kind, each.count) for each in found.different}
    assert told == {
        ("far", "missing", 1),
        ("null", "missing", 1),
        ("twice", "missing", 2),
        ("other", "missing", 1),
    }
