"""Why windows have not ended yet, as a person reads it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.driver.event_time import SOURCES_TOLD_MAX, Standing, TimeReport
from headrace.driver.process import ProcessId
from headrace.driver.status import State, Status
from headrace.driver.waiting import Waiting, waiting

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
NOW_US = int(NOW.timestamp()) * 1_000_000
S = 1_000_000
MINUTE = 60 * S


def source(
    name: str, event_s: float | None, record_s: float | None = 0, *, is_idle: bool = False
) -> Standing:
    """One whose newest event and record are so many seconds before now."""
    event_us = None if event_s is None else NOW_US - int(event_s * S)
    return Standing(
        source=name,
        event_us=event_us,
        record_us=None if record_s is None else NOW_US - int(record_s * S),
        passed_us=None if event_us is None else event_us - 30 * S,
        is_idle=is_idle,
    )


def report(*sources: Standing, **changes: Any) -> TimeReport:
    """By the rules of watermarks, with a delay of 30 seconds."""
    passed = [each.passed_us for each in sources if each.passed_us is not None and not each.is_idle]
    told = TimeReport(
        watermark_us=min(passed, default=None),
        delay_us=30 * S,
        idle_after_us=None,
        newest_event_us=max((each.event_us for each in sources if each.event_us is not None), default=None),
        newest_record_us=max(
            (each.record_us for each in sources if each.record_us is not None), default=None
        ),
        source_count=len(sources),
        sources=sources[:SOURCES_TOLD_MAX],
    )
    return replace(told, **changes)


def status(*, state: State = "running", lag: int | None = 0, **reports: TimeReport) -> Status:
    return Status(
        name="totals",
        state=state,
        process=ProcessId(1),
        started_at=NOW,
        updated_at=NOW,
        mode="micro-batch",
        bootstrap="127.0.0.1:1",
        reads=("orders",),
        writes="totals",
        lag=lag,
        time_reports=reports,
    )


def why(told: TimeReport, *, lag: int | None = 0) -> Waiting:
    (found,) = waiting(status(lag=lag, window=told), NOW)
    return found


def test_windows_that_only_wait_for_their_delay_are_in_course() -> None:
    found = why(report(source("orders-0", 3), source("orders-1", 1)))
    assert not found.is_held_back
    assert found.found == (
        "its watermark is 2026-01-02T11:59:27Z, 33 seconds behind the clock; "
        "nothing holds it back: it follows the newest event by its delay, 30 seconds"
    )
    assert found.advice == "a shorter delay ends windows sooner, and more rows are late"


def test_a_silent_partition_is_named_with_its_last_event_and_how_to_go_on_without_it() -> None:
    found = why(report(source("orders-3", 600, 590), source("orders-0", 1, 1)))
    assert found.is_held_back
    assert found.found == (
        "its watermark is 2026-01-02T11:49:30Z, 10 minutes 30 seconds behind the clock; "
        "orders-3 holds it back: its newest event is of 2026-01-02T11:50:00Z, 9 minutes 59 seconds before "
        "the newest of all, and it is silent since 2026-01-02T11:50:10Z; "
        "no idle_after is set, so it is waited for without end"
    )
    assert found.advice == (
        "look at what writes to orders-3, and at filters before the operator, which may leave its rows "
        "out, or give the watermark an idle_after: "
        'hr.bounded(..., idle_after="5 minutes")'
    )


def test_a_silent_partition_is_waited_for_until_it_is_idle() -> None:
    found = why(report(source("orders-3", 600, 590), source("orders-0", 1, 1), idle_after_us=15 * MINUTE))
    assert "it is waited for until other records are more than 15 minutes newer, by idle_after" in found.found
    assert found.advice == (
        "look at what writes to orders-3, and at filters before the operator, which may leave its rows "
        "out, or give the watermark a shorter idle_after"
    )


def test_an_idle_partition_holds_nothing_back() -> None:
    found = why(
        report(source("orders-0", 1), source("orders-3", 600, 590, is_idle=True), idle_after_us=MINUTE)
    )
    assert not found.is_held_back


def test_a_partition_with_new_records_of_old_events_is_no_silent_one() -> None:
    found = why(report(source("orders-3", 7200, 2), source("orders-0", 1, 1)))
    assert "orders-3 holds it back: its newest event is of 2026-01-02T10:00:00Z" in found.found
    assert "although it was written at 2026-01-02T11:59:58Z" in found.found
    assert "silent" not in found.found
    assert "idle_after" not in found.advice


def test_the_partitions_after_the_first_are_counted() -> None:
    found = why(report(source("orders-3", 600), source("orders-4", 500), source("orders-0", 1)))
    assert "orders-3 (and 1 more after it) holds it back" in found.found
    many = why(report(*(source(f"orders-{number}", 600) for number in range(40)), source("orders-x", 1)))
    assert "orders-0 (and at least 19 more after it) holds it back" in many.found


def test_without_new_rows_no_window_ends() -> None:
    found = why(report(source("orders-0", 300, 300), source("orders-1", 301, 301)))
    assert found.is_held_back
    assert (
        "no rows since 2026-01-02T11:55:00Z, 5 minutes ago: windows end when newer events come" in found.found
    )
    assert found.advice == "look at the topic's producers"


def test_without_new_rows_a_partition_that_will_hold_it_back_is_told_too() -> None:
    found = why(report(source("orders-3", 900, 900), source("orders-0", 300, 300)))
    assert "no rows since 2026-01-02T11:55:00Z" in found.found
    assert "orders-3 holds it back" in found.found


def test_records_yet_to_be_read_are_no_silence() -> None:
    found = why(report(source("orders-0", 300, 300)), lag=12_000)
    assert "12000 records were yet to be read when the last batch began, and windows end as they are" in (
        found.found
    )
    assert "no rows" not in found.found


def test_an_event_from_the_future_is_told_with_what_keeps_it_out() -> None:
    found = why(report(source("orders-0", -86_400)))
    assert "23 hours 59 minutes ahead of the clock; events from the future have moved it on" in found.found
    assert "max_ahead=" in found.advice


def test_before_the_first_event_there_is_no_watermark() -> None:
    found = why(report())
    assert found.found == "it has no watermark yet; no event with a time has come yet"
    assert found.advice == "look at the topic, and at its event_time="


@pytest.mark.parametrize("watermark_us", [None, NOW_US - 5 * MINUTE])
def test_declared_watermarks_wait_for_what_sources_declare(watermark_us: int | None) -> None:
    found = why(report(source("orders-0", 1), delay_us=None, watermark_us=watermark_us))
    assert "it waits for orders-0 to declare how far it is, as hr.declared() asks" in found.found
    assert "hr.bounded" in found.advice


def test_sources_that_declare_how_far_they_are_hold_nothing_back() -> None:
    found = why(report(source("orders-0", 1), delay_us=None, watermark_us=NOW_US - 2 * S))
    assert not found.is_held_back
    assert "as far as the sources have declared" in found.found


def test_where_rows_come_without_their_place_no_partition_can_be_named() -> None:
    found = why(report(watermark_us=NOW_US - MINUTE, newest_event_us=NOW_US))
    assert "which partition it waits for is not known, since the rows come without `_kafka`" in found.found
    assert found.advice == "keep the column `_kafka` in what the operator is given"


def test_each_operator_of_a_pipeline_has_its_own_answer() -> None:
    both = status(window=report(source("orders-0", 1)), top=report(source("orders-0", 300, 300)))
    assert [each.operator for each in waiting(both, NOW)] == ["top", "window"]


@pytest.mark.parametrize("state", ["starting", "restarting", "stopped", "failed", "crashed"])
def test_what_does_not_run_waits_for_nothing(state: State) -> None:
    assert list(waiting(status(state=state, window=report(source("orders-0", 1))), NOW)) == []


def test_a_pipeline_without_windows_waits_for_nothing() -> None:
    assert list(waiting(status(), NOW)) == []


TIMES = st.none() | st.integers(-(2**62), 2**62)


@given(
    st.lists(
        st.builds(
            Standing,
            source=st.text(),
            event_us=TIMES,
            record_us=TIMES,
            passed_us=TIMES,
            is_idle=st.booleans(),
        ),
        max_size=3,
    ),
    st.tuples(TIMES, TIMES, TIMES),
    st.none() | st.integers(0, 10**18),
)
def test_whatever_operators_tell_has_an_answer(
    sources: list[Standing], times: tuple[int | None, int | None, int | None], length_us: int | None
) -> None:
    watermark_us, event_us, record_us = times
    told = TimeReport(
        watermark_us=watermark_us,
        delay_us=length_us,
        idle_after_us=length_us,
        newest_event_us=event_us,
        newest_record_us=record_us,
        source_count=len(sources),
        sources=tuple(sources),
    )
    found = why(told)
    assert found.found
    assert found.advice
