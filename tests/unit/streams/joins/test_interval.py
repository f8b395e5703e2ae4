"""Joins of two streams, by example and against a naive reference."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.streams.joins import interval, probe
from headrace.streams.joins.interval import IntervalJoin
from headrace.streams.joins.within import HOWS, How, Within, between
from headrace.streams.time.policies import bounded
from headrace.streams.windows.late import side_output, update

EXAMPLES = 60
ALONE = {"left": {"left", "full", "anti"}, "right": {"right", "full"}}


def join(how: How, before: int, after: int, **more: Any) -> IntervalJoin:
    policy = bounded("3 seconds")
    return IntervalJoin(
        by=("key",),
        left=("left_id",),
        right=() if how in {"semi", "anti"} else ("right_id",),
        within=between(before=f"{before} seconds", after=f"{after} seconds"),
        how=how,
        **{"watermarks": {"left": policy, "right": policy}, "late": side_output("late"), **more},
    )


class Naive:
    """Everything that has come, joined anew each time."""

    def __init__(self, clock: Any, how: How, before: int, after: int) -> None:
        self.clock, self.how, self.reach = clock, how, {"left": after, "right": before}
        self.before, self.after = before, after
        self.rows: dict[str, list[Any]] = {"left": [], "right": []}

    def step(self, batch: Any, *, is_end: bool) -> tuple[Counter[Any], Counter[Any]]:
        """All results so far, and the late rows of the batch."""
        before, now = self.clock.advance(batch, is_end=is_end)
        late: Counter[Any] = Counter()
        for row in batch:
            if row.at is None or row.at < before:
                late[row.id] += 1
            else:
                self.rows[row.side].append(row)
        return self.results(now), late

    def results(self, now: int) -> Counter[Any]:
        pairs = [(left, right) for left in self.rows["left"] for right in self.rows["right"]]
        pairs = [(left, right) for left, right in pairs if self.belong(left, right)]
        has_company = {row.id for pair in pairs for row in pair}
        found: Counter[Any] = Counter()
        if self.how == "semi":
            found.update((row.key, row.id) for row in self.rows["left"] if row.id in has_company)
        elif self.how != "anti":
            found.update((left.key, left.id, right.id) for left, right in pairs)
        for side, hows in ALONE.items():
            for row in self.rows[side] if self.how in hows else ():
                is_over = row.key is None or row.at + self.reach[side] < now
                if is_over and row.id not in has_company:
                    found[self.alone(side, row)] += 1
        return found

    def alone(self, side: str, row: Any) -> tuple[Any, ...]:
        if self.how == "anti":
            return row.key, row.id
        return (row.key, row.id, None) if side == "left" else (row.key, None, row.id)

    def belong(self, left: Any, right: Any) -> bool:
        is_near: bool = left.at - self.before <= right.at <= left.at + self.after
        return left.key is not None and left.key == right.key and is_near


@settings(max_examples=EXAMPLES)
@given(
    data=st.data(),
    how=st.sampled_from(HOWS),
    within=st.sampled_from([(0, 10), (10, 0), (5, 5), (0, 0), (-3, 12), (12, -3), (40, 40)]),
    ends=st.booleans(),
)
def test_results_after_each_batch_are_those_of_the_reference(
    kit: Any, streams: Any, data: st.DataObject, how: How, within: tuple[int, int], ends: bool
) -> None:
    batches = data.draw(streams({}))
    naive = Naive(kit.clock(), how, *within)
    found: Counter[Any] = Counter()
    for number, (batch, step) in enumerate(
        zip(batches, kit.drive(join(how, *within), batches, ends=ends), strict=True)
    ):
        expected, late = naive.step(batch, is_end=ends and number == len(batches) - 1)
        found.update(tuple(row.values()) for row in kit.plain(step.outputs["results"]))
        assert found == expected
        told = Counter(
            row["left_id"] if row["join_side"] == "left" else row.get("right_id")
            for row in kit.plain(step.outputs.get("late"))
        )
        if how not in {"semi", "anti"}:
            assert told == late
        assert step.counts.get("late", 0) + step.counts.get("no_event_time", 0) == late.total()


@pytest.mark.parametrize("how", HOWS)
def test_state_is_bounded_by_the_interval(kit: Any, how: How) -> None:
    store = kit.store()
    logic = join(how, 0, 20)
    kept = []
    for second in range(0, 500, 5):
        rows = [
            kit.row(side, "ab"[second % 2], second, id=second, written=second) for side in ("left", "right")
        ]
        store.step(logic, kit.arrivals_of(rows))
        kept.append(len(store.kept))
    # In half of the time nothing more is kept than in the other.
    assert max(kept[50:]) <= max(kept[:50])


def test_a_side_that_is_idle_holds_nothing_back(kit: Any) -> None:
    policy = bounded("0 seconds", idle_after="30 seconds")
    logic = join("left", 0, 10, watermarks={"left": policy, "right": policy})
    batches = [
        [kit.row("left", "a", 0, id=1, written=0)],
        [kit.row("left", "b", 25, id=2, written=25)],
        [kit.row("left", "c", 40, id=3, written=40)],
        # It counts again when it has rows again.
        [kit.row("right", "c", 41, id=4, written=41)],
    ]
    given = [kit.plain(step.outputs["results"]) for step in kit.drive(logic, batches)]
    assert [[(row["left_id"], row["right_id"]) for row in rows] for rows in given] == [
        [],
        [],
        [(1, None), (2, None)],
        [(3, 4)],
    ]


def test_the_time_that_is_told_is_that_of_both_sides(kit: Any) -> None:
    batches = [[kit.row("left", "a", 50), kit.row("right", "a", 20)]]
    (step,) = kit.drive(join("inner", 0, 10), batches)
    assert step.gauges == {"watermark_us": 17_000_000}
    assert step.time_report is not None
    assert step.time_report.watermark_us == 17_000_000
    assert step.time_report.newest_event_us == 50_000_000
    assert [(each.source, each.passed_us) for each in step.time_report.sources] == [
        ("topic-0", 17_000_000),
        ("topic-0", 47_000_000),
    ]


def test_late_rows_say_how_late_they_were_and_of_which_side(kit: Any) -> None:
    batches = [
        [kit.row("left", "a", 50), kit.row("right", "a", 50)],
        [kit.row("right", "a", 40, id=7), kit.row("left", "a", None, id=8)],
    ]
    late = kit.plain(kit.drive(join("inner", 0, 10), batches)[1].outputs["late"])
    assert [(row["join_side"], row["late_by_ms"], row["reason"]) for row in late] == [
        ("left", None, "no event time"),
        ("right", 7000, "late"),
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [({"late": update(within="1 hour")}, "late rows can't update"), ({"how": "outer"}, "there are inner")],
)
def test_what_can_not_be_is_refused(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        join(**{"how": "inner", "before": 0, "after": 1, **arguments})


def test_an_interval_that_ends_before_it_begins_is_refused() -> None:
    assert between(after="1 hour") == Within(before_us=0, after_us=3_600_000_000)
    assert between(before="-5 minutes", after="1 hour").text == "-5 minutes before to 1 hour after"
    with pytest.raises(PipelineError, match="ends before it begins"):
        between(before="-2 hours", after="1 hour")


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pairs of keys were compared at a time."""
    counts: list[int] = []

    def counting(one: Any, other: Any, by: Any) -> Any:
        counts.append(one.num_rows)
        assert one.schema.names == other.schema.names == list(by)
        return probe.same_keys(one, other, by)

    monkeypatch.setattr(interval, "same_keys", counting)
    return counts


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_one_row_of_the_other_side_is_company_enough(kit: Any, how: How, compared: list[int]) -> None:
    count, store, logic = 40, kit.store(), join(how, 50, 50)
    rights = [kit.row("right", "a", number % 3, id=number) for number in range(count)]
    lefts = [kit.row("left", "a", number % 3, id=number) for number in range(count)]
    # New rows with kept ones, on either side, and new ones with new ones.
    given = 0
    for batch in (lefts[:20], rights, lefts[20:], [*lefts, *rights]):
        compared.clear()
        step = store.step(logic, kit.arrivals_of(batch))
        given += step.outputs["results"].num_rows
        # Each step is made twice.
        assert sum(compared) <= 2 * 2 * count
    assert given == (2 * count if how == "semi" else 0)


