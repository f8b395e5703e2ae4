"""What patterns find, and when, in a few stories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import Arrivals
from headrace.streams.patterns import automaton, walk
from headrace.streams.patterns.logic import PatternMatches
from headrace.streams.patterns.skipping import all_matches, skip_to_first, skip_to_last
from headrace.streams.patterns.so_far import MatchSoFar

Start = Callable[..., Any]
MakeRow = Callable[..., Any]


def test_a_match_is_told_as_soon_as_the_watermark_is_past_its_last_row(start: Start, row: MakeRow) -> None:
    run = start("a{2} b")
    assert run.step([row("x", 1, "a", 1), row("x", 2, "a", 2), row("x", 3, "b", 3)]) == []
    assert run.step([row("y", 6, "")]) == []
    assert run.step([row("y", 7, "")]) == [("x", "match", 1, 3, (("a", 1), ("a", 2), ("b", 3)))]
    assert run.counts == {"matches": 1}


def test_by_arrival_a_match_is_told_at_once(start: Start, row: MakeRow) -> None:
    run = start("a b", is_by_arrival=True)
    assert run.step([row("x", 2, "a", 1), row("x", 1, "b", 2)]) == [
        ("x", "match", 1, 2, (("a", 1), ("b", 2)))
    ]
    assert run.state["rows"].num_rows == 0


def test_a_greedy_match_is_told_when_nothing_longer_can_come(start: Start, row: MakeRow) -> None:
    run = start("a b+", is_by_arrival=True, within=None)
    assert run.step([row("x", 1, "a", 1), row("x", 2, "b", 2)]) == []
    assert run.step([row("x", 3, "b", 3)]) == []
    assert run.step([row("x", 4, "c", 4)]) == [("x", "match", 1, 3, (("a", 1), ("b", 2), ("b", 3)))]
    reluctant = start("a b+?", is_by_arrival=True, within=None)
    assert reluctant.step([row("x", 1, "a", 1), row("x", 2, "b", 2)]) == [
        ("x", "match", 1, 2, (("a", 1), ("b", 2)))
    ]


def test_what_has_not_come_in_time_is_told_when_time_is_over(start: Start, row: MakeRow) -> None:
    """An order, and no confirmation within 5 seconds."""
    run = start("a !b", within=5)
    run.step([row("x", 0, "a", 1), row("y", 0, "a", 2), row("y", 5, "b", 3), row("z", 1, "a", 4)])
    assert run.step([row("w", 8, "c")]) == []
    assert run.step([row("w", 9, "c")]) == [("x", "match", 0, 5, (("a", 1),))]
    assert run.step([row("w", 10, "c")]) == [("z", "match", 1, 6, (("a", 4),))]
    assert run.state["rows"].num_rows == 0


def test_rows_between_steps_are_allowed_where_the_pattern_says_so(start: Start, row: MakeRow) -> None:
    rows = [row("x", 1, "a", 1), row("x", 2, "", 2), row("x", 3, "c", 3), row("x", 4, "b", 4)]

    def found(pattern: str, contiguity: str) -> int:
        run = start(pattern, contiguity=contiguity, is_by_arrival=True)
        return len(run.step(rows))

    assert found("a b", "strict") == 0
    assert found("a .. b", "strict") == 1
    assert found("a b", "relaxed") == 1
    assert found("a !c b", "relaxed") == 0
    assert found("a !c b", "strict") == 0


def test_behind_a_gap_the_row_counts_that_comes_first(start: Start, row: MakeRow) -> None:
    run = start("a (b | c)", contiguity="relaxed", is_by_arrival=True)
    rows = [row("x", 1, "a", 1), row("x", 2, "c", 2), row("x", 3, "b", 3)]
    assert run.step(rows) == [("x", "match", 1, 2, (("a", 1), ("c", 2)))]


def test_where_the_search_goes_on_is_asked_for(start: Start, row: MakeRow) -> None:
    rows = [row("x", number, names, number) for number, names in enumerate(["a", "ab", "ab", "b"])]

    def found(emit: Any) -> list[list[int]]:
        run = start("a+ b", emit=emit, is_by_arrival=True)
        run.step(rows)
        run.step(is_end=True)
        return [[number for _, number in evidence] for *_, evidence in run.found]

    assert found(all_matches) == [[0, 1, 2, 3], [1, 2, 3], [2, 3]]
    assert found(skip_to_first("b")) == [[0, 1, 2, 3]]
    assert found(skip_to_last("a")) == [[0, 1, 2, 3], [2, 3]]


def test_conditions_can_ask_for_the_match_so_far(start: Start, row: MakeRow) -> None:
    def falls(row: Any, match: MatchSoFar) -> bool:
        return match.previous is None or row["amount"] < match.previous["amount"]

    def recovers(row: Any, match: MatchSoFar) -> bool:
        lowest = match.min("amount", "a")
        return lowest is not None and row["amount"] > 2 * lowest and match.count("a") >= 2

    run = start("a+ b", functions={"a": falls, "b": recovers}, is_by_arrival=True)
    amounts = [10, 8, 3, 5, 9]
    found = run.step([row("x", number, "ab", number, amount) for number, amount in enumerate(amounts)])
    assert found == []
    assert run.step([row("x", 5, "ab", 5, 1)]) == []
    found = run.step([row("x", 6, "ab", 6, 4)])
    assert [each[-1] for each in found] == [(("a", 4), ("a", 5), ("b", 6))]


def test_a_condition_that_fails_says_where_and_of_which_key_and_row(start: Start, row: MakeRow) -> None:
    def compares(row: Any, match: MatchSoFar) -> bool:
        return bool(row["amount"] > 1)

    run = start("a b", functions={"b": compares}, is_by_arrival=True)
    with pytest.raises(PipelineError, match=r"test_stories.py:\d+: TypeError.*key \('x',\), given .*'id': 2"):
        run.step([row("x", 1, "a", 1), row("x", 2, "b", 2, None)])


def test_an_attempt_that_reaches_the_limit_is_cut_off_and_counted(start: Start, row: MakeRow) -> None:
    run = start("a b", contiguity="relaxed", limit=3, within=None, is_by_arrival=True)
    run.step([row("x", number, "a", number) for number in range(3)])
    assert run.found == []
    assert run.step([row("x", 3, "c", 3)]) == [("x", "cut_off", 0, 0, (("a", 0),))]
    assert run.counts == {"cut_off": 1}
    assert run.state["rows"].num_rows == 3
    assert run.step([row("x", 4, "b", 4)]) == [
        ("x", "match", 2, 4, (("a", 2), ("b", 4))),
        ("x", "cut_off", 1, 1, (("a", 1),)),
    ]
    assert run.state["rows"].num_rows == 0


def test_an_attempt_with_too_many_ways_is_cut_off(
    start: Start, row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "WALK_MAX", 50)
    run = start("(a+)+ b", functions={"b": lambda *_: False}, is_by_arrival=True)
    run.step([row("x", 1, "ab", number) for number in range(20)])
    assert run.counts["cut_off"] >= 1
    assert {outcome for _, outcome, *_ in run.found} == {"cut_off"}


def test_matches_of_equal_rows_are_numbered_and_a_checkpoint_without_numbers_goes_on(
    start: Start, row: MakeRow
) -> None:
    run = start("a .. b", emit=all_matches)
    run.step([row("x", 1, "a"), row("x", 1, "a"), row("x", 1, "a", 7), row("y", 1, "a"), row("y", 5, "")])
    run.state["rows"] = run.state["rows"].drop_columns(["_apart"])
    run.step([row("x", 5, "b")])
    assert [apart for _, apart in run.ids] == []
    run.step([row("y", 9, "")])
    assert [apart for _, apart in run.ids] == [None] * 3
    again = start("a .. b", emit=all_matches)
    again.step([row("x", 1, "a"), row("x", 1, "a"), row("x", 1, "a", 7), row("x", 2, "a"), row("y", 5, "")])
    again.step([row("x", 5, "b"), row("y", 9, "")])
    assert [apart for _, apart in again.ids] == [None, 1, None, None]


def test_by_arrival_matches_of_equal_rows_are_not_told_apart_however_batches_are_cut(
    start: Start, row: MakeRow
) -> None:
    together, apart = (start("a", is_by_arrival=True) for _ in range(2))
    together.step([row("x", 1, "a")] * 2)
    apart.step([row("x", 1, "a")])
    apart.step([row("x", 1, "a")])
    assert together.ids == apart.ids
    assert [number for _, number in apart.ids] == [None, None]


def test_partial_matches_come_out_on_request_when_their_time_is_over(start: Start, row: MakeRow) -> None:
    rows = [row("x", 0, "a", 1), row("x", 1, "a", 2), row("y", 0, "a", 3), row("y", 1, "c", 4)]
    run = start("a{2} b", timed_out=True)
    run.step(rows)
    assert run.step([row("z", 9, "")]) == [("x", "timed_out", 0, 5, (("a", 1), ("a", 2)))]
    silent = start("a{2} b")
    silent.step(rows)
    assert silent.step([row("z", 30, "")]) == []


def test_rows_that_are_late_or_have_no_time_are_told_apart(start: Start, row: MakeRow) -> None:
    run = start("a b")
    run.step([row("x", 10, "a", 1)])
    run.step(
        [row("x", 6, "a", 2), row("x", None, "b", 3), row("x", 7, "a", 4), row("x", 253402300799, "b", 5)]
    )
    assert run.late_ids == {2, 3}
    assert run.counts == {"late": 1, "no_event_time": 1}
    run.step(is_end=True)
    assert run.found == []


def test_nothing_is_written_anew_where_nothing_has_changed(start: Start, row: MakeRow) -> None:
    run = start("a b")
    run.step([row("x", 1, "a", 1), row("y", 9, "")])
    before = run.state
    made = run.search.logic().step(before, Arrivals(rows=before["waiting"].slice(0, 0)))
    assert made.state["rows"] is before["rows"]
    assert made.state["waiting"] is before["waiting"]


def test_columns_may_come_and_go_while_rows_are_kept(start: Start, row: MakeRow) -> None:
    run = start("a b")
    run.step([row("x", 1, "a", 1), row("y", 5, "", 2), row("x", 6, "b", 3)])
    assert run.state["rows"].num_rows == run.state["waiting"].num_rows - 1 == 1
    run.state = {
        name: table.drop_columns(["amount"]).append_column("old", pa.nulls(table.num_rows))
        if name in {"rows", "waiting"}
        else table
        for name, table in run.state.items()
    }
    assert run.step([row("y", 20, "", 4)]) == [("x", "match", 1, 6, (("a", 1), ("b", 3)))]


def test_an_automaton_that_has_become_large_is_begun_anew(
    start: Start, row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automaton, "_TABLE_SIZE_MAX", 1)
    run = start("(a | b | c){2,40} c", within=None, contiguity="relaxed")
    rows = [row("x", number, "abc"[number % 3], number) for number in range(60)]
    for begin in range(0, 60, 20):
        run.step(rows[begin : begin + 20])
    run.step(is_end=True)
    # As long as possible: 40 rows, and then the next one that is a c; and what is left.
    assert [(evidence[0][1], evidence[-1][1], len(evidence)) for *_, evidence in run.found] == [
        (0, 41, 41),
        (42, 59, 18),
    ]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"limit": 0}, "limit be at least one"),
        ({"within": None, "pattern": "a !b"}, "say within="),
    ],
)
def test_what_can_not_be_searched_for_is_refused(start: Start, asked: dict[str, Any], told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        start(**{"pattern": "a b", **asked}).search.logic()


def test_a_key_can_not_be_called_as_a_column_of_matches(start: Start) -> None:
    logic: PatternMatches = start("a b").search.logic()
    rows = pa.schema({"start": pa.string(), "at": pa.timestamp("us"), "_argument_mask": pa.int64()})
    object.__setattr__(logic, "by", ("start",))
    with pytest.raises(PipelineError, match="makes the column start itself"):
        logic.output_schemas(rows)
