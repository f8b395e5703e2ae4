"""What a history proves about records and transactions: the material that the checks share.

A transaction's verdict follows from how it was ended:

    COMMITTED   a commit was acknowledged; or it is unknown, and a reader of committed records got one
    ABORTED     nobody asked for a commit, or all who did were refused
    MAYBE       a commit was asked for, the outcome is unknown, and no record was read

An abort makes no difference: it can't commit, and it does not tell whether an earlier commit has happened.
"""

from __future__ import annotations

from collections import defaultdict
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeVar

from headrace.testing.history import Deletion, Operation, Outcome, Poll, Send, TransactionEnd

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable

    from headrace.testing.history import TopicPartition

Kind = TypeVar("Kind", bound=Operation)


class Verdict(Enum):
    """What became of a transaction."""

    COMMITTED = auto()
    ABORTED = auto()
    MAYBE = auto()


class Evidence:
    """Indexes over one history."""

    def __init__(self, operations: Iterable[Operation], compacted: Collection[TopicPartition]) -> None:
        self.operations = tuple(operations)
        self.polls = self.of_type(Poll)
        self.sends = self.of_type(Send)
        self.send_of: dict[Hashable, Send] = {value: send for send in self.sends for value in send.values}
        self.places: dict[Hashable, list[tuple[TopicPartition, int]]] = defaultdict(list)
        """By value, where it lies: one place for each, if all is well."""
        self.values: dict[TopicPartition, dict[int, list[Hashable]]] = defaultdict(lambda: defaultdict(list))
        """By partition and offset, what lies there: one value for each, if all is well."""
        self.seen: set[Hashable] = set()
        """Values that somebody was given."""
        self.seen_committed: set[Hashable] = set()
        """Values that somebody was given who reads committed records alone."""
        self._take_polls()
        self._take_acknowledgements()
        self._ends: dict[Hashable, list[TransactionEnd]] = defaultdict(list)
        for end in self.of_type(TransactionEnd):
            self._ends[end.transaction].append(end)
        self._verdicts = self._judge_transactions()
        self._removed_below: dict[TopicPartition, int] = {}
        self._take_deletions()
        self._compacted = frozenset(compacted)
        self._newest_of_key = self._find_newest()

    def of_type(self, kind: type[Kind]) -> list[Kind]:
        """The operations of one kind, in their order."""
        return [operation for operation in self.operations if isinstance(operation, kind)]

    def verdict(self, transaction: Hashable) -> Verdict:
        """What became of a transaction."""
        return self._verdicts.get(transaction, Verdict.ABORTED)

    def commit_invoked(self, transaction: Hashable) -> int | None:
        """When a transaction's commit was asked for the first time."""
        return min((end.invoked for end in self._ends[transaction] if end.commits), default=None)

    def ends_of(self, transaction: Hashable) -> list[TransactionEnd]:
        """How a transaction was ended."""
        return self._ends[transaction]

    def is_committed(self, send: Send) -> bool:
        """Whether readers of committed records must be given what was sent, if it was written."""
        return send.transaction is None or self.verdict(send.transaction) is Verdict.COMMITTED

    def may_be_missing(self, partition: TopicPartition, offset: int, value: Hashable) -> bool:
        """Whether a record may have been removed: by request, by retention, or by compaction."""
        if offset < self._removed_below.get(partition, 0):
            return True
        if partition not in self._compacted:
            return False
        send = self.send_of.get(value)
        if send is not None and not self.is_committed(send):
            return True
        newest = self._newest_of_key.get((partition, self._key_of(value)))
        return newest is not None and newest > offset

    def _take_polls(self) -> None:
        for poll in self.polls:
            for partition, offset, value in poll.records:
                self._place(partition, offset, value)
                self.seen.add(value)
                if poll.is_read_committed:
                    self.seen_committed.add(value)

    def _take_acknowledgements(self) -> None:
        for send in self.sends:
            if send.outcome is Outcome.OK and send.offset is not None:
                for delta, value in enumerate(send.values):
                    self._place(send.partition, send.offset + delta, value)

    def _place(self, partition: TopicPartition, offset: int, value: Hashable) -> None:
        values = self.values[partition][offset]
        if value not in values:
            values.append(value)
            self.places[value].append((partition, offset))

    def _judge_transactions(self) -> dict[Hashable, Verdict]:
        verdicts = {}
        for transaction, ends in self._ends.items():
            outcomes = {end.outcome for end in ends if end.commits}
            if Outcome.OK in outcomes:
                verdicts[transaction] = Verdict.COMMITTED
            elif Outcome.UNKNOWN in outcomes:
                verdicts[transaction] = Verdict.MAYBE
        for send in self.sends:
            if verdicts.get(send.transaction) is Verdict.MAYBE and self.seen_committed.intersection(
                send.values
            ):
                verdicts[send.transaction] = Verdict.COMMITTED
        return verdicts

    def _take_deletions(self) -> None:
        for deletion in self.of_type(Deletion):
            if deletion.outcome is not Outcome.FAILED:
                below = self._removed_below.get(deletion.partition, 0)
                self._removed_below[deletion.partition] = max(below, deletion.below_offset)

    def _key_of(self, value: Hashable) -> Hashable:
        send = self.send_of.get(value)
        return send.keys[send.values.index(value)] if send is not None and send.keys else None

    def _find_newest(self) -> dict[tuple[TopicPartition, Hashable], int]:
        """By key, the highest offset that a compacted partition may keep alone."""
        newest: dict[tuple[TopicPartition, Hashable], int] = {}
        for send in self.sends:
            if send.partition not in self._compacted or not self.is_committed(send):
                continue
            for value, key in zip(send.values, send.keys, strict=True):
                for partition, offset in self.places.get(value, ()):
                    newest[partition, key] = max(newest.get((partition, key), -1), offset)
        return newest