def test_pairs_are_made_a_few_at_a_time(
    kit: Any, compared: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "PAIRS_MAX", 7)
    rows = [kit.row(side, "a", second, id=second) for second in range(10) for side in ("left", "right")]
    (step,) = kit.drive(join("full", 50, 50), [rows])
    pairs = Counter((row["left_id"], row["right_id"]) for row in kit.plain(step.outputs["results"]))
    assert pairs == Counter((left, right) for left in range(10) for right in range(10))
    assert max(compared) == 7


@given(
    stretches=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), max_size=8),
    same=st.sets(st.integers(0, 20)),
)
def test_what_is_found_is_the_same_as_pairs_as_rows_and_as_company(
    stretches: list[tuple[int, int]], same: set[int]
) -> None:
    found = probe.Found(*np.array(stretches, dtype=np.int64).reshape(-1, 2).T)
    pairs = [(who, first + more) for who, (first, count) in enumerate(stretches) for more in range(count)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(probe, "PAIRS_MAX", 3)
        made = [
            pair for who, places in found.pairs() for pair in zip(who.tolist(), places.tolist(), strict=True)
        ]
    assert made == pairs
    assert found.all().tolist() == sorted({place for _, place in pairs})
    is_same = found.any(lambda _, places: np.isin(places, list(same)))
    assert np.flatnonzero(is_same).tolist() == sorted({who for who, place in pairs if place in same})
