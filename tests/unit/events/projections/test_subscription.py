"""Events taken in order, each with its effect once: cuts, restarts, poison, several runners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ConfigError, ProjectionStopped, StoreUnavailable
from headrace.events import EventStore, MemoryJournal, Recorded
from headrace.events.projections import MemoryPlace, MemoryWork, Poison, Projection, ReadModels, projection
from headrace.events.projections.memory_place import MemoryBatch
from headrace.events.projections.place import live
from headrace.events.projections.source import page_reader
from headrace.events.subscription import Subscription
from headrace.events.upcasting import Written, upcast


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
        name="sums",
        handle=handle,
        batch_count_max=batch,
        poison=Poison(then="bury", attempt_count_max=2, pause_s=0),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    colour: str


def with_foreign() -> EventStore:
    """A store in which another service has written what this one can't read."""
    journal = MemoryJournal()
    ours, theirs = EventStore(journal, types=[Added]), EventStore(journal, types=[Foreign])
    ours.append("sum-1", [Added(amount=1)])
    theirs.append("paint-1", [Foreign(colour="red")])
    ours.append("sum-1", [Added(amount=2)])
    theirs.append("paint-1", [Foreign(colour="blue")])
    return ours


def test_events_of_a_type_that_a_projection_does_not_take_need_not_be_readable() -> None:
    place = MemoryPlace()
    sums = Projection(name="sums", handle=total, types=(Added,), batch_count_max=1)
    models = ReadModels(with_foreign(), place, [sums])
    models.catch_up()
    assert place.tables("sums")["seen"] == {1: 1, 3: 2}
    assert models.status()[0].behind == 0
    assert models.dead_letters("sums") == []


@pytest.mark.parametrize("batch", [1, 2, 3, 500])
def test_an_event_that_cant_be_read_is_poison(batch: int) -> None:
    place = MemoryPlace()
    poison = Poison(then="bury", attempt_count_max=1)
    sums = Projection(name="sums", handle=total, batch_count_max=batch, poison=poison)
    models = ReadModels(with_foreign(), place, [sums])
    models.catch_up()
    assert place.tables("sums")["seen"] == {1: 1, 3: 2}
    assert [(each.position, each.type) for each in models.dead_letters("sums")] == [
        (2, "Foreign"),
        (4, "Foreign"),
    ]
    assert models.dead_letters("sums")[0].cause.startswith("UnreadableEvents: events are stored that nothing")
    stopping = Projection(name="all", handle=total, poison=Poison(then="stop", attempt_count_max=1))
    with pytest.raises(ProjectionStopped, match=r"all stands still at position 2 \(Foreign of paint-1\)"):
        ReadModels(with_foreign(), place, [stopping]).catch_up()


def test_a_projection_takes_what_upcasts_read_as_its_types_and_their_subclasses() -> None:
    journal = MemoryJournal()
    EventStore(journal, types=[Renamed, Foreign]).append("a-1", [Renamed(name="x"), Foreign(colour="red")])
    by_way_of = [
        upcast("Renamed", 1, lambda _: [Written("Between", 1, {})], leads_to=[("Between", 1)]),
        upcast("Between", 1, lambda _: [Written("Added", 1, {"amount": 7})] * 2, leads_to=[("Added", 1)]),
    ]
    store = EventStore(journal, types=[Added], upcasts=by_way_of)
    store.append("sum-1", [Added(amount=1)])
    assert _taken(store, Added) == [(1, 7), (1, 7), (3, 1)]
    assert _taken(store, object) == [(1, 7), (1, 7), (3, 1)]


def _taken(store: EventStore, wanted: type) -> list[tuple[int, int]]:
    taken: list[tuple[int, int]] = []

    def handle(work: MemoryWork, event: Recorded) -> None:
        if isinstance(event.data, Added):
            taken.append((event.position, event.data.amount))

    sums = Projection(name="sums", handle=handle, types=(wanted,), batch_count_max=1)
    ReadModels(store, MemoryPlace(), [sums]).catch_up()
    return taken


def test_a_projection_of_types_that_the_store_does_not_know_is_refused() -> None:
    sums = Projection(name="sums", handle=total, types=(Foreign,))
    with pytest.raises(ConfigError, match="sums takes Foreign, and the store knows no such events"):
        ReadModels(new_store(), MemoryPlace(), [sums])


def test_a_projection_stands_still_at_poison_unless_it_says_otherwise() -> None:
    def misspelt(work: MemoryWork, event: Recorded) -> None:
        raise KeyError("ammount")

    place = MemoryPlace()
    models = ReadModels(filled(1, 2), place, [Projection(name="sums", handle=misspelt)])
    with pytest.raises(ProjectionStopped, match="KeyError: 'ammount'"):
        models.catch_up()
    assert models.dead_letters("sums") == []
    assert models.status()[0].behind == 2
