"""What clients did to a broker and what came of it: the material of the anomaly checker.

A history is a list of operations. Each says which process did it, when it was invoked and when it completed,
and how it came out:

    OK        the broker has acknowledged it
    FAILED    it has certainly not happened
    UNKNOWN   it may have happened, now or later: the connection broke, or the process died

Times are ticks of one counter, `History.tick`, so that of two operations one came before the other exactly if
it completed before the other was invoked. A process does one thing after the other, but for sends, which may
overlap; then the order of their invocations is the order in which they were meant.

    history = History()
    began = history.tick()
    ... produce, and wait for the acknowledgement ...
    history.add(Send(process="p1", invoked=began, completed=history.tick(), outcome=Outcome.OK,
                     partition=TopicPartition("orders", 0), values=("order-1",), offset=0))

Values must be unique in the whole history: that is how a duplicate is told from two records that are alike.
Give a topic that is deleted and made anew another name here than the first one had.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from itertools import count
from threading import Lock
from typing import NamedTuple


class Outcome(Enum):
    """How an operation came out."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Polled(NamedTuple):
    """A record that a consumer was given."""

    partition: TopicPartition
    offset: int
    value: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What all operations have."""

    process: str
    """Who did it."""
    invoked: int
    completed: int
    outcome: Outcome = Outcome.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(Operation):
    """Records that were sent to one partition as one batch."""

    partition: TopicPartition
    values: tuple[Hashable, ...]
    offset: int | None = None
    """Where the first value lies, as the broker has acknowledged it; the others follow."""
    transaction: Hashable | None = None
    """The transaction that it is part of; its id is unique in the history."""
    is_idempotent: bool = True
    """Without it, a retry may write twice and overtake."""
    keys: tuple[Hashable, ...] = ()
    """The values' keys, where the topic is compacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll(Operation):
    """Records that a consumer was given at once."""

    records: tuple[Polled, ...]
    is_read_committed: bool = False
    group: str | None = None
    positions: tuple[tuple[TopicPartition, int], ...] = ()
    """Where the consumer was put before this poll, by an assignment or a seek. Else it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained(Operation):
    """At the end of it all, a consumer, or a group together, has read these partitions to their end."""

    partitions: tuple[TopicPartition, ...]
    group: str | None = None
    """The group that has read them together; None if it was the process alone."""
    is_read_committed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerInit(Operation):
    """A producer was given its id and epoch for a transactional id; all others of that id are fenced."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnd(Operation):
    """A transaction was committed or aborted."""

    transaction: Hashable
    transactional_id: str
    commits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit(Operation):
    """A group's offset of one partition was committed."""

    group: str
    partition: TopicPartition
    offset: int
    generation: int | None = None
    """The generation, or the member epoch, in which the member believed to be; None outside of any."""
    transaction: Hashable | None = None
    """The transaction that it is part of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetch(Operation):
    """A group's committed offset of one partition was asked for."""

    group: str
    partition: TopicPartition
    offset: int | None
    """What the broker said; None for nothing committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment(Operation):
    """A member of a group was given partitions; it was invoked when the member last asked for them."""

    group: str
    generation: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion(Operation):
    """Records below an offset were removed, by request or by retention: they may be missing from now on."""

    partition: TopicPartition
    below_offset: int


class History:
    """Operations in the order of their completion. Safe to use from several threads."""

    def __init__(self) -> None:
        self._ticks = count(1)
        self._lock = Lock()
        self._operations: list[Operation] = []

    @property
    def operations(self) -> tuple[Operation, ...]:
        """All operations so far."""
        with self._lock:
            return tuple(self._operations)

    def tick(self) -> int:
        """The next moment."""
        return next(self._ticks)

    def add(self, operation: Operation) -> None:
        """Add an operation that has completed."""
        with self._lock:
            self._operations.append(operation)
