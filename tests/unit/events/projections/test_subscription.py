"""Events taken in order, each with its effect once: cuts, restarts, poison, several runners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ProjectionStopped, StoreUnavailable
from headrace.events import EventStore, MemoryJournal, Recorded
from headrace.events.projections import MemoryPlace, MemoryWork, Poison, Projection, ReadModels, projection
from headrace.events.projections.memory_place import MemoryBatch
from headrace.events.projections.place import live
from headrace.events.projections.source import page_reader
from headrace.events.subscription import Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    name: str


def total(work: MemoryWork, event: Recorded) -> None:
    if isinstance(event.data, Added):
        rows = work.tables["totals"]
        rows[event.stream] = rows.get(event.stream, 0) + event.data.amount
        work.tables["seen"][event.position] = event.data.amount


def new_store() -> EventStore:
    return EventStore(MemoryJournal(), types=[Added, Renamed])


def filled(*amounts: int) -> EventStore:
    store = new_store()
    for number, amount in enumerate(amounts):
        store.append(f"sum-{number % 3}", [Added(amount=amount)])
    return store


class DyingPlace(MemoryPlace):
    """A place whose process dies at the end of some batches: before they count, or after."""

    def __init__(self, deaths: list[str]) -> None:
        super().__init__()
        self._deaths = deaths

    @contextmanager
    def begin(self, projection: Projection, number: int, *, alone: bool) -> Iterator[MemoryBatch]:
        death = self._deaths.pop() if self._deaths else "never"
        with super().begin(projection, number, alone=alone) as batch:
            yield batch
            if death == "before":
                raise KeyboardInterrupt
        if death == "after":
            raise KeyboardInterrupt


@settings(max_examples=150, deadline=None)
@given(
    amounts=st.lists(st.integers(-5, 5), max_size=25),
    batch=st.integers(1, 7),
    poison=st.sets(st.integers(1, 25), max_size=4),
    deaths=st.lists(st.sampled_from(["before", "after", "never"]), max_size=20),
)
def test_each_event_counts_once_whatever_is_poison_and_wherever_the_process_dies(
    amounts: list[int], batch: int, poison: set[int], deaths: list[str]
) -> None:
    def handle(work: MemoryWork, event: Recorded) -> None:
        total(work, event)
        if event.position in poison:
            raise ValueError(f"poison at {event.position}")

    store = filled(*amounts)
    sums = Projection(
        name="sums", handle=handle, batch_count_max=batch, poison=Poison(attempt_count_max=2, pause_s=0)
    )
    place = DyingPlace(deaths)
    while True:
        try:
            ReadModels(store, place, [sums]).catch_up()
            break
        except KeyboardInterrupt:
            continue
    expected = {at: amount for at, amount in enumerate(amounts, start=1) if at not in poison}
    assert place.tables("sums").get("seen", {}) == expected
    letters = place.dead_letters("sums")
    assert [letter.position for letter in letters] == sorted(at for at in poison if at <= len(amounts))
    assert all(letter.cause == f"ValueError: poison at {letter.position}" for letter in letters)
    assert all(letter.attempt_count == 2 for letter in letters)
    assert live(place, "sums").position == len(amounts)


def test_two_runners_of_one_projection_take_each_event_once() -> None:
    store = filled(*range(1, 40))
    sums = Projection(name="sums", handle=total, batch_count_max=4)
    place = MemoryPlace()
    place.prepare(sums)
    one, other = (Subscription(page_reader(store, sums), place, sums) for _ in range(2))
    stale = live(place, "sums")
    for _ in range(10):
        # The second always starts from what it knew at first, as if it had been asleep.
        one.run_once(live(place, "sums"))
        other.run_once(stale)
    assert sum(place.tables("sums")["totals"].values()) == sum(range(1, 40))
    assert live(place, "sums").position == 39


def test_a_projection_that_stops_at_poison_has_taken_all_before_it_and_nothing_after() -> None:
    def handle(work: MemoryWork, event: Recorded) -> None:
        if event.position == 4:
            raise ValueError("no")
        total(work, event)

    place = MemoryPlace()
    sums = Projection(name="sums", handle=handle, poison=Poison(then="stop", attempt_count_max=2, pause_s=0))
    models = ReadModels(filled(1, 2, 3, 4, 5), place, [sums])
    with pytest.raises(
        ProjectionStopped, match=r"sums stands still at position 4 \(Added of sum-0\): ValueError"
    ):
        models.catch_up()
    assert place.tables("sums")["seen"] == {1: 1, 2: 2, 3: 3}
    assert place.dead_letters("sums") == []


def test_an_error_that_passes_buries_nothing_and_its_pauses_grow() -> None:
    attempts: list[int] = []
    pauses: list[float] = []

    def handle(work: MemoryWork, event: Recorded) -> None:
        attempts.append(event.position)
        if event.position == 2 and attempts.count(2) < 4:
            raise TimeoutError("for now")
        total(work, event)

    store, place = filled(1, 2, 3), MemoryPlace()
    sums = Projection(name="sums", handle=handle, poison=Poison(attempt_count_max=5, pause_s=0.5))
    place.prepare(sums)
    subscription = Subscription(page_reader(store, sums), place, sums, sleep=pauses.append)
    subscription.run_once(live(place, "sums"))
    assert place.tables("sums")["seen"] == {1: 1, 2: 2, 3: 3}
    assert place.dead_letters("sums") == []
    # It failed once in its batch, and twice alone.
    assert pauses == [0.5, 1.0]


def test_a_place_that_does_not_answer_is_not_the_fault_of_an_event() -> None:
    def handle(work: MemoryWork, event: Recorded) -> None:
        raise StoreUnavailable("gone")

    place = MemoryPlace()
    sums = Projection(name="sums", handle=handle, poison=Poison(attempt_count_max=1))
    models = ReadModels(filled(1), place, [sums])
    with pytest.raises(StoreUnavailable):
        models.catch_up()
    assert place.dead_letters("sums") == []
    assert live(place, "sums").position == 0


def test_events_that_a_projection_does_not_take_move_its_position() -> None:
    store, place = new_store(), MemoryPlace()
    store.append("sum-1", [Renamed(name="a"), Added(amount=1), Renamed(name="b")])
    names: list[str] = []

    @projection("names", types=(Renamed,))
    def renamed(work: MemoryWork, event: Recorded) -> None:
        names.append(event.data.name)

    @projection("sums", types=(Added,))
    def sums(work: MemoryWork, event: Recorded) -> None:
        work.tables["sums"][event.stream] = event.data.amount

    models = ReadModels(store, place, [renamed, sums])
    models.catch_up()
    assert names == ["a", "b"]
    assert [status.behind for status in models.status()] == [0, 0]
    assert models.wait_for("sums", 3, timeout_s=0) == 3


@settings(max_examples=30, deadline=None)
@given(amounts=st.lists(st.integers(-9, 9), min_size=1, max_size=12), data=st.data())
def test_the_model_is_the_fold_of_a_prefix_after_each_batch(amounts: list[int], data: st.DataObject) -> None:
    store, place = filled(*amounts), MemoryPlace()
    sums = Projection(name="sums", handle=total, batch_count_max=data.draw(st.integers(1, 5)))
    place.prepare(sums)
    subscription = Subscription(page_reader(store, sums), place, sums)
    generation = live(place, "sums")
    prefix_sums = [0, *accumulate(amounts)]
    while (further := subscription.run_once(generation)) is not None:
        generation = further
        assert sum(place.tables("sums")["totals"].values()) == prefix_sums[generation.position]
