"""What a partition knows of its producers, so that a retry is never written twice and transactions have ends.

A producer numbers its records per partition. The rules are Kafka's:

    the batch                                            the partition
    ---------------------------------------------------  -------------------------------------------
    equals one of the producer's last five batches       answers with that batch's offsets: Duplicate
    comes from an older epoch than the newest seen       raises InvalidProducerEpoch
    begins a newer epoch with sequence 0                 accepts
    begins a newer epoch with another sequence           raises OutOfOrderSequence
    follows the producer's last sequence                 accepts (0 follows 2**31 - 1)
    does not follow it                                   raises OutOfOrderSequence
    comes from a producer that is not known here         accepts, whatever its sequence is
    is not transactional while a transaction is open     raises InvalidTransactionState
    has no sequence: the broker wrote it for a producer  accepts, unless the epoch is older

    the marker                                           the partition
    ---------------------------------------------------  -------------------------------------------
    comes from an older epoch than the newest seen       raises InvalidProducerEpoch
    comes from an older coordinator than the newest      raises TransactionCoordinatorFenced
    has the producer's epoch                             accepts; its sequences go on
    has a newer epoch (KIP-890: the epoch is bumped)     accepts; its sequences begin with 0 again
    finds no open transaction                            accepts: it changes no record's fate

An unknown producer is taken as it comes, as in Kafka since 2.5: a producer is unknown not only when it is new
but also when all it ever wrote has been removed by retention, and then it must be able to go on where it is.

Five batches are remembered because that is how many requests a producer may have in flight. A producer is
forgotten when it has written nothing for a time, or when there are too many and it wrote longest ago; never
while it has a transaction open. The time is counted from its last batch or from when the partition was
opened, by a clock that does not jump: Kafka goes by the time that the producer put into its records, so that
one that writes old records is forgotten at once, and its retry written twice.

`check` and `check_marker` change nothing; `apply` is the only mutation, and recovery calls it with the
batches that it finds.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from headrace.log.batch import NO_SEQUENCE
from headrace.log.transaction_index import AbortedTransaction
from headrace.log.transactions import EndedTransaction, UnsettledTransactions

if TYPE_CHECKING:
    from headrace.log.batch import BatchHeader
    from headrace.log.marker import Marker
    from headrace.log.transaction_index import TransactionIndex

BATCHES_REMEMBERED: Final = 5
PRODUCER_COUNT_MAX: Final = 10_000
NO_COORDINATOR_EPOCH: Final = -1
_SEQUENCE_LAST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Accept:
    """The batch is the next one of its producer, or has none."""


# One of each of these three is made for every batch: a tuple takes a third of the time.
class Duplicate(NamedTuple):
    """The batch has been written before, at these offsets."""

    base_offset: int
    last_offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerInfo:
    """What is known of a producer, for those who ask."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


class WrittenBatch(NamedTuple):
    """One of a producer's last batches."""

    base_sequence: int
    last_sequence: int
    duplicate: Duplicate


