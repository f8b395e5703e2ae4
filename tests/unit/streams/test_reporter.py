"""What is written down of running queries."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import StreamsConfig
from headrace.driver.event_time import TimeReport
from headrace.driver.process import ProcessId
from headrace.driver.status import Status, read_status, write_status
from headrace.errors import PipelineFailed
from headrace.streams.progress import Progress
from headrace.streams.reporter import QueryDescription, Rate, counted, reporting
from headrace.streams.resumes import Resume

NOW = datetime(2026, 1, 2, tzinfo=UTC)
QUERY = QueryDescription(name="copies", reads=("orders",), writes="copies")


def batch(batch_id: int, rows: int, *, out: int | None = None, late: int = 0) -> Progress:
    return Progress(
        query="copies",
        batch_id=batch_id,
        timestamp=f"t{batch_id}",
        input_row_count=rows,
        output_row_count=out,
        duration_ms=10,
        phases_ms={"addBatch": 8},
        next_offsets={"orders": {0: rows}},
        lag=3,
        late_row_count=late,
    )


IDLE = replace(batch(9, 0), phases_ms={}, lag=0)


def read(config: StreamsConfig) -> Status:
    status = read_status(config.data_dir, "copies")
    assert status is not None
    return status


@pytest.fixture
def config(tmp_path: Path) -> StreamsConfig:
    return StreamsConfig(bootstrap="127.0.0.1:1", data_dir=tmp_path)


def test_a_query_is_starting_then_running_then_stopped(config: StreamsConfig) -> None:
    with reporting(config, [QUERY], realtime=False) as reporter:
        first = read(config)
        assert (first.state, first.process, first.mode) == ("starting", ProcessId.own(), "micro-batch")
        reporter.running()
        running = read(config)
        assert (running.state, running.running_since is not None) == ("running", True)
    assert read(config).state == "stopped"


def test_a_query_that_fails_says_why_in_one_line(config: StreamsConfig) -> None:
    with (
        pytest.raises(PipelineFailed),
        reporting(config, [QUERY], realtime=True),
    ):
        raise PipelineFailed("copies failed:\n  the disk is full")
    failed = read(config)
    assert (failed.state, failed.last_error) == ("failed", "copies failed: the disk is full")
    assert failed.last_error_at is not None


def test_rows_are_counted_on_over_runs(config: StreamsConfig) -> None:
    for _ in range(2):
        with reporting(config, [QUERY], realtime=False) as reporter:
            counted = replace(batch(1, 2, out=2), operator_counts={"window": {"late": 3}})
            reporter.report([batch(0, 5, out=4, late=1), counted, IDLE])
    status = read(config)
    assert status.operator_counts == {"window": {"late": 6}}
    assert (status.batch_count, status.input_row_count, status.output_row_count) == (4, 14, 12)
    assert status.late_row_count == 2
    assert (status.batch_id, status.lag, status.next_offsets) == (1, 0, {"orders": {0: 2}})


def test_an_operator_without_rows_in_a_batch_is_where_it_was(config: StreamsConfig) -> None:
    def at(event_us: int) -> TimeReport:
        return TimeReport(
            watermark_us=event_us,
            delay_us=0,
            idle_after_us=None,
            newest_event_us=event_us,
            newest_record_us=None,
            source_count=0,
        )

    with reporting(config, [QUERY], realtime=False) as reporter:
        both = replace(batch(0, 5), time_reports={"window": at(1), "top": at(2)})
        reporter.report([both, replace(batch(1, 5), time_reports={"window": at(3)}), IDLE])
    assert read(config).time_reports == {"window": at(3), "top": at(2)}


def test_a_query_that_was_started_again_is_told_at_once_and_counted_on_in_the_next_run(
    config: StreamsConfig,
) -> None:
    with reporting(config, [QUERY], realtime=False) as reporter:
        reporter.resumed([])
        assert (read(config).resume_count, read(config).resumed_at) == (0, None)
        reporter.resumed([Resume(query=QUERY.name, reason="one"), Resume(query=QUERY.name, reason="other")])
        assert (read(config).resume_count, read(config).resume_reason) == (2, "other")
        assert read(config).resumed_at is not None
    with reporting(config, [QUERY], realtime=False) as reporter:
        reporter.resumed([Resume(query=QUERY.name, reason="third")])
    assert (read(config).resume_count, read(config).resume_reason) == (3, "third")


def test_restarts_are_those_of_the_supervisor_that_goes_on(config: StreamsConfig) -> None:
    with reporting(config, [QUERY], realtime=False):
        pass
    write_status(config.data_dir, replace(read(config), state="restarting", restart_count=2))
    with reporting(config, [QUERY], realtime=False):
        assert read(config).restart_count == 2
    with reporting(config, [QUERY], realtime=False):
        assert read(config).restart_count == 0


@given(st.lists(st.tuples(st.integers(0, 100), st.none() | st.integers(0, 100)), max_size=20))
def test_the_counts_are_the_sums_of_all_batches(batches: list[tuple[int, int | None]]) -> None:
    status = Status(
        name="copies",
        state="running",
        process=ProcessId(1),
        started_at=NOW,
        updated_at=NOW,
        mode="micro-batch",
        bootstrap="",
        reads=(),
        writes="",
    )
    for number, (rows, out) in enumerate(batches):
        status = counted(status, batch(number, rows, out=out))
    told = [out for _, out in batches if out is not None]
    assert status.batch_count == len(batches)
    assert status.input_row_count == sum(rows for rows, _ in batches)
    assert status.output_row_count == (sum(told) if told else None)


def test_a_rate_is_that_of_the_last_ten_seconds() -> None:
    rate = Rate()
    assert rate.of(0, 0.0) is None
    assert rate.of(100, 1.0) == 100
    assert rate.of(100, 5.0) == 20
    assert rate.of(200, 11.0) == 10
    assert rate.of(200, 21.0) == 0
