"""The pipelines of a data directory, as the page shows them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from headrace.console.pipelines import look, pipeline_of, pipelines_of, topics_of
from headrace.driver.event_time import TimeReport
from headrace.driver.process import ProcessId
from headrace.driver.status import Status, write_status

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
STATUS = Status(
    name="alerts",
    state="running",
    process=ProcessId.own(),
    started_at=NOW,
    updated_at=NOW,
    running_since=NOW,
    mode="micro-batch",
    bootstrap="b",
    reads=("orders",),
    writes="order-alerts",
    next_offsets={"orders": {0: 5, 1: 7}},
    lag=99,
)


def report(watermark_us: int | None) -> TimeReport:
    return TimeReport(
        watermark_us=watermark_us,
        delay_us=0,
        idle_after_us=None,
        newest_event_us=None,
        newest_record_us=None,
        source_count=0,
    )


def test_lag_is_what_the_broker_has_beyond_the_last_batch() -> None:
    ends = {("orders", 0): 8, ("orders", 1): 7, ("other", 0): 1}
    assert pipeline_of(STATUS, ends, NOW).lag == 3


def test_lag_is_what_the_driver_last_knew_where_the_broker_has_not_told() -> None:
    assert pipeline_of(STATUS, {("orders", 0): 8}, NOW).lag == 99
    assert pipeline_of(replace(STATUS, next_offsets={}), {}, NOW).lag == 99


@pytest.mark.parametrize(
    ("status", "watermark_ms"),
    [
        (STATUS, None),
        (replace(STATUS, watermark="1970-01-01T00:00:00.000Z"), None),
        (replace(STATUS, watermark="+10000-01-01T00:00:00Z"), None),
        (replace(STATUS, watermark="2026-01-01T11:59:00Z"), int(NOW.timestamp() - 60) * 1000),
        (replace(STATUS, time_reports={"a": report(5_000_000), "b": report(3_000_000)}), 3_000),
        (replace(STATUS, time_reports={"a": report(None)}), None),
        (replace(STATUS, time_reports={"a": report(10**18)}), 253_402_300_800_000),
    ],
)
def test_the_watermark_is_that_of_the_slowest_operator(status: Status, watermark_ms: int | None) -> None:
    assert pipeline_of(status, {}, NOW).watermark_ms == watermark_ms


def test_only_a_process_that_is_there_is_alive() -> None:
    assert pipeline_of(STATUS, {}, NOW).is_alive
    assert not pipeline_of(replace(STATUS, state="stopped"), {}, NOW).is_alive
    assert not pipeline_of(replace(STATUS, process=ProcessId(2**22 + 1)), {}, NOW).is_alive


def test_topics_are_told_from_tables_and_patterns() -> None:
    table = replace(STATUS, reads=("orders-.*", ".."), writes="/data/warehouse/alerts")
    assert topics_of([STATUS, table]) == ("orders", "order-alerts")


def test_a_directory_is_looked_at_as_it_is_now(tmp_path: Path) -> None:
    assert look(tmp_path) == []
    write_status(tmp_path, STATUS)
    write_status(tmp_path, replace(STATUS, name="gone", process=ProcessId(2**22 + 1)))
    (tmp_path / "pipelines" / "broken.json").write_text("{")
    found = {each.name: each for each in pipelines_of(look(tmp_path), {})}
    assert {name: each.state for name, each in found.items()} == {"alerts": "running", "gone": "crashed"}
    assert found["alerts"].since_ms == int(NOW.timestamp() * 1000)
