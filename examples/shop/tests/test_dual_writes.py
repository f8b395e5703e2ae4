"""Why the shop writes to its database only: the same writes and the same faults, told twice.

A story has customers who write at the same time, and faults: a process that dies right after one of its
writes, and a store that refuses one. It is told once with *dual writes*, where the application writes to the
database, then to the search index, then to the cache; and once *through the log*, where it writes to the
database, whose log is then applied to each store by a follower of its own, in order, with a ledger in the
store that says how far it is. Both tellings have the same schedule: who moves next, and what befalls him.

Everybody who has something left to do then does it, without further faults. What differs after that differs
for good: nobody is left who would put it right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

Fault = Literal["none", "dies", "refused"]
Change = tuple[str, int | None]
"""A key, and its value; None deletes it."""
Rows = dict[str, int]

STORES = ("search", "cache")
FAULTS: tuple[Fault, ...] = ("none", "dies", "refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What happens."""

    writers: Sequence[Sequence[Change]]
    """What each of the application's processes writes, one change after the other."""
    schedule: Sequence[tuple[int, Fault]]
    """Who moves next, as a number among those who have something to do, and what befalls him."""


@dataclass(slots=True)
class Database:
    """Rows and a log of them: a commit is in both or in none."""

    rows: Rows = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)

    def commit(self, change: Change) -> None:
        apply(self.rows, change)
        self.log.append(change)


@dataclass(slots=True)
class Store:
    """Rows, and a ledger that changes in the same commit: how much of the log is in them."""

    rows: Rows = field(default_factory=dict)
    ledger: int = 0

    def take(self, offset: int, change: Change) -> None:
        if offset >= self.ledger:
            apply(self.rows, change)
            self.ledger = offset + 1


def apply(rows: Rows, change: Change) -> None:
    key, value = change
    if value is None:
        rows.pop(key, None)
    else:
        rows[key] = value


class Process(Protocol):
    """Somebody who does one thing after the other."""

    @property
    def is_idle(self) -> bool: ...

    def move(self, fault: Fault) -> None: ...


class DualWriter:
    """An application that writes each change to three places."""

    def __init__(self, changes: Iterable[Change], database: Database, stores: Sequence[Store]) -> None:
        self._changes = list(changes)
        self._database = database
        self._stores = stores
        self._written_count = 0

    @property
    def is_idle(self) -> bool:
        return not self._changes

    def move(self, fault: Fault) -> None:
        change = self._changes[0]
        if fault != "refused":
            if self._written_count == 0:
                self._database.commit(change)
            else:
                apply(self._stores[self._written_count - 1].rows, change)
            self._written_count += 1
        # A process that died takes the next request when it is back, and so does one whose write was refused:
        # what is committed can't be taken back, and what was meant to follow is known to nobody any more.
        if fault != "none" or self._written_count > len(self._stores):
            self._changes.pop(0)
            self._written_count = 0


class LogWriter:
    """An application that writes each change to the database."""

    def __init__(self, changes: Iterable[Change], database: Database) -> None:
        self._changes = list(changes)
        self._database = database

    @property
    def is_idle(self) -> bool:
        return not self._changes

    def move(self, fault: Fault) -> None:
        change = self._changes.pop(0)
        if fault != "refused":
            self._database.commit(change)


class Follower:
    """Applies the log to a store. What it remembers dies with it; what it is sure of is in the store."""

    def __init__(self, database: Database, store: Store) -> None:
        self._database = database
        self._store = store
        self._next = 0

    @property
    def is_idle(self) -> bool:
        return self._next == len(self._database.log)

    def move(self, fault: Fault) -> None:
        if fault == "refused":
            # It is down: the same change is tried again.
            return
        self._store.take(self._next, self._database.log[self._next])
        # One that dies before it has noted that begins with its checkpoint, which lies behind by any number.
        self._next = max(0, self._next - 2) if fault == "dies" else self._next + 1


def play(story: Story, processes: Sequence[Process]) -> None:
    """Let them all move as the schedule says, and then without faults until nobody has anything to do."""
    for pick, fault in story.schedule:
        busy = [process for process in processes if not process.is_idle]
        if busy:
            busy[pick % len(busy)].move(fault)
    while busy := [process for process in processes if not process.is_idle]:
        busy[0].move("none")


