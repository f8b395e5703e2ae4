"""What a partition knows of its idempotent producers, so that a retry is never written twice.

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

The last rule is Kafka's since 2.5: a producer is unknown not only when it is new but also when all it ever
wrote has been removed by retention, and then it must be able to go on where it is.

Five batches are remembered because that is how many requests a producer may have in flight. The producers
that wrote longest ago are forgotten first once there are too many.

`check` changes nothing; `apply` is the only mutation, and recovery calls it with the batches that it finds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.errors import InvalidProducerEpoch, OutOfOrderSequence

if TYPE_CHECKING:
    from headrace.log.batch import BatchHeader

BATCHES_REMEMBERED: Final = 5
PRODUCER_COUNT_MAX: Final = 10_000
_SEQUENCE_LAST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Accept:
    """The batch is the next one of its producer, or has none."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch has been written before, at these offsets."""

    base_offset: int
    last_offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class _WrittenBatch:
    base_sequence: int
    last_sequence: int
    duplicate: Duplicate


@dataclass(frozen=True, slots=True)
class _Producer:
    epoch: int
    batches: tuple[_WrittenBatch, ...]


ACCEPT: Final = Accept()


class ProducerStates:
    """The producers of one partition. Used from one thread."""

    def __init__(self, *, producer_count_max: int = PRODUCER_COUNT_MAX) -> None:
        self._producer_count_max = producer_count_max
        self._producers: dict[int, _Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader) -> Accept | Duplicate:
        """Say whether the batch is to be written, or raise when its producer is out of step."""
        if not header.is_idempotent:
            return ACCEPT
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return ACCEPT
        if header.producer_epoch == producer.epoch:
            return _check_same_epoch(header, producer)
        if header.producer_epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} writes with epoch {header.producer_epoch}, but epoch "
                f"{producer.epoch} has been seen: another instance has taken over; stop this one"
            )
        if header.base_sequence != 0:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} begins epoch {header.producer_epoch} with sequence "
                f"{header.base_sequence}; it must begin with 0"
            )
        return ACCEPT

    def apply(self, header: BatchHeader) -> None:
        """Take note of a batch that lies in the log at `header.base_offset`."""
        if not header.is_idempotent:
            return
        producer = self._producers.pop(header.producer_id, None)
        batches: tuple[_WrittenBatch, ...] = ()
        if producer is not None and producer.epoch == header.producer_epoch:
            batches = producer.batches[1 - BATCHES_REMEMBERED :]
        duplicate = Duplicate(header.base_offset, header.last_offset, header.max_timestamp_ms)
        written = _WrittenBatch(header.base_sequence, header.last_sequence, duplicate)
        # A dictionary keeps the order of insertion: its first key is the producer that wrote longest ago.
        self._producers[header.producer_id] = _Producer(header.producer_epoch, (*batches, written))
        if len(self._producers) > self._producer_count_max:
            del self._producers[next(iter(self._producers))]


def _check_same_epoch(header: BatchHeader, producer: _Producer) -> Accept | Duplicate:
    for batch in producer.batches:
        if batch.base_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
            return batch.duplicate
    last_sequence = producer.batches[-1].last_sequence
    expected = 0 if last_sequence == _SEQUENCE_LAST else last_sequence + 1
    if header.base_sequence != expected:
        raise OutOfOrderSequence(
            f"producer {header.producer_id} (epoch {header.producer_epoch}) sent sequence "
            f"{header.base_sequence} where {expected} was expected"
        )
    return ACCEPT
