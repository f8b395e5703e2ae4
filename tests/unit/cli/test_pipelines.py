"""What `headrace pipelines` shows, and how `headrace run` starts its driver."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from headrace.cli.doctor import Finding, pipeline_findings
from headrace.cli.pipelines import pipelines, row_of
from headrace.cli.run import driver_arguments
from headrace.driver.event_time import Standing, TimeReport
from headrace.driver.process import ProcessId
from headrace.driver.status import Status, write_status

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STATUS = Status(
    name="counts",
    state="stopped",
    process=ProcessId(4711),
    started_at=NOW,
    updated_at=NOW + timedelta(minutes=1),
    mode="micro-batch",
    bootstrap="127.0.0.1:1",
    reads=("orders",),
    writes="counts",
    input_row_count=201,
    batch_id=12,
    batch_ms=350,
    phases_ms={"walCommit": 40, "addBatch": 280, "queryPlanning": 10},
    state_row_count=5,
    state_bytes=2 * 1024 * 1024,
    restart_count=2,
    resume_count=1,
    resume_reason="[y] was slow",
    resumed_at=NOW,
    last_error="counts failed: [x] is no number",
    last_error_at=NOW,
    lag=7,
)
NOW_US = int(NOW.timestamp()) * 1_000_000
SILENT = Standing(
    source="orders-3", event_us=NOW_US - 600_000_000, record_us=NOW_US, passed_us=None, is_idle=False
)
WAITING = replace(
    STATUS,
    state="running",
    process=ProcessId.own(),
    lag=0,
    time_reports={
        "window": TimeReport(
            watermark_us=NOW_US - 630_000_000,
            delay_us=30_000_000,
            idle_after_us=None,
            newest_event_us=NOW_US,
            newest_record_us=NOW_US,
            source_count=1,
            sources=(SILENT,),
        )
    },
)


def test_a_row_tells_the_last_batch_with_what_took_longest() -> None:
    row = row_of(STATUS, 7)
    assert row["batch"] == "12: 350 ms (addBatch 280, walCommit 40)"
    assert row["state_size"] == "5 rows, 2.0 MiB"
    assert row["since"] == "2026-01-02T03:05:05Z"


def test_json_has_all_that_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_status(tmp_path, STATUS)
    pipelines(tmp_path, as_json=True)
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["pipeline"], row["state"], row["pid"], row["lag"]) == ("counts", "stopped", 4711, 7)
    assert row["last_error"] == "counts failed: [x] is no number"
    assert row["phases_ms"] == STATUS.phases_ms
    assert (row["restarts"], row["resumes"], row["resume_reason"]) == (2, 1, "[y] was slow")
    assert row["resumed_at"] == "2026-01-02T03:04:05Z"


def test_json_tells_how_far_partitions_are_and_what_windows_wait_for() -> None:
    row = row_of(WAITING, 0)
    assert row["sources"] == [
        {
            "operator": "window",
            "source": "orders-3",
            "newest_event": "2026-01-02T02:54:05Z",
            "newest_record": "2026-01-02T03:04:05Z",
            "is_idle": False,
        }
    ]
    (waits,) = cast("list[dict[str, str]]", row["waiting"])
    assert waits["operator"] == "window"
    assert "orders-3 holds it back" in waits["found"]
    assert waits["advice"]


def test_the_doctor_says_why_the_windows_of_running_pipelines_have_not_ended(tmp_path: Path) -> None:
    write_status(tmp_path, WAITING)
    write_status(tmp_path, replace(WAITING, name="ended", state="stopped"))
    (finding,) = pipeline_findings(tmp_path, NOW)
    assert finding == Finding("counts, window", "note", finding.found, finding.advice)
    assert "orders-3 holds it back: its newest event is of 2026-01-02T02:54:05Z" in finding.found
    assert finding.advice.startswith("look at what writes to orders-3")


def test_people_are_told_restarts_and_errors_in_sentences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_status(tmp_path, STATUS)
    pipelines(tmp_path)
    told = capsys.readouterr()
    assert "stopped" in told.out
    assert "counts was started again 2 times by its supervisor" in told.err
    assert (
        "counts was started again once by its driver, last at 2026-01-02T03:04:05Z: [y] was slow" in told.err
    )
    assert "counts last failed at 2026-01-02T03:04:05Z: counts failed: [x] is no number" in told.err


def test_no_pipeline_is_a_sentence_or_an_empty_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipelines(tmp_path)
    assert "no pipeline has run" in " ".join(capsys.readouterr().err.split())
    pipelines(tmp_path, as_json=True)
    assert capsys.readouterr().out == "[]\n"


OURS = ["--restarts", "0", "--metrics-listen", ""]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["run", "p.py"], ["run", "p.py", *OURS]),
        (["run", "p.py", "--restarts", "9"], ["run", "p.py", "--restarts", "9", *OURS]),
        (["run", "--realtime", "--", "-p.py"], ["run", "--realtime", *OURS, "--", "-p.py"]),
    ],
)
def test_the_driver_is_the_same_command_with_other_options_last(
    given: list[str], expected: list[str]
) -> None:
    assert driver_arguments(given) == expected
