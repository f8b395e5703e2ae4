"""What a search costs, counted: functions that are asked, rows that are made, attempts that are traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from headrace.streams.patterns import looks, python_rows, trace
from headrace.streams.patterns.skipping import all_matches, skip_to_last
from headrace.streams.patterns.so_far import Link, MatchSoFar
from headrace.streams.windows.late import drop

Start = Callable[..., Any]
MakeRow = Callable[..., Any]
STEPPED = 2
"""The kit steps each micro-batch twice."""


class Asked:
    """Functions of a price that falls and recovers, and how often they were asked."""

    def __init__(self) -> None:
        self.count = 0

    def falls(self, row: Mapping[str, Any], match: MatchSoFar) -> bool:
        self.count += 1
        return match.previous is None or row["amount"] < match.previous["amount"]

    def recovers(self, row: Mapping[str, Any], match: MatchSoFar) -> bool:
        self.count += 1
        return bool(row["amount"] > 2 * match.min("amount", "a") + match.count())

    @property
    def functions(self) -> dict[str, Any]:
        return {"a": self.falls, "b": self.recovers}


def falling(row: MakeRow, count: int) -> list[Any]:
    return [row("x", number, "ab", number, count - number) for number in range(count)]


def test_functions_are_not_asked_behind_an_attempt_that_is_undecided(start: Start, row: MakeRow) -> None:
    count, asked = 300, Asked()
    run = start("a{2,} b", within=None, is_by_arrival=True, functions=asked.functions)
    assert run.step(falling(row, count)) == []
    assert asked.count <= STEPPED * count


def test_functions_are_asked_once_for_each_row_of_each_attempt(start: Start, row: MakeRow) -> None:
    count, asked = 100, Asked()
    run = start("a{2,} b", within=None, is_by_arrival=True, emit=all_matches, functions=asked.functions)
    run.step(falling(row, count))
    assert asked.count <= STEPPED * count * (count + 1) / 2


def test_rows_are_made_once_in_a_step_and_only_for_keys_in_which_something_is_asked(
    start: Start, row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    rows_of = python_rows.rows_of

    def counting(table: pa.Table) -> list[Any]:
        made.append(len(table))
        return list(rows_of(table))

    monkeypatch.setattr(python_rows, "rows_of", counting)
    monkeypatch.setattr(python_rows, "BLOCK_ROWS", 16)
    asked = Asked()
    run = start("a{2,} b", within=None, is_by_arrival=True, emit=all_matches, functions=asked.functions)
    run.step(falling(row, 100) + [row("y", number, "c", number) for number in range(100)])
    assert sum(made) == STEPPED * 100
    made.clear()
    run.step([row("z", 200, "ab", 1, 1)])
    assert sum(made) == STEPPED


class Counted(dict[str, Any]):
    """A row that counts how often it is read."""

    reads = 0

    def __getitem__(self, name: str) -> Any:
        Counted.reads += 1
        return super().__getitem__(name)


def test_what_is_asked_of_the_match_so_far_is_one_step_more_for_each_row() -> None:
    last: Link | None = None
    count = 200
    Counted.reads = 0
    for place in range(count):
        last = Link(last, bit=0, place=place, name="ab"[place % 2], row=Counted(n=place))
        match = MatchSoFar.up_to(last)
        assert match.sum("n") == place * (place + 1) / 2
        assert match.max("n", "a") == place // 2 * 2
    assert Counted.reads == count + count / 2


def test_without_functions_nothing_is_walked_and_cut_off_attempts_have_their_evidence(
    start: Start, row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "walk", None)
    # A few at a time, each of another length than the others.
    monkeypatch.setattr(trace, "CELLS_MAX", 40)
    run = start("a .. b", within=None, is_by_arrival=True, limit=20)
    run.step([row("x", number, "a", number) for number in range(70)])
    assert run.found == [("x", "cut_off", number, number, (("a", number),)) for number in range(50)]
    run.step([row("x", 70, "b", 70)])
    assert run.found[50:] == [
        ("x", "match", 51, 70, (("a", 51), ("b", 70))),
        ("x", "cut_off", 50, 50, (("a", 50),)),
    ]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many attempts were traced at a time."""
    counts: list[int] = []

    def counting(*given: Any, **more: Any) -> Any:
        counts.append(len(given[3]))
        return trace.trace(*given, **more)

    monkeypatch.setattr(looks, "trace", counting)
    return counts


def test_cut_off_attempts_that_are_dropped_are_only_counted(
    start: Start, row: MakeRow, traced: list[int]
) -> None:
    run = start("a .. b", within=None, is_by_arrival=True, limit=5, cut_off=drop)
    run.step([row("x", number, "a", number) for number in range(50)])
    assert run.counts == {"cut_off": 45}
    assert run.found == []
    assert sum(traced) == 0


def test_only_matches_that_are_given_are_traced(start: Start, row: MakeRow, traced: list[int]) -> None:
    run = start("a+ b", is_by_arrival=True, within=None)
    run.step([row("x", number, "a" if number % 10 < 9 else "b", number) for number in range(100)])
    assert len(run.found) == 10
    assert sum(traced) == STEPPED * 10


def test_matches_that_decide_where_the_search_goes_on_are_traced_a_few_at_a_time(
    start: Start, row: MakeRow, traced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "_TRACED_TOGETHER", 4)
    run = start("a+ b", is_by_arrival=True, within=None, emit=skip_to_last("b"))
    run.step([row("x", number, "a" if number % 10 < 9 else "b", number) for number in range(100)])
    assert len(run.found) == 10
    assert sum(traced) <= STEPPED * 10 * 4
