"""Joins on Spark: exact answers in the stream, through a crash, and the same in batch."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.errors import PipelineError
from headrace.streams.buckets.kept_rows import parse_key
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.progress_log import read_progress_log
from headrace.streams.state import read_state_in

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
impressions = hr.topic(
    "impressions",
    schema="ad string, seen bigint, shown_at timestamp",
    key="ad",
    event_time="shown_at",
    watermark="10 seconds",
    partitions=2,
)
clicks = hr.topic(
    "clicks",
    schema="ad string, click bigint, clicked_at timestamp",
    key="ad",
    event_time="clicked_at",
    watermark="10 seconds",
    partitions=2,
)


@hr.pipeline(writes=hr.topic("outcomes", key="ad"))
def outcomes(impressions: DataFrame, clicks: DataFrame) -> DataFrame:
    joined = hr.join(impressions, clicks, on="ad", within=hr.between(after="1 minute"), how="full")
    return joined.select("ad", "seen", "click")


@hr.pipeline(writes=hr.topic("unseen", key="ad"))
def unseen(impressions: DataFrame, clicks: DataFrame) -> DataFrame:
    # Without their places, sources are Spark's tasks.
    shown = impressions.select("ad", "seen", "shown_at")
    clicked = clicks.select("ad", "clicked_at")
    return hr.join(shown, clicked, on="ad", within=hr.between(after="1 minute"), how="anti", late=hr.drop)


def impression(ad: str | None, number: int, second: int) -> dict[str, Any]:
    return {"ad": ad, "seen": number, "shown_at": NOON + timedelta(seconds=second)}


def click(ad: str | None, number: int, second: int) -> dict[str, Any]:
    return {"ad": ad, "click": number, "clicked_at": NOON + timedelta(seconds=second)}


def outcome(ad: str | None, seen: int | None, clicked: int | None) -> dict[str, Any]:
    return {"ad": ad, "seen": seen, "click": clicked}


def test_pairs_come_at_once_and_rows_without_company_when_both_watermarks_have_passed(
    headrace_pipeline: Any, headrace_spark: SparkSession
) -> None:
    script = headrace_pipeline(outcomes)
    shown = [impression("a", 1, 0), impression("b", 2, 5), impression(None, 3, 6), impression("ü", 4, 7)]
    clicked = [click("a", 10, 3), click("ü", 11, 67), click("ü", 12, 68), click(None, 13, 8)]
    script.add(impressions, *shown).add(clicks, clicked[0])
    script.expect(outcome("a", 1, 10), outcome(None, 3, None))
    script.add(clicks, *clicked[1:])
    # The results are not written, so both rows and state are made anew.
    script.crash("pipeline.task.produced")
    script.expect(outcome("ü", 4, 11), outcome(None, None, 13))
    checkpoint = checkpoint_path(script._config, "outcomes")
    last = read_progress_log(checkpoint).committed
    assert last is not None
    kept = read_state_in(script._session, "outcomes", checkpoint, parse_key(["b"]), batch=last)
    assert [(row.operator, row.row["seen"]) for row in kept.rows] == [("join", 2)]
    # One side alone moves nothing; both do.
    script.advance(impressions, NOON + timedelta(minutes=10))
    script.advance(clicks, NOON + timedelta(minutes=10))
    script.expect(outcome("b", 2, None), outcome("ü", None, 12))
    script.add(clicks, click("b", 14, 30)).expect()
    (late,) = (json.loads(message.value()) for message in script._read("outcomes.late"))
    assert (late["click"], late["join_side"], late["reason"]) == (14, "right", "late")

    batch = outcomes(
        hr.static(headrace_spark, impressions, shown), hr.static(headrace_spark, clicks, clicked)
    ).collect()
    assert Counter((row["ad"], row["seen"], row["click"]) for row in batch) == Counter(
        [
            ("a", 1, 10),
            ("b", 2, None),
            (None, 3, None),
            ("ü", 4, 11),
            ("ü", None, 12),
            (None, None, 13),
        ]
    )


def test_rows_without_places_are_joined_too_and_what_can_not_be_is_refused(
    headrace_pipeline: Any, headrace_spark: SparkSession
) -> None:
    script = headrace_pipeline(unseen)
    script.add(impressions, impression("a", 1, 0), impression("b", 2, 5)).add(clicks, click("a", 10, 3))
    script.process()
    script.advance(impressions, NOON + timedelta(minutes=10))
    script.advance(clicks, NOON + timedelta(minutes=10))
    script.process()
    script.expect({"ad": "b", "seen": 2, "shown_at": NOON + timedelta(seconds=5)})

    shown = hr.static(headrace_spark, impressions, [impression("a", 1, 0)])
    clicked = hr.static(headrace_spark, clicks, [click("a", 10, 3)])
    within = hr.between(after="1 minute")
    with pytest.raises(PipelineError, match="both sides have a column 'seen': drop one, or rename it"):
        hr.join(shown, clicked.withColumnRenamed("click", "seen"), on="ad", within=within)
    with pytest.raises(PipelineError, match="the right side has no column 'seen'"):
        hr.join(shown, clicked, on="seen", within=within)
    with pytest.raises(PipelineError, match="ad is string and bigint: cast one of them"):
        hr.join(shown, clicked.drop("ad").withColumnRenamed("click", "ad"), on="ad", within=within)
    for nested in ("array(ad)", "struct(ad)", "map(ad, ad)"):
        sides = [each.withColumn("ad", F.expr(nested)) for each in (shown, clicked)]
        with pytest.raises(PipelineError, match=r"ad is (array|struct|map)<.*keys are plain values"):
            hr.join(*sides, on="ad", within=within)
