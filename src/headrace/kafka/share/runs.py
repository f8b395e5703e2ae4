"""Offsets next to each other that are alike, as one. Pure functions of runs that lie one behind the other."""

from __future__ import annotations

from bisect import bisect_right
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NO_DEADLINE: Final = 2**63 - 1


class DeliveryState(IntEnum):
    """What became of an offset, with the numbers of Kafka's records."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


SETTLED: Final = frozenset({DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})


class Run(NamedTuple):
    """Offsets from the first to the last one."""

    first: int
    last: int
    state: DeliveryState
    delivery_count: int = 0
    member_id: str = ""
    """Who has them, while they are acquired."""
    deadline_ms: int = NO_DEADLINE
    """When the member's lock on them ends."""

    @property
    def offset_count(self) -> int:
        """How many offsets these are."""
        return self.last - self.first + 1

    @property
    def is_settled(self) -> bool:
        """Whether nobody will get them any more."""
        return self.state in SETTLED

    def is_like(self, other: Run) -> bool:
        """Whether two neighbours may be one."""
        return self[2:] == other[2:]

    def between(self, first: int, last: int) -> Run:
        """The part of it that lies there."""
        return self._replace(first=max(self.first, first), last=min(self.last, last))


Runs = tuple[Run, ...]


def within(runs: Runs, first: int, last: int) -> Iterator[Run]:
    """The parts of runs that lie there."""
    index = max(bisect_right(runs, first, key=lambda run: run.first) - 1, 0)
    for run in runs[index:]:
        if run.first > last:
            return
        if run.last >= first:
            yield run.between(first, last)


def replaced(runs: Runs, first: int, last: int, change: Callable[[Run], Run]) -> Runs:
    """The runs with those parts changed that lie there."""
    result: list[Run] = []
    for run in runs:
        if run.last < first or run.first > last:
            result.append(run)
            continue
        if run.first < first:
            result.append(run._replace(last=first - 1))
        result.append(change(run.between(first, last)))
        if run.last > last:
            result.append(run._replace(first=last + 1))
    return tuple(result)


def put(runs: Runs, other: Run) -> Runs:
    """The runs with another state of its offsets."""
    return replaced(runs, other.first, other.last, lambda part: other.between(part.first, part.last))


def joined(runs: Runs) -> Runs:
    """The runs without what is settled at the beginning nor untouched at the end; like neighbours are one."""
    result: list[Run] = []
    for run in runs:
        if not result and run.is_settled:
            continue
        if result and result[-1].is_like(run):
            result[-1] = result[-1]._replace(last=run.last)
        else:
            result.append(run)
    if result and result[-1].state is DeliveryState.AVAILABLE and not result[-1].delivery_count:
        result.pop()
    return tuple(result)
