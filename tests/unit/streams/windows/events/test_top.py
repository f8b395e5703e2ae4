"""Leaderboards, by example and against a naive reference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.streams.keyed.top import TopRows
from headrace.streams.time.policies import bounded
from headrace.streams.windows.late import side_output, update

EXAMPLES = 25
SECOND_US = 1_000_000


def top_rows(n: int = 2, *, ttl: int | None = None, item: bool = False, smallest: bool = False) -> TopRows:
    return TopRows(
        by=("key",),
        n=n,
        order_by=("amount",),
        watermark=bounded("3 seconds"),
        smallest=smallest,
        item=("closes",) if item else (),
        time=None if ttl is None else "at",
        ttl_us=None if ttl is None else ttl * SECOND_US,
        late=side_output("late"),
    )


class Naive:
    """All rows for ever, sorted anew each time."""

    def __init__(self, clock: Any, logic: TopRows) -> None:
        self.clock, self.logic = clock, logic
        self.ttl = None if logic.ttl_us is None else logic.ttl_us // SECOND_US
        self.rows: list[Any] = []
        self.told: dict[tuple[Any, int], int] = {}

    def step(self, batch: Any, *, is_end: bool) -> tuple[list[tuple[Any, ...]], list[int]]:
        before, after = self.clock.advance(batch, is_end=is_end)
        if is_end:
            after = max([before, *(row.at for row in batch if row.at is not None)])
        late = [row.id for row in batch if self.ttl and (row.at is None or row.at + self.ttl <= before)]
        self.rows += [row for row in batch if row.id not in late]
        board = self.board(after)
        changed = [
            (key, rank, board.get((key, rank)), (key, rank) not in board)
            for key, rank in {*board, *self.told}
            if board.get((key, rank)) != self.told.get((key, rank))
        ]
        self.told = board
        return changed, late

    def board(self, now: int) -> dict[tuple[Any, int], int]:
        here = list(self.rows)
        if self.logic.item:
            newest = {(row.key, row.closes): row for row in self.rows}
            here = [row for row in self.rows if newest[row.key, row.closes] is row]
        if self.ttl:
            here = [row for row in here if row.at + self.ttl > now]
        sign = 1 if self.logic.smallest else -1
        board = {}
        for key in {row.key for row in here}:
            ordered = sorted(
                (row for row in here if row.key == key),
                key=lambda row: (row.amount is None, sign * (row.amount or 0)),
            )
            for rank, row in enumerate(ordered[: self.logic.n], start=1):
                board[key, rank] = row.id
        return board


@settings(max_examples=2 * EXAMPLES)
@given(
    data=st.data(),
    n=st.integers(1, 4),
    ttl=st.sampled_from([None, 5, 30]),
    item=st.booleans(),
    smallest=st.booleans(),
    ends=st.booleans(),
)
def test_boards_are_those_of_the_reference(
    kit: Any,
    streams: Any,
    data: st.DataObject,
    n: int,
    ttl: int | None,
    item: bool,
    smallest: bool,
    ends: bool,
) -> None:
    batches = data.draw(streams)
    logic = top_rows(n, ttl=ttl, item=item, smallest=smallest)
    naive = Naive(kit.clock(), logic)
    steps = kit.drive(logic, batches, ends=ends)
    for number, (batch, step) in enumerate(zip(batches, steps, strict=True)):
        expected, late = naive.step(batch, is_end=ends and number == len(batches) - 1)
        told = [
            (row["key"], row["rank"], row["id"], row["removed"]) for row in kit.plain(step.outputs["results"])
        ]
        assert sorted(told, key=repr) == sorted(expected, key=repr)
        assert sorted(row["id"] for row in kit.plain(step.outputs.get("late"))) == sorted(late)


def told(kit: Any, step: Any) -> list[tuple[Any, ...]]:
    return [(row["rank"], row["amount"], row["removed"]) for row in kit.plain(step.outputs["results"])]


def test_only_ranks_that_change_are_told(kit: Any) -> None:
    batches = [[kit.row("a", 1, 5), kit.row("a", 1, 9)], [kit.row("a", 1, 7)], [kit.row("a", 1, 1)]]
    steps = kit.drive(top_rows(), batches)
    assert [told(kit, step) for step in steps] == [[(1, 9, False), (2, 5, False)], [(2, 7, False)], []]
    assert steps[2].state["rows"].num_rows == 2


def test_a_rank_is_removed_when_its_row_leaves_and_none_follows(kit: Any) -> None:
    batches = [[kit.row("a", 10, 5), kit.row("a", 30, 9)], [kit.row("b", 40)]]
    steps = kit.drive(top_rows(ttl=20), batches)
    assert told(kit, steps[0]) == [(1, 9, False), (2, 5, False)]
    assert [row for row in kit.plain(steps[1].outputs["results"]) if row["key"] == "a"] == [
        {"key": "a", "rank": 2, "at": None, "amount": None, "closes": None, "id": None, "removed": True}
    ]


def test_a_row_replaces_the_one_of_the_same_item(kit: Any) -> None:
    batches = [[kit.row("a", 1, 9, closes=True), kit.row("a", 1, 5)], [kit.row("a", 2, 3, closes=True)]]
    steps = kit.drive(top_rows(item=True), batches)
    assert told(kit, steps[1]) == [(1, 5, False), (2, 3, False)]


@pytest.mark.parametrize(
    "arguments",
    [
        {"n": 0, "order_by": ("amount",)},
        {"n": 1, "order_by": ()},
        {"n": 1, "order_by": ("amount",), "time": "at"},
        {"n": 1, "order_by": ("amount",), "late": update(within="1 hour")},
    ],
)
def test_what_can_not_be_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(PipelineError, match="top"):
        TopRows(by=("key",), watermark=bounded("0 seconds"), **arguments)
