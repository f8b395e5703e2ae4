"""Deduplication, by example and against a naive reference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.streams.keyed.deduplicate import Deduplicate
from headrace.streams.time.policies import bounded
from headrace.streams.windows.late import side_output, update

EXAMPLES = 25
SECOND_US = 1_000_000


def deduplicate(ttl: int | None) -> Deduplicate:
    return Deduplicate(
        by=("key",),
        watermark=bounded("3 seconds"),
        time=None if ttl is None else "at",
        ttl_us=None if ttl is None else ttl * SECOND_US,
        late=side_output("late"),
        duplicates=side_output("duplicates"),
    )


class Naive:
    """Everything that was given, for ever."""

    def __init__(self, clock: Any, ttl: int | None) -> None:
        self.clock, self.ttl = clock, ttl
        self.given: list[Any] = []

    def step(self, batch: Any, *, is_end: bool) -> tuple[list[int], list[int], list[int]]:
        before, _ = self.clock.advance(batch, is_end=is_end)
        new, duplicates, late = [], [], []
        for row in batch:
            if self.ttl is not None and (row.at is None or row.at + self.ttl <= before):
                late.append(row.id)
            elif any(row.key == one.key and self.is_near(row, one) for one in self.given):
                duplicates.append(row.id)
            else:
                self.given.append(row)
                new.append(row.id)
        return new, duplicates, late

    def is_near(self, row: Any, one: Any) -> bool:
        return self.ttl is None or abs(row.at - one.at) < self.ttl


@settings(max_examples=EXAMPLES)
@given(data=st.data(), ttl=st.sampled_from([1, 5, 30, None]), ends=st.booleans())
def test_rows_are_those_of_the_reference(
    kit: Any, streams: Any, data: st.DataObject, ttl: int | None, ends: bool
) -> None:
    batches = data.draw(streams)
    naive = Naive(kit.clock(), ttl)
    steps = kit.drive(deduplicate(ttl), batches, ends=ends)
    for number, (batch, step) in enumerate(zip(batches, steps, strict=True)):
        new, duplicates, late = naive.step(batch, is_end=ends and number == len(batches) - 1)
        told = [
            [row["id"] for row in kit.plain(step.outputs.get(name))]
            for name in ("results", "duplicates", "late")
        ]
        assert told == [new, duplicates, late]
        assert step.counts.get("duplicates", 0) == len(duplicates)


def test_a_key_is_given_again_when_the_ttl_is_over(kit: Any) -> None:
    rows = [kit.row("a", at, id=at) for at in (10, 12, 14, 15)]
    (step,) = kit.drive(deduplicate(5), [rows])
    assert step.outputs["results"]["id"].to_pylist() == [10, 15]
    assert step.outputs["duplicates"]["id"].to_pylist() == [12, 14]


def test_an_earlier_row_that_comes_later_is_a_duplicate_too(kit: Any) -> None:
    steps = kit.drive(deduplicate(5), [[kit.row("a", 12)], [kit.row("a", 10)]])
    assert [step.counts for step in steps] == [{}, {"duplicates": 1}]


def test_what_was_given_is_forgotten_after_twice_the_ttl(kit: Any) -> None:
    batches = [[kit.row("a", 10)], [kit.row("b", 22)], [kit.row("b", 23)]]
    kept = [step.state["given"]["key"].to_pylist() for step in kit.drive(deduplicate(5), batches)]
    assert kept == [["a"], ["a", "b"], ["b"]]


def test_a_row_too_old_to_be_judged_is_late(kit: Any) -> None:
    batches = [[kit.row("a", 30)], [kit.row("a", 22), kit.row("a", 23), kit.row("a", None)]]
    late = kit.plain(kit.drive(deduplicate(5), batches)[1].outputs["late"])
    assert [(row["at"], row["window"], row["reason"]) for row in late] == [
        (22, (22, 27), "late"),
        (None, None, "no event time"),
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        {"by": ()},
        {"by": ("key",), "time": "at"},
        {"by": ("key",), "ttl_us": 1},
        {"by": ("key",), "late": update(within="1 hour")},
    ],
)
def test_what_can_not_be_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(PipelineError, match="deduplicate"):
        Deduplicate(watermark=bounded("0 seconds"), **arguments)


def test_a_key_that_comes_very_often_is_given_as_often_as_the_ttl_allows(kit: Any) -> None:
    rows = [kit.row("a", at, id=at) for at in range(1_000)]
    (step,) = kit.drive(deduplicate(2), [rows])
    assert step.outputs["results"]["id"].to_pylist() == list(range(0, 1_000, 2))
