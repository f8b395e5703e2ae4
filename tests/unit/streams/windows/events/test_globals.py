"""Global windows, by example and against a naive reference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.streams.windows.exact import Count, Sum
from headrace.streams.windows.globals import GlobalWindows
from headrace.streams.windows.late import side_output
from headrace.streams.windows.rank import greatest_rows
from headrace.streams.windows.triggers import Each, each, on_time

EXAMPLES = 25
SECOND_US = 1_000_000
TRIGGERS = [
    each(accumulate=accumulate, **how)
    for how in ({"rows": 1}, {"rows": 3}, {"every": "1 second"}, {"every": "9 seconds"}, {"where": "closes"})
    for accumulate in (False, True)
]


def global_windows(trigger: Each) -> GlobalWindows:
    return GlobalWindows(
        by=("key",),
        aggregates=(
            Count(name="count"),
            Sum(name="total", column="amount"),
            greatest_rows(2, order_by="amount", columns=["id"], name="best"),
        ),
        trigger=trigger,
    )


class Naive:
    """Global windows, a row at a time."""

    def __init__(self, clock: Any, trigger: Each) -> None:
        self.clock, self.trigger = clock, trigger
        self.kept: dict[str | None, list[Any]] = {}
        self.fresh: dict[str | None, int] = {}
        self.since: dict[str | None, int] = {}

    def step(self, batch: Any, *, is_end: bool) -> list[dict[str, Any]]:
        self.clock.advance(batch, is_end=is_end)
        results = []
        for row in batch:
            if not self.fresh.get(row.key):
                self.since[row.key] = self.clock.log_time
            self.kept.setdefault(row.key, []).append(row)
            self.fresh[row.key] = self.fresh.get(row.key, 0) + 1
            if self.fresh[row.key] == self.trigger.rows or (self.trigger.where and row.closes):
                results.append(self.fire(row.key, "early"))
        if self.trigger.every_us is not None:
            for key in sorted(self.kept, key=str):
                waited = self.clock.log_time - self.since[key]
                if self.fresh[key] and waited >= self.trigger.every_us // SECOND_US:
                    results.append(self.fire(key, "early"))
        if is_end:
            results += [self.fire(key, "on_time") for key in sorted(self.kept, key=str) if self.fresh[key]]
        return results

    def fire(self, key: str | None, firing: str) -> dict[str, Any]:
        rows = self.kept[key]
        amounts = [row.amount for row in rows if row.amount is not None]
        best = sorted(rows, key=lambda row: -10 if row.amount is None else row.amount, reverse=True)
        self.fresh[key] = 0
        if not self.trigger.accumulate:
            self.kept[key] = []
        return {
            "key": key,
            "window": None,
            "count": len(rows),
            "total": sum(amounts) if amounts else None,
            "best": [{"id": row.id} for row in best[:2]],
            "firing": firing,
        }


@settings(max_examples=EXAMPLES)
@given(data=st.data(), trigger=st.sampled_from(TRIGGERS), ends=st.booleans())
def test_global_windows_are_those_of_the_reference(
    kit: Any, streams: Any, data: st.DataObject, trigger: Each, ends: bool
) -> None:
    batches = data.draw(streams)
    naive = Naive(kit.clock(), trigger)
    steps = kit.drive(global_windows(trigger), batches, ends=ends)
    for number, (batch, step) in enumerate(zip(batches, steps, strict=True)):
        is_end = ends and number == len(batches) - 1
        results, expected = kit.plain(step.outputs["results"]), naive.step(batch, is_end=is_end)
        if trigger.every_us is None and not is_end:
            assert results == expected
        assert sorted(results, key=repr) == sorted(expected, key=repr)


def counts(kit: Any, step: Any) -> list[tuple[Any, ...]]:
    return [(row["key"], row["count"], row["firing"]) for row in kit.plain(step.outputs["results"])]


def test_a_count_is_exact_across_micro_batches(kit: Any) -> None:
    batches = [[kit.row("a", 1)] * 5, [kit.row("a", 2)] * 4]
    steps = kit.drive(global_windows(each(rows=3)), batches, ends=True)
    assert [counts(kit, step) for step in steps] == [[("a", 3, "early")], [("a", 3, "early")] * 2]


def test_the_row_that_closes_a_group_is_in_it(kit: Any) -> None:
    rows = [kit.row("a", 1), kit.row("a", 2, closes=True), kit.row("a", 3)]
    (step,) = kit.drive(global_windows(each(where="closes")), [rows], ends=True)
    assert counts(kit, step) == [("a", 2, "early"), ("a", 1, "on_time")]


def test_results_come_in_the_order_in_which_groups_were_closed(kit: Any) -> None:
    rows = [kit.row(key, 1) for key in "abba"]
    (step,) = kit.drive(global_windows(each(rows=2)), [rows])
    assert counts(kit, step) == [("b", 2, "early"), ("a", 2, "early")]


def test_rows_without_an_event_time_count_like_all_others(kit: Any) -> None:
    (step,) = kit.drive(
        global_windows(each(rows=2)), [[kit.row("a", None), kit.row(None, 1), kit.row("a", 1)]]
    )
    assert counts(kit, step) == [("a", 2, "early")]


def test_keys_are_forgotten_when_their_group_is_closed(kit: Any) -> None:
    (step,) = kit.drive(global_windows(each(rows=2)), [[kit.row("a", 1), kit.row("a", 1), kit.row("b", 1)]])
    assert step.state["groups"]["key"].to_pylist() == ["b"]


def test_global_windows_need_a_trigger_that_fires() -> None:
    with pytest.raises(PipelineError, match="each"):
        GlobalWindows(by=(), aggregates=(), trigger=on_time())


def test_global_windows_refuse_a_late_policy() -> None:
    with pytest.raises(PipelineError, match="no row is late"):
        GlobalWindows(by=(), aggregates=(), trigger=each(rows=1), late=side_output("late"))


def test_a_column_that_closes_groups_is_boolean(kit: Any) -> None:
    with pytest.raises(PipelineError, match="boolean"):
        global_windows(each(where="amount")).output_schemas(kit.schema)
