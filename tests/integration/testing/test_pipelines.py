"""The test kit for pipelines, with pipelines as users write them."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.errors import UsageError

pytestmark = pytest.mark.spark

orders = hr.topic("orders", schema="id string not null, amount double")
readings = hr.topic(
    "readings",
    schema="sensor string not null, count int not null, at timestamp not null",
    event_time="at",
    watermark="10 seconds",
)


@hr.pipeline(writes=hr.topic("large", key="id"))
def large(orders: DataFrame) -> DataFrame:
    return orders.where("amount > 100").select("id", "amount")


@hr.pipeline(writes=hr.topic("totals", key="id"))
def totals(orders: DataFrame) -> DataFrame:
    return orders.groupBy("id").agg(F.sum("amount").alias("total"))


@hr.pipeline(writes=hr.topic("minutes"))
def minutes(readings: DataFrame) -> DataFrame:
    first_of_each = readings.dropDuplicatesWithinWatermark(["sensor"])
    return first_of_each.select("sensor", "at")


@hr.pipeline(writes=hr.topic("counts", key="sensor"))
def counts(readings: DataFrame) -> DataFrame:
    windows = hr.window(readings, hr.tumbling("10 seconds"), by="sensor").agg(F.sum("count").alias("count"))
    return windows.select("sensor", F.col("window.end").alias("until"), "count")


def order(number: str, amount: float) -> dict[str, object]:
    return {"id": number, "amount": amount}


def moment(second: int) -> datetime:
    return datetime(2026, 1, 2, 3, 0, second, tzinfo=UTC)


def test_each_step_sees_what_was_written_since_the_last(headrace_pipeline: Any) -> None:
    script = headrace_pipeline(totals)
    script.add(orders, order("a", 1), order("b", 10), order("a", 2))
    script.expect({"id": "a", "total": 3.0}, {"id": "b", "total": 10.0})
    script.add(orders, order("a", 4)).expect({"id": "a", "total": 7.0})
    script.expect()


def test_an_expectation_that_fails_shows_the_difference(headrace_pipeline: Any) -> None:
    script = headrace_pipeline(large).add(orders, order("a", 500), order("b", 600), "bad")
    with pytest.raises(AssertionError) as failure:
        script.expect(order("a", 501), order("c", 600))
    assert str(failure.value).splitlines() == [
        "topic large has other rows than expected (2 rows, not 2):",
        "  different   {'id': 'a'}: amount is 500.0, not 501",
        "  different   {'amount': 600}: id is 'b', not 'c'",
    ]
    script.expect_dead_letters(orders, {"value": "bad", "cause": "the value is not one JSON text"})


@pytest.mark.parametrize(
    "place", ["pipeline.batch", "pipeline.task.produced", "pipeline.task.committed", "pipeline.written"]
)
def test_rows_come_once_whatever_step_of_the_commit_crashes(headrace_pipeline: Any, place: str) -> None:
    script = headrace_pipeline(large)
    script.add(orders, *(order(str(number), 200 + number) for number in range(20)))
    script.crash(place)
    script.expect(*(order(str(number), 200 + number) for number in range(20)))


def test_a_crash_that_does_not_come_about_is_told(headrace_pipeline: Any) -> None:
    script = headrace_pipeline(large)
    with pytest.raises(UsageError, match="did not come by"):
        script.crash("pipeline.batch", after=5)
    with pytest.raises(UsageError, match=re.escape("begin with `pipeline.`")):
        script.crash("log.sync")


def test_event_time_advances_without_a_row_that_the_pipeline_sees(headrace_pipeline: Any) -> None:
    script = headrace_pipeline(minutes)
    reading = {"sensor": "s", "count": 1, "at": moment(5)}
    script.add(readings, reading, reading).expect({"sensor": "s", "at": moment(5)})
    script.advance(readings, moment(50)).expect()
    later = {"sensor": "s", "count": 1, "at": moment(55)}
    script.add(readings, later).expect({"sensor": "s", "at": moment(55)})


def test_event_time_advances_in_all_partitions_for_windows_of_our_own(headrace_pipeline: Any) -> None:
    keyed = replace(readings, key=("sensor",))
    script = headrace_pipeline(counts)
    both = [{"sensor": sensor, "count": 2, "at": moment(5)} for sensor in ("s", "t", "u", "v")]
    script.add(keyed, *both).expect()
    script.advance(readings, moment(19)).expect()
    script.advance(readings, moment(20))
    script.expect(*({"sensor": each["sensor"], "until": moment(10), "count": 2} for each in both))


def test_other_code_goes_on_from_the_checkpoint(headrace_pipeline: Any) -> None:
    @hr.pipeline(writes=hr.topic("large", key="id"))
    def larger(orders: DataFrame) -> DataFrame:
        return orders.where("amount > 1000").select("id")

    script = headrace_pipeline(large).add(orders, order("a", 500)).process()
    script.restart(larger).add(orders, order("b", 500), order("c", 5000))
    script.expect(order("a", 500), {"id": "c"})