Telling = Callable[[Story], tuple[Database, list[Store]]]


def dual_writes(story: Story) -> tuple[Database, list[Store]]:
    database, stores = Database(), [Store() for _ in STORES]
    play(story, [DualWriter(changes, database, stores) for changes in story.writers])
    return database, stores


def through_the_log(story: Story) -> tuple[Database, list[Store]]:
    database, stores = Database(), [Store() for _ in STORES]
    writers = [LogWriter(changes, database) for changes in story.writers]
    play(story, [*writers, *(Follower(database, store) for store in stores)])
    return database, stores


def diverges(telling: Telling, story: Story) -> bool:
    database, stores = telling(story)
    return any(store.rows != database.rows for store in stores)


def stories() -> st.SearchStrategy[Story]:
    changes = st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 9))
    return st.builds(
        Story,
        writers=st.lists(st.lists(changes, min_size=1, max_size=5), min_size=1, max_size=3),
        schedule=st.lists(st.tuples(st.integers(0, 5), st.sampled_from(FAULTS)), max_size=60),
    )


@settings(deadline=None, max_examples=1_000)
@given(story=stories())
def test_through_the_log_all_stores_end_equal_whatever_befalls_whom(story: Story) -> None:
    database, stores = through_the_log(story)

    assert [store.rows for store in stores] == [database.rows] * len(stores)
    assert [store.ledger for store in stores] == [len(database.log)] * len(stores)


def test_dual_writes_of_one_process_diverge_when_it_dies_between_two_writes() -> None:
    story = Story(writers=[[("a", 1)]], schedule=[(0, "dies")])

    database, stores = dual_writes(story)
    assert (database.rows, [store.rows for store in stores]) == ({"a": 1}, [{}, {}])
    assert not diverges(through_the_log, story)


def test_dual_writes_diverge_when_one_store_refuses_one_write() -> None:
    story = Story(writers=[[("a", 1)]], schedule=[(0, "none"), (0, "none"), (0, "refused")])

    database, stores = dual_writes(story)
    assert (database.rows, [store.rows for store in stores]) == ({"a": 1}, [{"a": 1}, {}])
    assert not diverges(through_the_log, story)


def test_dual_writes_of_two_processes_diverge_without_any_fault() -> None:
    # Two changes of the same row at the same time: nothing fails, and nobody is told anything.
    moves = (0, 1, 1, 0, 1, 0)
    story = Story(writers=[[("a", 1)], [("a", 2)]], schedule=[(pick, "none") for pick in moves])

    database, stores = dual_writes(story)
    assert (database.rows, [store.rows for store in stores]) == ({"a": 2}, [{"a": 1}, {"a": 1}])
    assert not diverges(through_the_log, story)


def random_story(seed: int, *, fault_weight: int) -> Story:
    """Three processes, of whose moves so many in a hundred go wrong."""
    random = Random(seed)
    writers = [[(random.choice("abcdefgh"), random.randrange(100)) for _ in range(20)] for _ in range(3)]
    faults = random.choices(FAULTS, (100 - 2 * fault_weight, fault_weight, fault_weight), k=400)
    return Story(writers=writers, schedule=[(random.randrange(60), fault) for fault in faults])


@pytest.mark.parametrize("fault_weight", [0, 1, 5])
def test_of_many_stories_a_good_part_diverges_by_dual_writes_and_none_through_the_log(
    fault_weight: int,
) -> None:
    told = [random_story(seed, fault_weight=fault_weight) for seed in range(200)]

    assert sum(diverges(dual_writes, story) for story in told) > 50
    assert not any(diverges(through_the_log, story) for story in told)


def test_a_follower_without_a_ledger_would_let_a_store_go_back() -> None:
    """The proof can fail: what holds the stores together is the order of the log and the ledger."""

    class Forgetful(Store):
        def take(self, _offset: int, change: Change) -> None:
            apply(self.rows, change)
            seen.append(dict(self.rows))

    seen: list[Rows] = []
    database = Database()
    for value in (1, 2, 3):
        database.commit(("a", value))
    follower = Follower(database, Forgetful())
    faults: list[Fault] = ["none", "none", "dies", "none"]
    for fault in faults:
        follower.move(fault)

    assert seen[-2:] == [{"a": 3}, {"a": 1}]