class Producer(NamedTuple):
    """A producer as the batches and markers so far have left it."""

    epoch: int
    batches: tuple[WrittenBatch, ...] = ()
    """The last ones of this epoch."""
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp_ms: int = -1
    active_s: float = 0.0
    """When it wrote last, by a clock that does not jump."""

    @property
    def last_sequence(self) -> int:
        """That of its last record in this epoch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenProducers:
    """All producers of a partition as they were at an offset. Not to be changed."""

    producers: dict[int, Producer]
    """By producer id, the one that wrote longest ago first."""
    open_transactions: dict[int, int]
    """By producer id, the first offset."""


ACCEPT: Final = Accept()


class ProducerStates:
    """The producers of one partition, and their transactions. Used from one thread."""

    def __init__(
        self, *, producer_count_max: int = PRODUCER_COUNT_MAX, expiration_s: float = float("inf")
    ) -> None:
        self._producer_count_max = producer_count_max
        self._expiration_s = expiration_s
        # A dictionary keeps the order of insertion: its first key is the producer that wrote longest ago.
        self._producers: dict[int, Producer] = {}
        self.transactions = UnsettledTransactions()

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def check(self, header: BatchHeader) -> Accept | Duplicate:
        """Say whether the batch is to be written, or raise when its producer is out of step."""
        # A batch that has no producer is one of none that is known.
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return ACCEPT
        outcome: Accept | Duplicate = ACCEPT
        if not _is_next(header, producer):
            _check_epoch(header.producer_id, header.producer_epoch, producer)
            if header.base_sequence != NO_SEQUENCE:
                outcome = _check_sequence(header, producer)
        if outcome is ACCEPT and not header.is_transactional:
            self._require_no_transaction(header)
        return outcome

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Raise unless the marker may be written."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        _check_epoch(producer_id, producer_epoch, producer)
        if coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"a marker of producer {producer_id} comes from coordinator epoch {coordinator_epoch}, but "
                f"epoch {producer.coordinator_epoch} has been seen: another coordinator has taken over"
            )

    def apply(
        self, header: BatchHeader, marker: Marker | None = None, *, now_s: float = 0.0
    ) -> EndedTransaction | None:
        """Take note of a batch that lies in the log at `header.base_offset`, or of the marker that it holds.

        Returns the transaction that a marker has ended, if one was open.
        """
        if header.producer_id < 0 or (marker is None and header.is_control):
            return None
        known = self._producers.pop(header.producer_id, None)
        if known is None or known.epoch != header.producer_epoch:
            coordinator_epoch = NO_COORDINATOR_EPOCH if known is None else known.coordinator_epoch
            known = Producer(epoch=header.producer_epoch, coordinator_epoch=coordinator_epoch)
        ended = None
        if marker is None:
            producer = _after_batch(known, header, now_s)
            if header.is_transactional and self.transactions.first_offset_of(header.producer_id) is None:
                self.transactions.begin(header.producer_id, header.base_offset)
        else:
            producer = known._replace(
                coordinator_epoch=marker.coordinator_epoch,
                last_timestamp_ms=header.max_timestamp_ms,
                active_s=now_s,
            )
            ended = self._end_transaction(header, marker)
        self._producers[header.producer_id] = producer
        if len(self._producers) > 1:
            self._forget(now_s)
        return ended

    def freeze(self) -> FrozenProducers:
        """All producers as they are now: a copy, which another thread may read."""
        return FrozenProducers(
            producers=dict(self._producers), open_transactions=self.transactions.open_transactions
        )

    def thaw(self, frozen: FrozenProducers, *, now_s: float) -> None:
        """Take over what was known at an offset, in place of all that is known."""
        self._producers = {
            producer_id: producer._replace(active_s=now_s)
            for producer_id, producer in frozen.producers.items()
        }
        self.transactions = UnsettledTransactions()
        for producer_id, first_offset in sorted(frozen.open_transactions.items(), key=itemgetter(1)):
            self.transactions.begin(producer_id, first_offset)

    def infos(self, now_s: float = 0.0) -> list[ProducerInfo]:
        """All producers, the one that wrote longest ago first."""
        self._forget(now_s)
        return [
            ProducerInfo(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp_ms=producer.last_timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                transaction_start_offset=self.transactions.first_offset_of(producer_id),
            )
            for producer_id, producer in self._producers.items()
        ]

    def _require_no_transaction(self, header: BatchHeader) -> None:
        first_offset = self.transactions.first_offset_of(header.producer_id)
        if first_offset is not None:
            raise InvalidTransactionState(
                f"producer {header.producer_id} sent a batch outside of its transaction, which has been open "
                f"since offset {first_offset}; commit or abort that first"
            )

    def _end_transaction(self, header: BatchHeader, marker: Marker) -> EndedTransaction | None:
        first_offset = self.transactions.first_offset_of(header.producer_id)
        if first_offset is None:
            return None
        ended = EndedTransaction(
            producer_id=header.producer_id,
            first_offset=first_offset,
            last_offset=header.last_offset,
            commits=marker.commits,
            is_settled=marker.is_settled,
        )
        self.transactions.end(ended)
        return ended

    def _forget(self, now_s: float) -> None:
        """Drop those that are idle for too long or too many; those with a transaction go to the end."""
        for _ in range(len(self._producers)):
            producer_id, producer = next(iter(self._producers.items()))
            is_expired = now_s - producer.active_s >= self._expiration_s
            if not is_expired and len(self._producers) <= self._producer_count_max:
                return
            del self._producers[producer_id]
            if self.transactions.first_offset_of(producer_id) is not None:
                self._producers[producer_id] = producer


def apply_batch(
    producers: ProducerStates,
    index: TransactionIndex,
    header: BatchHeader,
    marker: Marker | None,
    *,
    now_s: float,
) -> None:
    """Take note of a batch that lies in a segment: of its producer, and of the transaction that it aborts."""
    ended = producers.apply(header, marker, now_s=now_s)
    if ended is not None and not ended.commits:
        first_open = producers.transactions.first_open_offset
        index.add(
            AbortedTransaction(
                producer_id=ended.producer_id,
                first_offset=ended.first_offset,
                last_offset=ended.last_offset,
                last_stable_offset=ended.last_offset + 1 if first_open is None else first_open,
            )
        )


def _after_batch(producer: Producer, header: BatchHeader, now_s: float) -> Producer:
    batches = producer.batches
    if header.base_sequence != NO_SEQUENCE:
        duplicate = Duplicate(header.base_offset, header.last_offset, header.max_timestamp_ms)
        written = WrittenBatch(header.base_sequence, header.last_sequence, duplicate)
        batches = (*batches[1 - BATCHES_REMEMBERED :], written)
    return Producer(producer.epoch, batches, producer.coordinator_epoch, header.max_timestamp_ms, now_s)


def _is_next(header: BatchHeader, producer: Producer) -> bool:
    """Whether the batch follows the producer's last one: so it is with most, and all is right then."""
    batches = producer.batches
    return (
        bool(batches)
        and header.base_sequence == batches[-1].last_sequence + 1
        and header.producer_epoch == producer.epoch
    )


def _check_epoch(producer_id: int, producer_epoch: int, producer: Producer) -> None:
    if producer_epoch < producer.epoch:
        raise InvalidProducerEpoch(
            f"producer {producer_id} writes with epoch {producer_epoch}, but epoch "
            f"{producer.epoch} has been seen: another instance has taken over; stop this one"
        )


def _check_sequence(header: BatchHeader, producer: Producer) -> Accept | Duplicate:
    if header.producer_epoch > producer.epoch:
        if header.base_sequence != 0:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} begins epoch {header.producer_epoch} with sequence "
                f"{header.base_sequence}; it must begin with 0"
            )
        return ACCEPT
    for batch in producer.batches:
        if batch.base_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
            return batch.duplicate
    last_sequence = producer.last_sequence
    expected = 0 if last_sequence == _SEQUENCE_LAST else last_sequence + 1
    if header.base_sequence != expected:
        raise OutOfOrderSequence(
            f"producer {header.producer_id} (epoch {header.producer_epoch}) sent sequence "
            f"{header.base_sequence} where {expected} was expected"
        )
    return ACCEPT
