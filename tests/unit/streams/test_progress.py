"""Spark's reports, as Spark 4.3 writes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.driver.event_time import TimeReport
from headrace.streams.buckets.reports import BatchReport, with_operators
from headrace.streams.progress import parse_progress
from headrace.streams.time.bounds import EVENT_TIME_US_MIN

REPORT: dict[str, Any] = {
    "id": "b1ac",
    "runId": "9f3e",
    "name": "counts",
    "timestamp": "2026-01-02T03:04:05.678Z",
    "batchId": 4,
    "batchDuration": 350,
    "numInputRows": 201,
    "inputRowsPerSecond": 100.5,
    "processedRowsPerSecond": 574.2,
    "durationMs": {"addBatch": 280, "walCommit": 40, "commitOffsets": 20, "triggerExecution": 350},
    "eventTime": {"watermark": "2026-01-02T03:00:00.000Z"},
    "stateOperators": [
        {"numRowsTotal": 5, "memoryUsedBytes": 1000, "numRowsDroppedByWatermark": 2},
        {"numRowsTotal": 7, "memoryUsedBytes": 500, "numRowsDroppedByWatermark": 1},
    ],
    "sources": [
        {
            "startOffset": {"orders": {"0": 0, "1": 0}},
            "endOffset": {"orders": {"0": 100, "1": 101}},
            "latestOffset": {"orders": {"0": 110, "1": 101}},
            "numInputRows": 201,
        },
        {
            "startOffset": {"prices": {"0": 9}},
            "endOffset": {"prices": {"0": 9}},
            "latestOffset": {"prices": {"0": 10}},
            "numInputRows": 0,
        },
    ],
    "sink": {"description": "KafkaTable", "numOutputRows": 5},
}


def test_a_batch_is_told_with_its_phases_its_state_and_how_far_it_is_behind() -> None:
    progress = parse_progress("counts", REPORT)
    assert progress.is_batch
    assert (progress.batch_id, progress.input_row_count, progress.output_row_count) == (4, 201, 5)
    assert progress.phases_ms == {"addBatch": 280, "walCommit": 40, "commitOffsets": 20}
    assert progress.next_offsets == {"orders": {0: 100, 1: 101}, "prices": {0: 9}}
    assert progress.lag == 11
    assert (progress.state_row_count, progress.state_bytes, progress.late_row_count) == (12, 1500, 3)
    assert progress.watermark == "2026-01-02T03:00:00.000Z"


def test_a_query_without_state_has_none() -> None:
    progress = parse_progress("copies", {**REPORT, "stateOperators": [], "eventTime": {}})
    assert (progress.state_row_count, progress.state_bytes, progress.watermark) == (None, None, None)


def test_nothing_to_do_is_no_batch() -> None:
    idle = {**REPORT, "numInputRows": 0, "durationMs": {"latestOffset": 3, "triggerExecution": 4}}
    assert not parse_progress("copies", idle).is_batch


def test_a_sink_that_does_not_count_is_told_so() -> None:
    sink = {"description": "ForeachBatchSink", "numOutputRows": -1}
    assert parse_progress("copies", {**REPORT, "sink": sink}).output_row_count is None


def test_of_a_topic_that_is_read_twice_the_offset_that_is_behind_counts() -> None:
    sources = [
        {"endOffset": {"orders": {"0": 5}}, "latestOffset": {"orders": {"0": 9}}},
        {"endOffset": {"orders": {"0": 7}}, "latestOffset": {"orders": {"0": 9}}},
    ]
    progress = parse_progress("copies", {**REPORT, "sources": sources})
    assert progress.next_offsets == {"orders": {0: 5}}
    assert progress.lag == 4


def test_a_source_that_tells_no_offsets_leaves_the_lag_open() -> None:
    sources = [{"description": "RateStream", "endOffset": 17, "latestOffset": None}]
    progress = parse_progress("copies", {**REPORT, "sources": sources})
    assert (progress.next_offsets, progress.lag) == ({}, None)


def test_what_operators_have_counted_in_the_batch_is_told_with_it() -> None:
    late = BatchReport(batch_id=4, counts={"late": 2, "dropped": 2}, gauges={"watermark_us": 90_000_000})
    earlier = BatchReport(batch_id=3, counts={"late": 100}, gauges={"watermark_us": 1})
    ahead = BatchReport(batch_id=4, counts={}, gauges={"watermark_us": 95_000_000})
    progress = with_operators(
        parse_progress("counts", REPORT), [("window", [earlier, late]), ("window-2", [ahead])]
    )
    assert progress.operator_counts == {"window": {"late": 2, "dropped": 2}}
    assert progress.late_row_count == 5
    assert progress.watermark == "1970-01-01T00:01:30.000Z"


def test_what_operators_wait_for_is_told_with_the_batch() -> None:
    waits = TimeReport(
        watermark_us=1,
        delay_us=0,
        idle_after_us=None,
        newest_event_us=1,
        newest_record_us=1,
        source_count=0,
    )
    batches = [
        BatchReport(batch_id=3, counts={}, gauges={}, time_report=replace(waits, watermark_us=0)),
        BatchReport(batch_id=4, counts={}, gauges={}, time_report=waits),
    ]
    none = [BatchReport(batch_id=4, counts={}, gauges={})]
    progress = with_operators(parse_progress("counts", REPORT), [("window", batches), ("each", none)])
    assert progress.time_reports == {"window": waits}


@pytest.mark.parametrize("watermark_us", [-(2**62), 2**62])
def test_a_watermark_beyond_all_calendars_can_be_told(watermark_us: int) -> None:
    told = BatchReport(batch_id=4, counts={}, gauges={"watermark_us": watermark_us})
    progress = with_operators(parse_progress("counts", REPORT), [("keyed", [told])])
    assert progress.watermark in ("0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z")


def test_a_query_without_operators_of_ours_is_told_as_spark_tells_it() -> None:
    progress = parse_progress("counts", REPORT)
    assert with_operators(progress, []) == progress


def test_a_watermark_before_all_calendars_is_told_as_their_first_day() -> None:
    early = BatchReport(batch_id=4, counts={}, gauges={"watermark_us": EVENT_TIME_US_MIN - 10_000_000})
    progress = with_operators(parse_progress("counts", REPORT), [("window", [early])])
    assert progress.watermark == "0001-01-01T00:00:00.000Z"
