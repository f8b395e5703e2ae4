"""Which changes are let go, so that transactions are seen as a whole: the rules, apart from tables.

1. Transactions are let go in the order in which they ended, each when all its changes are there. A change
   that was sent twice counts once.
2. What lies in front of a change in its partition is let go before it. Captures write transactions in the
   order in which they were committed, so a transaction is overtaken only if its end never comes; it is then
   let go as it is, because a change that came behind a later one of its row would undo that.
3. A change of no transaction, such as a row of a snapshot, and one of a transaction that was let go already,
   waits only for what is held in front of it in its partition.
4. No change waits longer than a time that is given, and no more than a number that is given wait: those that
   have waited longest are let go, with all transactions that ended before theirs.
5. The same holds for ends: one of which no change has come in that time is given up, and no more than that
   number are kept.

So a transaction of which a change never comes, because it was deleted before it was read or is a dead letter,
holds others back for a time and not for ever. Changes that are let go without the rest of their transaction
are told.

All of that depends on what has arrived and when, and not on whose changes they are: whoever is given the same
decides the same. Pure: no Spark, no I/O.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Held(NamedTuple):
    """A change that has arrived."""

    transaction: str | None
    order: int | None
    """Which of its transaction's changes it is; None where that is not told."""
    partition: object
    came_us: int


class Ended(NamedTuple):
    """A transaction that has ended, and how many changes it has."""

    transaction: str
    change_count: int
    came_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Until when changes and ends are held, and how many of each."""

    came_before_us: int
    """Those that came earlier have waited long enough."""
    held_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of what has arrived."""

    goes: list[bool]
    """Which changes are let go."""
    is_apart: list[bool]
    """Which of them without the rest of their transaction."""
    released: Mapping[str, bool]
    """The transactions that were let go, in their order, and whether all of each was there."""
    ended: list[Ended]
    """Those that have ended and are not let go."""
    given_up_count: int
    """How many ends were given up before any change of theirs came."""


def decide(
    changes: Sequence[Held], ended: Sequence[Ended], gone: Mapping[str, bool], limits: Limits
) -> Decision:
    """Decide on changes, each partition's in its order, and transactions in the order of their ends.

    `gone` are those that were let go before, and whether all of each was there.
    """
    search = _Search(changes=changes, ended=[each for each in ended if each.transaction not in gone])
    for place, change in enumerate(changes):
        search.add(place, change, is_free=change.transaction is None or change.transaction in gone)
    search.let_whole_go()
    goes = search.goes()
    while forced := search.forced(goes, limits):
        for transaction in forced:
            search.give_up(transaction)
        search.let_whole_go()
        goes = search.goes()
    given_up = search.give_ends_up(limits)
    goes = search.goes()
    known = {**gone, **search.released}
    return Decision(
        goes=goes,
        is_apart=[
            is_gone and change.transaction is not None and not known[change.transaction]
            for change, is_gone in zip(changes, goes, strict=True)
        ],
        released=search.released,
        ended=search.waiting_ends(),
        given_up_count=len(given_up),
    )


@dataclass(slots=True, kw_only=True)
class _Search:
    changes: Sequence[Held]
    ended: list[Ended]
    released: dict[str, bool] = field(default_factory=dict)
    places: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Where the changes of each transaction are."""
    queues: defaultdict[object, deque[int]] = field(default_factory=lambda: defaultdict(deque))
    """Where those of each partition are that may have to wait."""
    is_free: list[bool] = field(default_factory=list)
    next_ended: int = 0
    numbers: dict[str, int] = field(init=False)
    """Where each transaction that has ended is among those."""

    def __post_init__(self) -> None:
        self.numbers = {each.transaction: number for number, each in enumerate(self.ended)}

    def add(self, place: int, change: Held, *, is_free: bool) -> None:
        self.is_free.append(is_free)
        if not is_free and change.transaction is not None:
            self.places[change.transaction].append(place)
            self.queues[change.partition].append(place)

    def let_whole_go(self) -> None:
        """Let transactions go up to the first that is not whole."""
        while self.next_ended < len(self.ended):
            transaction, count, _ = self.ended[self.next_ended]
            if transaction not in self.released and self._arrived(transaction) < count:
                return
            self._let_go(transaction)
            self.next_ended += 1

    def give_up(self, transaction: str) -> None:
        """Let a transaction go as it is, and all that ended before it."""
        while self.next_ended <= self.numbers.get(transaction, -1):
            self._let_go(self.ended[self.next_ended].transaction)
            self.next_ended += 1
        self._let_go(transaction)

    def give_ends_up(self, limits: Limits) -> list[str]:
        """Give those up that have waited too long for a first change, or are too many, and tell which."""
        waiting = self.waiting_ends()
        old = [each.transaction for each in waiting if each.came_us < limits.came_before_us]
        excess = [each.transaction for each in waiting[: max(0, len(waiting) - limits.held_max)]]
        given_up = [each for each in dict.fromkeys((*old, *excess)) if each not in self.places]
        for transaction in given_up:
            self._let_go(transaction)
        # Those that are too many and have changes go with these.
        for transaction in excess:
            self.give_up(transaction)
        self.let_whole_go()
        return given_up

    def waiting_ends(self) -> list[Ended]:
        """The ends of transactions that are not let go."""
        return [each for each in self.ended if each.transaction not in self.released]

    def goes(self) -> list[bool]:
        """Which changes are let go as things are."""
        goes: list[bool] = []
        waiting: set[object] = set()
        for change, is_free in zip(self.changes, self.is_free, strict=True):
            is_gone = change.partition not in waiting if is_free else change.transaction in self.released
            goes.append(is_gone)
            if not is_gone:
                waiting.add(change.partition)
        return goes

    def forced(self, goes: Sequence[bool], limits: Limits) -> list[str]:
        """The transactions that must not be held any longer, the oldest first."""
        held = [place for place, is_gone in enumerate(goes) if not is_gone]
        excess = held[: max(0, len(held) - limits.held_max)]
        old = [place for place in held if self.changes[place].came_us < limits.came_before_us]
        found = (self.changes[place].transaction for place in (*old, *excess) if not self.is_free[place])
        return [each for each in dict.fromkeys(found) if each is not None]

    def _arrived(self, transaction: str) -> int:
        """How many different changes of it are there."""
        orders = [self.changes[place].order for place in self.places.get(transaction, [])]
        return len({order for order in orders if order is not None}) + orders.count(None)

    def _is_whole(self, transaction: str) -> bool:
        """Whether it has ended, and has as many changes as it should."""
        number = self.numbers.get(transaction)
        return number is not None and self._arrived(transaction) == self.ended[number].change_count > 0

    def _let_go(self, transaction: str) -> None:
        going = [transaction]
        while going:
            each = going.pop()
            if each not in self.released:
                self.released[each] = self._is_whole(each)
                going += self._overtaken(each)

    def _overtaken(self, transaction: str) -> Iterator[str]:
        """The transactions that have changes in front of its own."""
        last = {self.changes[place].partition: place for place in self.places.get(transaction, [])}
        for partition, place in last.items():
            queue = self.queues[partition]
            while queue and queue[0] <= place:
                found = self.changes[queue.popleft()].transaction
                if found is not None and found not in self.released:
                    yield found
