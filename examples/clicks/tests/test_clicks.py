"""What comes of impressions and clicks, live and in batch."""

from __future__ import annotations

import importlib.util
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace.streams as hr

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def example() -> Any:
    """The example, of whose name there are others."""
    spec = importlib.util.spec_from_file_location(
        "clicks_pipeline", Path(__file__).parents[1] / "pipeline.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def impression(number: int, minute: float, campaign: str = "shoes") -> dict[str, Any]:
    at = NOON + timedelta(minutes=minute)
    return {"impression_id": f"i{number}", "campaign_id": campaign, "shown_at": at}


def click(number: int, of: int, minute: float) -> dict[str, Any]:
    at = NOON + timedelta(minutes=minute)
    return {"impression_id": f"i{of}", "click_id": f"k{number}", "clicked_at": at}


def outcome(shown: dict[str, Any], clicked: dict[str, Any] | None) -> dict[str, Any]:
    told = clicked or {"click_id": None, "clicked_at": None}
    return {**shown, "click_id": told["click_id"], "clicked_at": told["clicked_at"]}


def test_an_impression_comes_with_its_click_or_alone_after_the_hour(
    headrace_pipeline: Any, example: Any
) -> None:
    shown = [impression(1, 0), impression(2, 1)]
    script = headrace_pipeline(example.outcomes)
    script.add(example.impressions, *shown).add(example.clicks, click(1, 1, 30))
    script.expect(outcome(shown[0], click(1, 1, 30)))
    script.add(example.clicks, click(2, 2, 61.5))
    script.advance(example.impressions, NOON + timedelta(hours=2))
    script.advance(example.clicks, NOON + timedelta(hours=2))
    script.expect(outcome(shown[1], None))


def test_the_same_rows_in_batch_give_the_clicks_of_nothing(
    headrace_spark: SparkSession, example: Any
) -> None:
    shown = hr.static(headrace_spark, example.impressions, [impression(1, 0), impression(2, 1, "hats")])
    clicked = hr.static(
        headrace_spark, example.clicks, [click(1, 1, 30), click(2, 2, 61.5), click(3, 2, 5), click(4, 9, 5)]
    )
    strays = example.stray_clicks(clicked, shown).collect()
    assert sorted(row["click_id"] for row in strays) == ["k2", "k4"]
