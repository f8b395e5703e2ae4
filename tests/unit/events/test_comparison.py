"""Two deciders on the same history."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from headrace import events
from headrace.errors import EventsError
from headrace.events.comparison import Comparison, Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """Something was added."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """What was added."""

    total: int = 0
    last: int = 0


@events.decider("sum")
class Right:
    """Adds."""

    initial = Sum()

    @staticmethod
    def decide(_state: Sum, command: Added) -> list[Added]:
        return [command]

    @staticmethod
    def evolve(state: Sum, event: Added) -> Sum:
        return Sum(total=state.total + event.count, last=event.count)


@events.decider("sum")
class Wrong:
    """Leaves out what is above 9."""

    initial = Sum()

    @staticmethod
    def decide(_state: Sum, command: Added) -> list[Added]:
        return [command]

    @staticmethod
    def evolve(state: Sum, event: Added) -> Sum:
        total = state.total + (event.count if event.count < 10 else 0)
        return Sum(total=total, last=event.count)


@events.decider("sum")
class Counting:
    """Has a state without fields."""

    initial = 0

    @staticmethod
    def decide(_state: int, command: Added) -> list[Added]:
        return [command]

    @staticmethod
    def evolve(state: int, event: Added) -> int:
        return state + event.count


@events.decider("product")
class Product:
    """Multiplies."""

    initial = 1

    @staticmethod
    def decide(_state: int, command: Added) -> list[Added]:
        return [command]

    @staticmethod
    def evolve(state: int, event: Added) -> int:
        return state * event.count


def test_the_fields_that_differ_are_named_and_others_are_not() -> None:
    comparison = Comparison(Right, Wrong)
    for stream, count in [("sum-1", 5), ("sum-2", 50), ("sum-1", 3), ("other-1", 70)]:
        comparison.take(stream, Added(count=count))
    found = comparison.result()
    assert found.differences == (Difference(stream="sum-2", field="total", left=50, right=0),)
    assert (found.event_count, found.stream_count, found.different_stream_count) == (3, 2, 1)


def test_code_that_is_the_same_has_no_difference() -> None:
    comparison = Comparison(Right, Right)
    comparison.take("sum-1", Added(count=50))
    assert comparison.result().difference_count == 0


def test_all_are_counted_and_some_are_kept() -> None:
    comparison = Comparison(Right, Wrong)
    for number in range(10):
        comparison.take(f"sum-{number}", Added(count=50))
    found = comparison.result(count_max=3)
    assert [each.stream for each in found.differences] == ["sum-0", "sum-1", "sum-2"]
    assert found.difference_count == 10


def test_states_of_another_shape_differ_in_all_that_one_of_them_has() -> None:
    comparison = Comparison(Right, Counting)
    comparison.take("sum-1", Added(count=1))
    assert {each.field for each in comparison.result().differences} == {"total", "last", ""}


def test_deciders_of_different_categories_are_not_compared() -> None:
    with pytest.raises(EventsError, match="one category"):
        Comparison(Right, Product)


def test_what_is_no_decider_is_not_compared() -> None:
    with pytest.raises(EventsError, match="not both deciders"):
        Comparison(Right, int)
