"""Session windows, by example and against a naive reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.streams.time.policies import bounded
from headrace.streams.windows.exact import Count, Sum
from headrace.streams.windows.kinds import session_window
from headrace.streams.windows.late import LatePolicy, Update, drop, side_output, update, within_us
from headrace.streams.windows.quantiles import percentile
from headrace.streams.windows.sessions import SessionWindows
from headrace.streams.windows.triggers import Early, Trigger, each, early, on_time

EXAMPLES = 25
GAP = 6
SECOND_US = 1_000_000
POLICIES = [
    drop,
    side_output("late"),
    update(within="10 seconds"),
    update(within="10 seconds", retract=True, then=side_output("late")),
    update(within="200 seconds", retract=True),
]
TRIGGERS = [on_time(), early(rows=1), early(rows=3), early(every="1 second"), early(every="10 seconds")]


def sessions(late: LatePolicy = drop, trigger: Trigger | None = None) -> SessionWindows:
    return SessionWindows(
        by=("key",),
        time="at",
        kind=session_window(f"{GAP} seconds"),
        aggregates=(
            Count(name="count"),
            Sum(name="total", column="amount"),
            percentile("amount", 0.5, name="median"),
        ),
        watermark=bounded("3 seconds"),
        late=late,
        trigger=trigger or on_time(),
    )


@dataclass
class NaiveSession:
    key: str | None
    first: int
    last: int
    rows: list[Any]
    fired: bool = False
    fresh: int = 0
    since: int = 0
    given: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    def result(self, firing: str) -> dict[str, Any]:
        amounts = sorted(row.amount for row in self.rows if row.amount is not None)
        return {
            "key": self.key,
            "window": (self.first, self.last + GAP),
            "count": len(self.rows),
            "total": sum(amounts) if amounts else None,
            "median": float(amounts[(len(amounts) - 1) // 2]) if amounts else None,
            "firing": firing,
        }


class Naive:
    """Session windows, an event and a session at a time."""

    def __init__(self, clock: Any, late: LatePolicy, trigger: Trigger) -> None:
        self.clock, self.trigger = clock, trigger
        self.within = within_us(late) // SECOND_US
        self.retract = isinstance(late, Update) and late.retract
        self.sessions: list[NaiveSession] = []
        self.told = 0

    def step(self, batch: Any, *, is_end: bool) -> tuple[list[dict[str, Any]], list[Any]]:
        before, after = self.clock.advance(batch, is_end=is_end)
        for row in batch:
            if row.at is not None:
                self.add(row)
        late = [row for row in batch if row.at is None]
        for one in self.sessions:
            if one.last + GAP + self.within <= before:
                late += one.rows
        self.sessions = [one for one in self.sessions if one.last + GAP + self.within > before]
        results = []
        for one in sorted(self.sessions, key=lambda one: (str(one.key), one.first)):
            results += self.fire(one, before, after)
        self.sessions = [one for one in self.sessions if one.last + GAP + self.within > after]
        return results, late

    def add(self, row: Any) -> None:
        now = self.clock.log_time
        new = NaiveSession(row.key, row.at, row.at, [row], fresh=1, since=now)
        for old in [one for one in self.sessions if one.key == row.key]:
            if new.first - old.last < GAP and old.first - new.last < GAP:
                self.sessions.remove(old)
                new = NaiveSession(
                    row.key,
                    min(new.first, old.first),
                    max(new.last, old.last),
                    old.rows + new.rows,
                    fresh=old.fresh + new.fresh,
                    since=min(old.since, new.since),
                    given=old.given + new.given,
                )
        self.sessions.append(new)

    def fire(self, one: NaiveSession, before: int, after: int) -> list[dict[str, Any]]:
        end = one.last + GAP
        if end <= after:
            if one.fired:
                return []
            one.fired = True
            firing = "late" if end <= before else "on_time"
        elif one.fresh and self.is_asked(one):
            firing = "early"
        else:
            return []
        one.fresh, one.since = 0, self.clock.log_time
        result = one.result(firing)
        if not self.retract:
            return [result]
        back = [{**old, "retracted": True} for _, old in sorted(one.given, key=lambda told: told[0])]
        self.told += 1
        one.given = [(self.told, result)]
        return [*back, {**result, "retracted": False}]

    def is_asked(self, one: NaiveSession) -> bool:
        if not isinstance(self.trigger, Early):
            return False
        if self.trigger.rows is not None:
            return one.fresh >= self.trigger.rows
        assert self.trigger.every_us is not None
        return bool(self.clock.log_time - one.since >= self.trigger.every_us // SECOND_US)


def by_key(results: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in results:
        found.setdefault(str(row["key"]), []).append(row)
    return found


@settings(max_examples=EXAMPLES)
@given(data=st.data(), late=st.sampled_from(POLICIES), trigger=st.sampled_from(TRIGGERS), ends=st.booleans())
def test_sessions_are_those_of_the_reference(
    kit: Any, streams: Any, data: st.DataObject, late: LatePolicy, trigger: Trigger, ends: bool
) -> None:
    batches = data.draw(streams)
    naive = Naive(kit.clock(), late, trigger)
    steps = kit.drive(sessions(late, trigger), batches, ends=ends)
    for number, (batch, step) in enumerate(zip(batches, steps, strict=True)):
        results, late_rows = naive.step(batch, is_end=ends and number == len(batches) - 1)
        assert by_key(kit.plain(step.outputs["results"])) == by_key(results)
        told = kit.plain(step.outputs.get("late"))
        if "late" in step.outputs:
            assert sorted(row["id"] for row in told) == sorted(row.id for row in late_rows)
        counts = step.counts
        assert counts.get("late", 0) + counts.get("no_event_time", 0) == len(late_rows)
        assert counts.get("dropped", 0) + len(told) == len(late_rows)


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_where_the_stream_is_cut_does_not_show_when_all_is_allowed_for(
    kit: Any, streams: Any, data: st.DataObject
) -> None:
    batches = data.draw(streams)
    logic = sessions(update(within="1000 seconds", retract=True))
    told = [
        row
        for step in kit.drive(logic, [*batches, []], ends=True)
        for row in kit.plain(step.outputs["results"])
    ]
    standing: list[Any] = []
    for row in told:
        bare = {name: value for name, value in row.items() if name not in {"firing", "retracted"}}
        if row["retracted"]:
            standing.remove(bare)
        else:
            standing.append(bare)
    (at_once,) = kit.drive(sessions(), [[row for batch in batches for row in batch]], ends=True)
    expected = [
        {name: value for name, value in row.items() if name != "firing"}
        for row in kit.plain(at_once.outputs["results"])
    ]
    assert sorted(standing, key=repr) == sorted(expected, key=repr)


def windows_of(kit: Any, steps: Any) -> list[list[tuple[Any, ...]]]:
    return [
        [(row["window"], row["count"], row["firing"]) for row in kit.plain(step.outputs["results"])]
        for step in steps
    ]


def test_a_row_in_between_joins_two_sessions(kit: Any) -> None:
    batches = [[kit.row("a", 10), kit.row("a", 18)], [kit.row("a", 14)], [kit.row("b", 60)]]
    assert windows_of(kit, kit.drive(sessions(), batches)) == [[], [], [((10, 24), 3, "on_time")]]


def test_events_a_gap_apart_are_two_sessions(kit: Any) -> None:
    (step,) = kit.drive(sessions(), [[kit.row("a", 10), kit.row("a", 16)]], ends=True)
    assert [row["window"] for row in kit.plain(step.outputs["results"])] == [(10, 16), (16, 22)]


def test_a_late_row_counts_where_the_session_it_joins_is_still_open(kit: Any) -> None:
    batches = [
        [kit.row("a", 30)],
        [kit.row("b", 36)],
        [kit.row("a", 25), kit.row("a", 20)],
        [kit.row("a", 99)],
    ]
    steps = kit.drive(sessions(), batches)
    assert windows_of(kit, steps)[3] == [((20, 36), 3, "on_time"), ((36, 42), 1, "on_time")]
    assert [step.counts for step in steps] == [{}, {}, {}, {}]


def test_a_late_row_says_its_window_and_how_late_it_is(kit: Any) -> None:
    batches = [[kit.row("a", 30)], [kit.row("a", 10, id=7), kit.row("a", None, id=8)]]
    late = kit.plain(kit.drive(sessions(side_output("late")), batches)[1].outputs["late"])
    assert [
        (row["id"], row["window"], row["late_by_ms"], row["watermark"], row["reason"]) for row in late
    ] == [
        (7, (10, 16), 11_000, 27, "late"),
        (8, None, None, 27, "no event time"),
    ]


def test_a_session_that_grows_after_it_has_fired_takes_its_result_back(kit: Any) -> None:
    batches = [[kit.row("a", 10)], [kit.row("b", 19)], [kit.row("a", 15)], [kit.row("b", 30)]]
    steps = kit.drive(sessions(update(within="1 minute", retract=True)), batches)
    told = [
        (row["window"], row["firing"], row["retracted"]) for row in kit.plain(steps[3].outputs["results"])
    ]
    assert windows_of(kit, steps)[1:3] == [[((10, 16), 1, "on_time")], []]
    assert told[:2] == [((10, 16), "on_time", True), ((10, 21), "on_time", False)]


def test_a_session_without_keys_is_one_of_all_rows(kit: Any) -> None:
    logic = SessionWindows(
        by=(),
        time="at",
        kind=session_window("6 seconds"),
        aggregates=(Count(name="count"),),
        watermark=bounded("0 seconds"),
        late=drop,
    )
    (step,) = kit.drive(logic, [[kit.row("a", 1), kit.row("b", 2)]], ends=True)
    assert kit.plain(step.outputs["results"]) == [{"window": (1, 8), "count": 2, "firing": "on_time"}]


def test_sessions_refuse_triggers_of_global_windows() -> None:
    with pytest.raises(PipelineError, match="on_time"):
        sessions(drop, each(rows=3))


def test_state_in_which_nothing_changes_is_not_written_again(kit: Any) -> None:
    logic = sessions()
    state = logic.step({}, kit.arrivals([kit.row("a", 10)])).state
    after = logic.step(state, kit.arrivals([])).state
    assert after["sessions"] is state["sessions"]
