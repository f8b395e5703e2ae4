"""Kinds of window, late policies and triggers are checked when they are made."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.errors import PipelineError
from headrace.streams.windows.kinds import (
    Cumulative,
    GlobalWindow,
    Hopping,
    Session,
    Sliding,
    Tumbling,
    cumulative,
    global_window,
    hopping,
    session_window,
    sliding,
    tumbling,
)
from headrace.streams.windows.late import (
    Drop,
    SideOutput,
    Update,
    after_all,
    drop,
    side_output,
    update,
    within_us,
)
from headrace.streams.windows.triggers import Each, Early, OnTime, each, early, on_time

MINUTE_US = 60_000_000


def test_kinds_of_window_are_values_in_microseconds() -> None:
    assert tumbling("1 minute") == Tumbling(size_us=MINUTE_US)
    assert tumbling("1 minute", offset="-1 minute") == Tumbling(size_us=MINUTE_US, offset_us=-MINUTE_US)
    assert hopping("2 minutes", every="1 minute") == Hopping(size_us=2 * MINUTE_US, every_us=MINUTE_US)
    assert cumulative("2 minutes", step="1 minute") == Cumulative(size_us=2 * MINUTE_US, step_us=MINUTE_US)
    assert session_window("1 minute") == Session(gap_us=MINUTE_US)
    assert sliding("1 minute") == Sliding(size_us=MINUTE_US)
    assert global_window() == GlobalWindow()


def test_late_policies_are_values() -> None:
    assert drop == Drop()
    assert side_output("clicks.late") == SideOutput(topic="clicks.late")
    assert update(within="1 minute") == Update(within_us=MINUTE_US, retract=False, then=Drop())


def test_a_window_is_kept_for_as_long_as_it_can_be_updated() -> None:
    policy = update(within="1 minute", then=side_output("late"))
    assert (within_us(policy), after_all(policy)) == (MINUTE_US, SideOutput(topic="late"))
    assert (within_us(drop), after_all(drop)) == (0, drop)


def test_triggers_are_values() -> None:
    assert on_time() == OnTime()
    assert early(every="1 minute") == Early(every_us=MINUTE_US)
    assert early(rows=100) == Early(rows=100)
    assert each(rows=100) == Each(rows=100)
    assert each(every="1 minute", accumulate=True) == Each(every_us=MINUTE_US, accumulate=True)
    assert each(where="is_last") == Each(where="is_last")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hopping("1 minute", every="2 minutes"), "would leave events in no window"),
        (lambda: hopping("365 days", every="1 second"), "would be in 31,536,000 windows; at most 100,000"),
        (lambda: cumulative("365 days", step="1 second"), "would be in 31,536,000 windows; at most 100,000"),
        (lambda: cumulative("1 hour", step="25 minutes"), "let the size be a multiple of the step"),
        (lambda: session_window("0 seconds"), "gap is '0 seconds'"),
        (lambda: sliding("-1 second"), "size is '-1 second'"),
        (lambda: side_output(""), "the topic of late rows is ''"),
        (lambda: update(within="0 seconds"), "within is '0 seconds'"),
        (lambda: update(within="1 hour", then=update(within="2 hours")), "give drop, or side_output"),  # type: ignore[arg-type]  # the mistake that is tested
        (early, "takes one of every= and rows="),
        (lambda: early(every="1 second", rows=1), "takes one of every= and rows="),
        (lambda: early(rows=0), "rows is 0, but must be a whole number from 1 on"),
        (lambda: early(rows=True), "rows is True"),
        (each, "takes one of rows=, every= and where="),
        (lambda: each(rows=1, where="x"), "takes one of rows=, every= and where="),
        (lambda: each(where=""), "give the name of a boolean column"),
    ],
)
def test_what_can_not_be_is_refused_with_what_to_do(make: Callable[[], object], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        make()
