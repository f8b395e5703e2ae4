"""Windows of our own give what Spark's windows give: the same types, the same answers."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Column, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr

pytestmark = pytest.mark.spark

COLUMNS = {
    "int": "int",
    "double": "double",
    "money": "decimal(10,2)",
    "large": "decimal(38,4)",
    "text": "string",
    "moment": "timestamp",
}
NOT_NUMBERS = {"text", "moment"}
START = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)


def value(kind: str, chance: random.Random) -> Any:
    if chance.random() < 0.3:
        return None
    number = chance.randint(-100, 100)
    # Quarters add up exactly in floating point, so that the order of adding does not show.
    made = {
        "double": math.nan if number > 90 else number / 4,
        "decimal(10,2)": Decimal(number) / 100,
        "decimal(38,4)": Decimal(number) * 10**20,
        "string": f"ä{number}",
        "timestamp": START + timedelta(microseconds=number),
    }
    return made.get(kind, number)


def aggregates() -> list[Column]:
    asked = [F.count("*").alias("rows")]
    for name in COLUMNS:
        made = [
            F.count(name).alias(f"count_{name}"),
            F.min(name).alias(f"min_{name}"),
            F.max(name).alias(f"max_{name}"),
        ]
        if name not in NOT_NUMBERS:
            made += [F.sum(name).alias(f"sum_{name}"), F.avg(name).alias(f"avg_{name}")]
        asked += made
    return asked


def in_order(rows: list[Row]) -> list[str]:
    """As text, since NaN equals nothing, itself included."""
    return sorted(str(row.asDict(recursive=True)) for row in rows)


def test_exact_aggregates_have_the_types_and_the_answers_of_sparks_own_windows(spark: SparkSession) -> None:
    chance = random.Random(6)
    rows = [
        (
            chance.choice(["ann", "bob", "", None]),
            START + timedelta(seconds=chance.randint(-60, 60)),
            *(value(kind, chance) for kind in COLUMNS.values()),
        )
        for _ in range(60)
    ]
    schema = ", ".join(
        f"`{name}` {kind}" for name, kind in {"who": "string", "at": "timestamp", **COLUMNS}.items()
    )
    table = spark.createDataFrame(rows, schema).coalesce(2).cache()
    size, every = "30 seconds", "20 seconds"
    ours = hr.window(table, hr.hopping(size, every=every), by="who", event_time="at").agg(*aggregates())
    theirs = table.groupBy("who", F.window("at", size, every)).agg(*aggregates())
    assert {field.name: field.dataType for field in ours.drop("firing").schema} == {
        field.name: field.dataType for field in theirs.schema
    }
    assert in_order(ours.drop("firing").collect()) == in_order(theirs.collect())
    table.unpersist()
