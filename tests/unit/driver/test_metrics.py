"""What pipelines do, under Prometheus' names."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from prometheus_client.parser import text_string_to_metric_families

from headrace.driver.metrics import PipelineMetrics
from headrace.driver.process import ProcessId
from headrace.driver.status import Status

NOW = datetime(2026, 1, 2, tzinfo=UTC)
COPIES = Status(
    name="copies",
    state="running",
    process=ProcessId(1),
    started_at=NOW,
    updated_at=NOW,
    running_since=NOW,
    mode="micro-batch",
    bootstrap="127.0.0.1:1",
    reads=("orders",),
    writes="copies",
    batch_count=3,
    input_row_count=201,
    output_row_count=200,
    batch_ms=350,
    phases_ms={"addBatch": 280},
    restart_count=1,
    resume_count=4,
)
COUNTS = replace(COPIES, name="counts", state="restarting", running_since=None, output_row_count=None)


def samples(*statuses: Status) -> dict[tuple[str, ...], float]:
    _content_type, body = PipelineMetrics(lambda: statuses, lambda _: {"copies": 12}).render("")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_counts_durations_and_lag_are_told_by_pipeline() -> None:
    found = samples(COPIES, COUNTS)
    assert found["headrace_pipeline_rows_read_total", "copies"] == 201
    assert found["headrace_pipeline_rows_written_total", "copies"] == 200
    assert found["headrace_pipeline_restarts_total", "counts"] == 1
    assert found["headrace_pipeline_resumes_total", "counts"] == 4
    assert found["headrace_pipeline_batch_duration_seconds", "copies"] == 0.35
    assert found["headrace_pipeline_batch_phase_seconds", "addBatch", "copies"] == 0.28
    assert found["headrace_pipeline_lag_records", "copies"] == 12
    assert found["headrace_pipeline_running_since_timestamp_seconds", "copies"] == NOW.timestamp()


def test_the_watermark_and_what_operators_count_are_told() -> None:
    moment = "2026-01-02T03:04:05.000Z"
    windows = replace(COPIES, watermark=moment, operator_counts={"window": {"late": 3, "dropped": 1}})
    found = samples(windows)
    told = found["headrace_pipeline_watermark_timestamp_seconds", "copies"]
    assert told == datetime.fromisoformat(moment).timestamp()
    assert found["headrace_pipeline_watermark_lag_seconds", "copies"] > 0
    rows = {
        frozenset(labels): count
        for (name, *labels), count in found.items()
        if name.endswith("operator_rows_total")
    }
    assert rows == {frozenset({"copies", "window", "late"}): 3, frozenset({"copies", "window", "dropped"}): 1}


def test_a_watermark_that_no_calendar_has_is_left_out() -> None:
    found = samples(replace(COPIES, watermark="+58000-01-02T03:04:05.000Z"))
    assert ("headrace_pipeline_watermark_lag_seconds", "copies") not in found
    assert found["headrace_pipeline_rows_read_total", "copies"] == 201


def test_what_is_not_known_is_left_out() -> None:
    found = samples(COUNTS)
    assert ("headrace_pipeline_watermark_lag_seconds", "counts") not in found
    assert ("headrace_pipeline_rows_written_total", "counts") not in found
    assert ("headrace_pipeline_lag_records", "counts") not in found
    assert ("headrace_pipeline_state_rows", "counts") not in found


def test_a_pipeline_is_in_one_state() -> None:
    found = samples(COUNTS)
    states = {name[2]: value for name, value in found.items() if name[0] == "headrace_pipeline_state"}
    assert states.pop("restarting") == 1
    assert set(states) == {"starting", "running", "stopped", "failed", "crashed"}
    assert not any(states.values())


def test_it_is_ready_while_all_pipelines_run() -> None:
    def unready(*statuses: Status) -> str | None:
        return PipelineMetrics(lambda: statuses, lambda _: {}).unready()

    assert unready(COPIES) is None
    assert unready(COPIES, COUNTS) == "counts is restarting"
    assert unready() == "no pipeline has been started yet"
