"""Offsets next to each other that are alike, as one. Pure functions of runs that lie one behind the other."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


Value = TypeVar("Value")


class Part(NamedTuple, Generic[Value]):
    """Offsets from the first to the last one, and what is to become of them."""

    first: int
    last: int
    value: Value


def changed(runs: Runs, parts: Sequence[Part[Value]], change: Callable[[Run, Value], Run]) -> Runs:
    """The runs with those parts changed, which lie one behind the other. Takes one pass over both."""
    result: list[Run] = []
    index = 0
    for run in runs:
        position = run.first
        while index < len(parts) and parts[index].first <= run.last:
            part = parts[index]
            if part.last >= position:
                if part.first > position:
                    result.append(run.between(position, part.first - 1))
                inner = run.between(max(part.first, position), part.last)
                result.append(change(inner, part.value))
                position = inner.last + 1
            if part.last > run.last:
                break
            index += 1
        if position <= run.last:
            result.append(run.between(position, run.last))
    return tuple(result)


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
