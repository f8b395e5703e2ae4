"""What drivers write down of their queries, and what becomes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.cli.doctor import pipeline_findings
from headrace.driver.event_time import Standing, TimeReport
from headrace.driver.process import ProcessId
from headrace.driver.status import (
    State,
    Status,
    broken_statuses,
    read_status,
    read_statuses,
    status_dir,
    write_status,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
STATUS = Status(
    name="copies",
    state="running",
    process=ProcessId.own(),
    started_at=NOW,
    updated_at=NOW,
    running_since=NOW,
    mode="micro-batch",
    bootstrap="127.0.0.1:9092",
    reads=("orders", "prices"),
    writes="copies",
    restart_count=2,
    resume_count=1,
    resume_reason="it was slow",
    resumed_at=NOW,
    last_error="it failed",
    last_error_at=NOW,
    input_rows_per_s=12.5,
    phases_ms={"addBatch": 12},
    next_offsets={"orders": {0: 5, 11: 7}},
    time_reports={
        "window": TimeReport(
            watermark_us=-5,
            delay_us=30_000_000,
            idle_after_us=None,
            newest_event_us=7,
            newest_record_us=8,
            source_count=1,
            sources=(Standing(source="ü-0", event_us=7, record_us=8, passed_us=-5, is_idle=False),),
        )
    },
)


def dead_process() -> ProcessId:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        identity = ProcessId.of(process.pid)
        assert identity.is_alive()
        process.communicate(b"\n")
    return identity


def test_a_status_reads_back_as_it_was_written(tmp_path: Path) -> None:
    write_status(tmp_path, STATUS)
    assert read_status(tmp_path, "copies") == STATUS
    assert list(read_statuses(tmp_path)) == [STATUS]


def test_a_status_of_a_version_before_resumes_were_counted_can_be_read(tmp_path: Path) -> None:
    write_status(tmp_path, STATUS)
    path = status_dir(tmp_path) / "copies.json"
    told = json.loads(path.read_text())
    for name in ("resume_count", "resume_reason", "resumed_at"):
        del told[name]
    path.write_text(json.dumps(told))
    assert read_status(tmp_path, "copies") == replace(
        STATUS, resume_count=0, resume_reason=None, resumed_at=None
    )


def test_a_status_that_an_older_version_wrote_is_read(tmp_path: Path) -> None:
    write_status(tmp_path, STATUS)
    path = status_dir(tmp_path) / "copies.json"
    content = json.loads(path.read_text())
    del content["time_reports"]
    path.write_text(json.dumps(content))
    assert read_status(tmp_path, "copies") == replace(STATUS, time_reports={})


@pytest.mark.parametrize(
    "process",
    [
        *(
            {"pid": pid, "started_ticks": None}
            for pid in (-1, 0, 1, True, 4711.0, "4711", None, 2**31, 10**40)
        ),
        {"pid": 4711, "started_ticks": "5"},
        {"pid": 4711, "started_ticks": True},
        {"pid": 4711, "name": "init"},
        {},
        None,
    ],
)
def test_a_status_that_names_no_process_is_broken_and_said_to_be(tmp_path: Path, process: object) -> None:
    write_status(tmp_path, STATUS)
    path = status_dir(tmp_path) / "copies.json"
    assert broken_statuses(tmp_path) == []
    path.write_text(json.dumps({**json.loads(path.read_text()), "process": process}))
    assert list(read_statuses(tmp_path)) == []
    assert broken_statuses(tmp_path) == [path]
    assert [finding.verdict for finding in pipeline_findings(tmp_path, NOW)] == ["note"]


def test_statuses_are_listed_by_name(tmp_path: Path) -> None:
    for name in ("b", "a.dead-letters-12", "a"):
        write_status(tmp_path, replace(STATUS, name=name))
    assert [status.name for status in read_statuses(tmp_path)] == ["a.dead-letters-12", "a", "b"]


def test_only_the_owner_may_read_statuses(tmp_path: Path) -> None:
    write_status(tmp_path, STATUS)
    assert status_dir(tmp_path).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"name": "copies"', '{"process": 7}'])
def test_what_is_no_status_counts_as_none(tmp_path: Path, text: str) -> None:
    write_status(tmp_path, STATUS)
    (status_dir(tmp_path) / "copies.json").write_text(text)
    assert read_status(tmp_path, "copies") is None
    assert list(read_statuses(tmp_path)) == []


def test_no_status_is_none(tmp_path: Path) -> None:
    assert read_status(tmp_path, "copies") is None
    assert list(read_statuses(tmp_path)) == []


def test_one_whose_process_lives_is_as_it_says() -> None:
    assert STATUS.seen_now() == STATUS


@pytest.mark.parametrize("state", ["starting", "running", "restarting"])
def test_one_whose_process_is_gone_has_crashed(state: State) -> None:
    seen = replace(STATUS, state=state, process=dead_process()).seen_now()
    assert (seen.state, seen.running_since, seen.input_rows_per_s) == ("crashed", None, None)
    assert seen.last_error is not None


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_one_that_has_ended_stays_so(state: State) -> None:
    ended = replace(STATUS, state=state, process=dead_process())
    assert ended.seen_now() == ended


@pytest.mark.skipif(ProcessId.own().started_ticks is None, reason="the system does not tell when it started")
def test_a_later_process_with_the_same_number_is_another() -> None:
    own = ProcessId.own()
    assert own.started_ticks is not None
    assert own.is_alive()
    assert not ProcessId(os.getpid(), own.started_ticks - 1).is_alive()
