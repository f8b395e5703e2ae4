"""Groups that are loaded when they are first needed."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import StorageError
from headrace.kafka.groups_on_demand import GroupsOnDemand


class FakeGroups:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.coordinator = object()

    def start_sweeping(self) -> None:
        self.told.append("sweep")

    def close(self) -> None:
        self.told.append("close")


class Bench:
    """How often groups were made."""

    def __init__(self) -> None:
        self.made: list[FakeGroups] = []
        self.groups = GroupsOnDemand(self._make)

    def _make(self) -> Any:
        self.made.append(FakeGroups())
        return self.made[-1]


def test_they_are_made_once_when_something_is_asked_of_them() -> None:
    bench = Bench()
    bench.groups.start_sweeping()
    assert bench.made == []
    coordinator = bench.groups.coordinator
    assert bench.groups.coordinator is coordinator
    assert [groups.coordinator for groups in bench.made] == [coordinator]


def test_those_that_are_made_late_are_swept_too() -> None:
    bench = Bench()
    bench.groups.start_sweeping()
    bench.groups.load()
    bench.groups.close()
    assert bench.made[0].told == ["sweep", "close"]


def test_those_that_are_made_early_are_swept_from_the_start_on() -> None:
    bench = Bench()
    bench.groups.load()
    assert bench.made[0].told == []
    bench.groups.start_sweeping()
    assert bench.made[0].told == ["sweep"]


def test_groups_that_were_never_needed_end_without_being_made() -> None:
    bench = Bench()
    bench.groups.start_sweeping()
    bench.groups.close()
    assert bench.made == []
    bench.groups.load()
    assert bench.made[0].told == []


def test_groups_that_can_not_be_loaded_are_an_error_and_are_tried_again() -> None:
    refusals = [OSError(24, "Too many open files")]

    def make() -> Any:
        if refusals:
            raise refusals.pop()
        return FakeGroups()

    groups = GroupsOnDemand(make)
    with pytest.raises(StorageError, match=r"loading consumer groups failed: .*Too many open files"):
        groups.load()
    assert groups.coordinator is not None


def test_a_topic_that_is_deleted_before_there_were_groups_leaves_nothing_to_forget() -> None:
    bench = Bench()
    forgotten: list[object] = []
    bench.groups.topics_deleted({"orders"}, forgotten.append)
    assert (forgotten, bench.made) == ([None], [])
