"""The values that a transaction consists of. They are replaced, never changed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

TopicPartition = tuple[str, int]

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
EPOCH_MAX: Final = 2**15 - 1

TV1: Final = 0
"""The versions of the protocol, by the numbers that stand in the records; 0 and 1 are the same here."""
TV2: Final = 2


class TransactionState(Enum):
    """Where a transactional id stands, under the names that Kafka's tools show."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided, and markers are still to be written."""
        return self in {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is under way."""
        return self in {
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        }


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """Who a producer is: its id, and which of the producers that have had this id."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id, its producer, and the transaction that is under way or was the last."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change, which mostly is the same."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id after the markers, where the epochs of this one are used up."""
    last_producer_epoch: int = NO_EPOCH
    """The epoch before the present one if the same producer had it: a retry is told so. Not kept on disk."""
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_at_ms: int = NO_TIME
    updated_at_ms: int = NO_TIME
    client_version: int = TV1
    """The version of the protocol that the producer used last."""

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the producer can't be given a further epoch: the last one is kept to fence it."""
        return self.producer_epoch >= EPOCH_MAX - 1

    @property
    def identity(self) -> ProducerIdentity:
        """The producer."""
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def identity_after_end(self) -> ProducerIdentity:
        """The producer once the markers of a prepared transaction are written."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdentity(self.next_producer_id, 0)
        return self.identity
