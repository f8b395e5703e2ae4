"""User functions over keyed state, called for each row: against a naive reference, and rule by rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import RESULTS, Arrivals, SourceProgress, Step
from headrace.streams.buckets.tables import KeptTables, Owner, write_table
from headrace.streams.keyed import per_event
from headrace.streams.keyed.fields import Fields
from headrace.streams.keyed.per_event import INTERNAL, PerEvent
from headrace.streams.keyed.timers import Timer, Timers
from headrace.streams.time.policies import Bounded

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS = pa.schema({"k": pa.string(), "j": pa.int64(), "n": pa.int64(), "at": pa.timestamp("us", "UTC")})
DELAY_S, TTL_S = 5, 20

Event = tuple[str | None, int, int | None]
"""A key, a number, and a time in seconds."""


def moment(second: int) -> datetime:
    return EPOCH + timedelta(seconds=second)


def table_of(events: Sequence[Event]) -> pa.Table:
    rows = [
        {"k": key, "j": 1, "n": number, "at": None if second is None else moment(second)}
        for key, number, second in events
    ]
    return pa.Table.from_pylist(rows, ROWS)


def add(key: Any, row: dict[str, Any], state: dict[str, Any], timers: Timers) -> Iterator[dict[str, Any]]:
    """Every third number sets a timer, every seventh takes it back, 13 forgets the key."""
    if row["n"] == 13:
        state.clear()
        return
    state["total"] += row["n"]
    state["seen"].append(row["n"])
    if row["n"] % 3 == 0 and row["at"] is not None:
        timers.set(row["at"] + timedelta(seconds=row["n"]))
    if row["n"] % 7 == 0:
        timers.cancel()
    yield {"total": state["total"], "seen": state["seen"]}


def ring(key: Any, timer: Timer, state: dict[str, Any], timers: Timers) -> dict[str, Any]:
    if len(state["seen"]) > 2:
        timers.set(timer.at + timedelta(seconds=2), "again")
        state["seen"].pop()
    return {"total": state["total"], "rang": timer.at}


def logic(**changes: Any) -> PerEvent:
    told: dict[str, Any] = {
        "fields": Fields(
            operator="adding",
            keys=pa.schema({"k": pa.string()}),
            kept=pa.schema({"total": pa.int64(), "seen": pa.list_(pa.int64())}),
            defaults={"total": 0, "seen": []},
            internal=INTERNAL,
        ),
        "returns": pa.schema(
            {"total": pa.int64(), "seen": pa.list_(pa.int64()), "rang": pa.timestamp("us", "UTC")}
        ),
        "function": add,
        "takes_timers": True,
        "on_timer": ring,
        "one_key": True,
        "event_time": "at",
        "ttl_us": TTL_S * 1_000_000,
        "watermark": Bounded(delay_us=DELAY_S * 1_000_000),
    }
    return PerEvent(**{**told, **changes})


@dataclass
class Bucket:
    """A bucket that steps, with state that goes through bytes as it does in a checkpoint."""

    logic: PerEvent
    blobs: dict[str, bytes] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def step(self, rows: pa.Table, *, is_end: bool = False) -> list[dict[str, Any]]:
        times = [time for time in rows.column("at").to_pylist() if time is not None]
        progress = SourceProgress(
            source="t-0",
            row_count=len(rows),
            event_time_us_max=max(
                ((time - EPOCH) // timedelta(microseconds=1) for time in times), default=None
            ),
            record_time_us_max=0,
        )
        arrivals = Arrivals(rows=rows, progress=(progress,), is_end=is_end)
        step, changes = self._run(arrivals)
        again, changes_again = self._run(arrivals)
        assert write_table(again.outputs[RESULTS]) == write_table(step.outputs[RESULTS])
        assert changes_again == changes
        for name, blob in changes.items():
            if blob is None:
                del self.blobs[name]
            else:
                self.blobs[name] = blob
        for name, count in step.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        found: list[dict[str, Any]] = step.outputs[RESULTS].to_pylist()
        return found

    def _run(self, arrivals: Arrivals) -> tuple[Step, dict[str, bytes | None]]:
        owner = Owner(operator="adding", by=("k",), bucket_count=1)
        kept = KeptTables(self.blobs.get, lambda: self.blobs, owner)
        step = self.logic.step(kept, arrivals)
        return step, kept.changes(step.state)


class Naive:
    """The same by dicts and loops, in seconds, from the rules."""

    def __init__(self) -> None:
        self.states: dict[str | None, dict[str, Any]] = {}
        self.timers: dict[str | None, dict[str, int]] = {}
        self.last: dict[str | None, int] = {}
        self.watermark = -(10**9)
        self.newest = -(10**9)

    def step(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        for key, number, second in events:
            made += self._row(key, number, second)
            self.newest = max(self.newest, -(10**9) if second is None else second)
        self.watermark = max(self.watermark, self.newest - DELAY_S)
        for key in list(self.states):
            made += self._fire(key, self.watermark)
            if (not self.states[key] and not self.timers[key]) or self._is_over(key, self.watermark):
                del self.states[key], self.timers[key]
                self.last.pop(key, None)
        return made

    def _is_over(self, key: str | None, second: int) -> bool:
        return not self.timers[key] and key in self.last and second >= self.last[key] + TTL_S

    def _row(self, key: str | None, number: int, second: int | None) -> list[dict[str, Any]]:
        made = []
        self.timers.setdefault(key, {})
        if second is not None:
            made += self._fire(key, second - DELAY_S)
            if self._is_over(key, second):
                self.states[key] = {}
            self.last[key] = max(second, self.last.get(key, second))
        state = self.states[key] = self.states.get(key) or {"total": 0, "seen": []}
        if number == 13:
            state.clear()
            return made
        state["total"] += number
        state["seen"] = [*state["seen"], number]
        if number % 3 == 0 and second is not None:
            self.timers[key]["timer"] = second + number
        if number % 7 == 0:
            self.timers[key].pop("timer", None)
        return [*made, {"k": key, "total": state["total"], "seen": state["seen"], "rang": None}]

    def _fire(self, key: str | None, until: int) -> list[dict[str, Any]]:
        made = []
        while due := sorted((at, name) for name, at in self.timers[key].items() if at <= until):
            at, name = due[0]
            del self.timers[key][name]
            self.last[key] = max(at, self.last.get(key, at))
            state = self.states[key] = self.states.get(key) or {"total": 0, "seen": []}
            if len(state["seen"]) > 2:
                self.timers[key]["again"] = at + 2
                state["seen"] = state["seen"][:-1]
            made.append({"k": key, "total": state["total"], "seen": None, "rang": moment(at)})
        return made


def sorted_rows(rows: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(str({name: str(value) for name, value in row.items()}) for row in rows)


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from(["a", "b", "ü", "", None]),
                st.integers(0, 21),
                st.none() | st.integers(0, 60),
            ),
            max_size=8,
        ),
        min_size=1,
        max_size=8,
    )
)
def test_every_step_gives_what_dicts_and_loops_give(batches: list[list[Event]]) -> None:
    bucket, naive = Bucket(logic()), Naive()
    for events in batches:
        assert sorted_rows(bucket.step(table_of(events))) == sorted_rows(naive.step(events))


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 21)), min_size=1, max_size=30),
    st.sets(st.integers(0, 30)),
)
def test_where_no_timer_is_set_cuts_don_t_show_and_batch_gives_the_same(
    numbered: list[tuple[str | None, int]], cuts: set[int]
) -> None:
    def count(key: Any, row: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        state["total"] += row["n"]
        return {"total": state["total"]}

    counting = logic(function=count, takes_timers=False, on_timer=None)
    # In order, with gaps that are longer than the time to live.
    events: list[Event] = [(key, number, 7 * place) for place, (key, number) in enumerate(numbered)]
    edges = [0, *sorted(cut for cut in cuts if cut < len(events)), len(events)]
    bucket = Bucket(counting)
    stream = [row for start, end in pairwise(edges) for row in bucket.step(table_of(events[start:end]))]

    assert sorted_rows(stream) == sorted_rows(Bucket(counting).step(table_of(events), is_end=True))


def test_the_state_of_a_key_is_there_for_its_next_row_and_only_for_its_own() -> None:
    bucket = Bucket(logic())

    bucket.step(table_of([("a", 1, 0), ("b", 10, 0)]))

    assert [row["seen"] for row in bucket.step(table_of([("a", 2, 1)]))] == [[1, 2]]


def test_what_was_given_out_stays_what_it_was_when_the_state_changes() -> None:
    found = Bucket(logic()).step(table_of([("a", 1, 0), ("a", 2, 0)]))

    assert [row["seen"] for row in found] == [[1], [1, 2]]


def test_a_timer_fires_when_the_watermark_has_come_to_it_without_a_row_of_its_key() -> None:
    bucket = Bucket(logic())
    bucket.step(table_of([("a", 3, 10)]))

    assert bucket.step(table_of([("b", 1, 17)]))[0]["rang"] is None
    rang = bucket.step(table_of([("b", 1, 18)]))

    assert {"k": "a", "total": 3, "seen": None, "rang": moment(13)} in rang


def test_a_timer_is_not_late_for_a_row_far_behind_it_in_the_same_batch() -> None:
    found = Bucket(logic()).step(table_of([("a", 3, 0), ("a", 7, 30)]), is_end=True)

    # In batch as in a stream, the timer of 0:03 fires before the row of 0:30, which would have cancelled it.
    assert [row["rang"] for row in found] == [None, moment(3), None]


def test_a_key_is_forgotten_when_its_time_to_live_is_over() -> None:
    bucket = Bucket(logic())
    bucket.step(table_of([("a", 1, 0), (None, 1, 10)]))
    bucket.step(table_of([("b", 1, TTL_S + DELAY_S)]))

    assert bucket.counts == {"keys_forgotten": 1}
    assert [row["seen"] for row in bucket.step(table_of([("a", 2, TTL_S + DELAY_S)]))] == [[2]]


def test_a_batch_that_touches_nothing_writes_nothing_but_the_time() -> None:
    bucket = Bucket(logic())
    bucket.step(table_of([("a", 1, 0)]))
    before = dict(bucket.blobs)

    bucket.step(table_of([]))

    assert bucket.blobs == before


def test_several_columns_are_a_key_together() -> None:
    two = logic(
        fields=Fields(
            operator="adding",
            keys=pa.schema({"k": pa.string(), "j": pa.int64()}),
            kept=pa.schema({"total": pa.int64(), "seen": pa.list_(pa.int64())}),
            defaults={"total": 0, "seen": []},
            internal=INTERNAL,
        ),
        one_key=False,
        function=lambda key, *_: {"total": len(key)},
    )
    rows = [{"k": k, "j": j, "n": 1, "at": EPOCH} for k in ("a", None) for j in (1, 2, None)]

    found = Bucket(two).step(pa.Table.from_pylist(rows * 2, ROWS))

    assert len(found) == 12
    assert {(row["k"], row["j"]) for row in found} == {(row["k"], row["j"]) for row in rows}
    assert {row["total"] for row in found} == {2}


def test_floating_keys_are_told_apart_as_spark_does() -> None:
    floating = pa.schema({"k": pa.float64(), "n": pa.int64(), "at": pa.timestamp("us", "UTC")})
    counting = logic(
        fields=Fields(
            operator="adding",
            keys=pa.schema({"k": pa.float64()}),
            kept=pa.schema({"total": pa.int64()}),
            defaults={"total": 0},
            internal=INTERNAL,
        ),
        function=_count,
        takes_timers=False,
    )
    bucket = Bucket(counting)
    rows = pa.Table.from_pylist(
        [{"k": k, "n": 1, "at": EPOCH} for k in (0.0, -0.0, float("nan"), float("nan"), None)], floating
    )

    bucket.step(rows)

    assert sorted(row["total"] for row in bucket.step(rows)) == [2, 3, 3, 4, 4]


def _count(key: Any, row: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    state["total"] += 1
    return {"total": state["total"]}


def raising(key: Any, row: dict[str, Any], state: dict[str, Any]) -> None:
    raise ValueError("no\nsuch thing")


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (raising, r"test_per_event.py:\d+: ValueError: no such thing \(key 'a', given {'k': 'a', 'j': 1,"),
        (lambda *_: {"totl": 1}, r"KeyError: .*it gave 'totl'; returns has total, seen, rang"),
        (lambda *_: 5, r"TypeError: it gave 5: yield dicts of results"),
        (lambda *_: {"total": "many"}, "result 'total' of .* is 'many', which is no int64"),
        (lambda *given: given[2].update(total="many"), "field 'total' that .* set is 'many', which"),
        (lambda *given: given[2].update(more=1), "it keeps 'more' of key 'a'; declare it: state has total"),
    ],
)
def test_what_is_wrong_with_a_function_is_told_with_its_place(
    function: Callable[..., Any], told: str
) -> None:
    bucket = Bucket(logic(function=function, takes_timers=False))
    with pytest.raises(PipelineError, match=told) as failure:
        bucket.step(table_of([("a", 5, 0)]))
    assert "\n" not in str(failure.value)


def test_a_timer_that_sets_itself_again_for_ever_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(per_event, "FIRED_MAX", 10)

    def again(key: Any, timer: Timer, state: dict[str, Any], timers: Timers) -> None:
        timers.set(timer.at + timedelta(minutes=1))

    with pytest.raises(PipelineError, match="was set again and again, 10 times"):
        Bucket(logic(on_timer=again)).step(table_of([("a", 3, 0)]), is_end=True)


def test_a_time_at_the_end_of_all_times_is_taken() -> None:
    last = pa.Table.from_pylist(
        [{"k": "a", "j": 1, "n": 1, "at": datetime(9999, 12, 31, 23, 59, tzinfo=UTC)}], ROWS
    )
    assert len(Bucket(logic()).step(last)) == 1
