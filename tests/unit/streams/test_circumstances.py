"""How a change of code since the checkpoint was begun is told."""

from __future__ import annotations

import pytest

from headrace.streams.circumstances import code_change
from headrace.streams.history import History, Run
from headrace.streams.plans import Description

PLAN = Description(sources=(), operators=(), shuffle_partition_count=2, output_mode="update", watermarks={})


def history(*runs: tuple[int, str]) -> History:
    made = [
        Run(since_batch=batch, code=code, realtime=False, guarantee="exactly-once") for batch, code in runs
    ]
    return History(plan=PLAN, runs=tuple(made))


@pytest.mark.parametrize(
    ("runs", "now", "told"),
    [
        ([(0, "a")], "a", None),
        ([(0, "a")], "b", "it has changed since it was last run"),
        ([(0, "a"), (7, "b")], "b", "it runs as it is now since batch 7"),
        ([(0, "a"), (7, "b"), (9, "a")], "a", "it runs as it is now since batch 9"),
        ([(0, "a"), (7, "b")], "a", "it has changed since it was last run"),
        ([], "a", None),
    ],
)
def test_a_change_of_code_is_told(runs: list[tuple[int, str]], now: str, told: str | None) -> None:
    assert code_change(history(*runs), now) == told


def test_where_nothing_was_noted_down_nothing_is_said() -> None:
    assert code_change(None, "a") is None
