"""Sliding windows, by example and against a naive reference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.streams.time.policies import bounded
from headrace.streams.windows.exact import Count, Max, Sum
from headrace.streams.windows.kinds import sliding
from headrace.streams.windows.late import LatePolicy, Update, drop, side_output, update, within_us
from headrace.streams.windows.sliding import SlidingWindows
from headrace.streams.windows.triggers import Trigger, each, early

EXAMPLES = 25
SIZE = 8
SECOND_US = 1_000_000
POLICIES = [
    drop,
    side_output("late"),
    update(within="10 seconds"),
    update(within="10 seconds", retract=True, then=side_output("late")),
    update(within="200 seconds", retract=True),
]


def sliding_windows(late: LatePolicy = drop) -> SlidingWindows:
    return SlidingWindows(
        by=("key",),
        time="at",
        kind=sliding(f"{SIZE} seconds"),
        aggregates=(
            Count(name="count"),
            Sum(name="total", column="amount"),
            Max(name="greatest", column="amount"),
        ),
        watermark=bounded("3 seconds"),
        late=late,
    )


class Naive:
    """Sliding windows: all events for ever, and what each has given last."""

    def __init__(self, clock: Any, late: LatePolicy) -> None:
        self.clock = clock
        self.within = within_us(late) // SECOND_US
        self.retract = isinstance(late, Update) and late.retract
        self.events: list[Any] = []
        self.given: dict[int, dict[str, Any]] = {}

    def step(self, batch: Any, *, is_end: bool) -> tuple[list[dict[str, Any]], list[Any]]:
        before, after = self.clock.advance(batch, is_end=is_end)
        late = [row for row in batch if row.at is None or row.at + self.within < before]
        news = [row for row in batch if row not in late]
        self.events += news
        results = []
        for event in sorted(self.events, key=lambda row: row.at):
            is_changed = any(
                row.key == event.key and event.at - SIZE <= row.at <= event.at
                for row in news
                if row.at < before
            )
            if event.at >= after or (event.id in self.given and not is_changed):
                continue
            result = self.result(event, "late" if event.at < before else "on_time")
            if self.retract and event.id in self.given:
                results.append({**self.given[event.id], "retracted": True})
            self.given[event.id] = result
            results.append({**result, "retracted": False} if self.retract else result)
        return results, late

    def result(self, event: Any, firing: str) -> dict[str, Any]:
        inside = [
            row for row in self.events if row.key == event.key and event.at - SIZE <= row.at <= event.at
        ]
        amounts = [row.amount for row in inside if row.amount is not None]
        return {
            "key": event.key,
            "window": (event.at - SIZE, event.at),
            "count": len(inside),
            "total": sum(amounts) if amounts else None,
            "greatest": max(amounts, default=None),
            "firing": firing,
        }


def by_key(results: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in results:
        found.setdefault(str(row["key"]), []).append(row)
    return found


@settings(max_examples=EXAMPLES)
@given(data=st.data(), late=st.sampled_from(POLICIES), ends=st.booleans())
def test_sliding_windows_are_those_of_the_reference(
    kit: Any, streams: Any, data: st.DataObject, late: LatePolicy, ends: bool
) -> None:
    batches = data.draw(streams)
    naive = Naive(kit.clock(), late)
    steps = kit.drive(sliding_windows(late), batches, ends=ends)
    for number, (batch, step) in enumerate(zip(batches, steps, strict=True)):
        results, late_rows = naive.step(batch, is_end=ends and number == len(batches) - 1)
        assert by_key(kit.plain(step.outputs["results"])) == by_key(results)
        told = kit.plain(step.outputs.get("late"))
        assert step.counts.get("dropped", 0) + len(told) == len(late_rows)
        if "late" in step.outputs:
            assert sorted(row["id"] for row in told) == sorted(row.id for row in late_rows)


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_where_the_stream_is_cut_does_not_show_when_all_is_allowed_for(
    kit: Any, streams: Any, data: st.DataObject
) -> None:
    batches = data.draw(streams)
    logic = sliding_windows(update(within="1000 seconds", retract=True))
    standing: list[Any] = []
    for step in kit.drive(logic, [*batches, []], ends=True):
        for row in kit.plain(step.outputs["results"]):
            bare = {name: value for name, value in row.items() if name not in {"firing", "retracted"}}
            standing.remove(bare) if row["retracted"] else standing.append(bare)
    (at_once,) = kit.drive(sliding_windows(), [[row for batch in batches for row in batch]], ends=True)
    expected = [
        {name: value for name, value in row.items() if name != "firing"}
        for row in kit.plain(at_once.outputs["results"])
    ]
    assert sorted(standing, key=repr) == sorted(expected, key=repr)


def told(kit: Any, step: Any) -> list[tuple[Any, ...]]:
    return [(row["window"], row["count"], row["firing"]) for row in kit.plain(step.outputs["results"])]


def test_a_window_has_both_of_its_ends_in_it(kit: Any) -> None:
    (step,) = kit.drive(
        sliding_windows(), [[kit.row("a", 10), kit.row("a", 18), kit.row("a", 19)]], ends=True
    )
    assert told(kit, step) == [
        ((2, 10), 1, "on_time"),
        ((10, 18), 2, "on_time"),
        ((11, 19), 2, "on_time"),
    ]


def test_an_event_fires_when_the_watermark_is_later_than_it(kit: Any) -> None:
    batches = [[kit.row("a", 10)], [kit.row("b", 13)], [kit.row("b", 14)]]
    assert [told(kit, step) for step in kit.drive(sliding_windows(), batches)] == [
        [],
        [],
        [((2, 10), 1, "on_time")],
    ]


def test_events_of_the_same_time_are_in_each_others_windows(kit: Any) -> None:
    (step,) = kit.drive(sliding_windows(), [[kit.row("a", 10), kit.row("a", 10)]], ends=True)
    assert told(kit, step) == [((2, 10), 2, "on_time"), ((2, 10), 2, "on_time")]


def test_a_late_event_changes_the_results_after_it(kit: Any) -> None:
    batches = [[kit.row("a", 10), kit.row("a", 30)], [kit.row("a", 8)]]
    steps = kit.drive(sliding_windows(update(within="1 minute")), batches)
    assert told(kit, steps[1]) == [((0, 8), 1, "late"), ((2, 10), 2, "late")]


def test_a_late_event_that_is_dropped_counts_nowhere(kit: Any) -> None:
    batches = [[kit.row("a", 10), kit.row("b", 20)], [kit.row("a", 16)], [kit.row("a", 18), kit.row("b", 40)]]
    steps = kit.drive(sliding_windows(), batches)
    assert steps[1].counts == {"late": 1, "dropped": 1}
    assert ((10, 18), 2, "on_time") in told(kit, steps[2])


def test_events_are_kept_no_longer_than_a_window_can_have_them(kit: Any) -> None:
    steps = kit.drive(sliding_windows(), [[kit.row("a", 10)], [kit.row("b", 21)], [kit.row("b", 22)]])
    assert [step.state["events"].num_rows for step in steps] == [1, 2, 2]


@pytest.mark.parametrize("trigger", [early(rows=3), each(rows=3)])
def test_sliding_windows_refuse_triggers_that_are_not_on_time(trigger: Trigger) -> None:
    with pytest.raises(PipelineError, match="leave the trigger out"):
        SlidingWindows(
            by=(),
            time="at",
            kind=sliding("1 second"),
            aggregates=(),
            watermark=bounded("0 seconds"),
            late=drop,
            trigger=trigger,
        )
