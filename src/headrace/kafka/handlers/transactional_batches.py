"""Which batches of a Produce request may be appended as part of a transaction.

                       the partition is not in the transaction yet
    Produce up to 11   refused: the producer should have added it
    Produce from 12    added, durably, before the batch is appended (KIP-890)

Nothing is appended to a partition before the record that adds it is durable: else a crash could leave a
transaction open there of which the coordinator knows nothing. Requests of one producer that wait for that
are appended in their order. From version 12 on, the first one to a partition must begin with sequence 0, so
that none overtakes one that was refused for a passing reason.

What holds is looked at again in the step that appends: a transaction may have been aborted meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.services import INTERNAL_TOPICS
from headrace.kafka.transactions.state import TV2, ProducerIdentity
from headrace.log.batch import HEADER_BYTES, TRANSACTIONAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.kafka.messages.produce import ProduceRequest
    from headrace.kafka.services import Call, Services
    from headrace.kafka.transactions.decision import Decision
    from headrace.kafka.transactions.state import TopicPartition

    Position = tuple[int, int]
    Refusals = Mapping[Position, tuple[ErrorCode, str]]

FIRST_VERSION_THAT_KNOWS_ABORTABLE: Final = 11
FIRST_VERSION_THAT_ADDS_PARTITIONS: Final = 12

ATTRIBUTES_AT: Final = 22
"""The low byte of a batch's attributes."""
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_AT: Final = 43


@dataclass(frozen=True, slots=True)
class TransactionalBatch:
    """A batch that says that it is part of a transaction, and where it stands in its request."""

    position: Position
    partition: TopicPartition
    producer: ProducerIdentity
    base_sequence: int


def admit(call: Call, request: ProduceRequest, then: Callable[[Refusals], None]) -> None:
    """Call back with the batches that may not be appended, once the others may."""
    batches = _transactional_batches(call.services, request)
    producers = {batch.producer for batch in batches}
    if not producers:
        then({})
        return
    if len(producers) > 1:
        then(_refuse_all(batches, ErrorCode.invalid_producer_id_mapping, "batches of several producers"))
        return
    transactions, transactional_id = call.services.transactions, request.transactional_id or ""

    def on_settled(error: HeadraceError | None) -> None:
        if error is None:
            then(_check_all(call, transactional_id, batches))
        else:
            then(_refuse_all(batches, ErrorCode.kafka_storage_error, str(error)))

    def on_added(outcome: Decision | HeadraceError) -> None:
        if isinstance(outcome, HeadraceError):
            on_settled(outcome)
        elif outcome.error_code is not ErrorCode.none:
            then(_refuse_all(batches, *_produce_error(call, outcome.error_code)))
        else:
            on_settled(None)

    if call.api_version < FIRST_VERSION_THAT_ADDS_PARTITIONS:
        transactions.when_settled(transactional_id, on_settled)
    else:
        partitions = {batch.partition for batch in batches}
        transactions.add(transactional_id, producers.pop(), partitions, TV2, on_added)


def is_transactional(records: bytes) -> bool:
    """Whether the first batch says that it is part of a transaction."""
    return len(records) > ATTRIBUTES_AT and bool(records[ATTRIBUTES_AT] & TRANSACTIONAL)


def _transactional_batches(services: Services, request: ProduceRequest) -> list[TransactionalBatch]:
    """All that name a partition that is there; the others are refused when they would be appended."""
    batches = []
    for topic_position, data in enumerate(request.topic_data):
        topic = services.topic(data.name, data.topic_id)
        if topic is None or topic.name in INTERNAL_TOPICS:
            continue
        for partition_position, partition in enumerate(data.partition_data):
            records = partition.records or b""
            is_known = 0 <= partition.index < len(topic.partitions)
            if is_known and len(records) >= HEADER_BYTES and is_transactional(records):
                producer_id, epoch, base_sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
                batch = TransactionalBatch(
                    (topic_position, partition_position),
                    (topic.name, partition.index),
                    ProducerIdentity(producer_id, epoch),
                    base_sequence,
                )
                batches.append(batch)
    return batches


def _check_all(call: Call, transactional_id: str, batches: list[TransactionalBatch]) -> Refusals:
    check = call.services.transactions.coordinator.check_partition
    refusals = {}
    for batch in batches:
        error_code = check(transactional_id, batch.producer, batch.partition)
        if error_code is not ErrorCode.none:
            refusals[batch.position] = _produce_error(call, error_code)
        elif call.api_version >= FIRST_VERSION_THAT_ADDS_PARTITIONS and _overtakes(call.services, batch):
            message = f"the producer begins with sequence {batch.base_sequence} here; it must begin with 0"
            refusals[batch.position] = (ErrorCode.out_of_order_sequence_number, message)
    return refusals


def _overtakes(services: Services, batch: TransactionalBatch) -> bool:
    """Whether a batch came before the first one of its producer in the partition."""
    log = services.partition(batch.partition[0], None, batch.partition[1])
    return log is not None and batch.base_sequence > 0 and not log.knows_producer(batch.producer.producer_id)


def _refuse_all(batches: list[TransactionalBatch], error_code: ErrorCode, message: str) -> Refusals:
    return {batch.position: (error_code, message) for batch in batches}


def _produce_error(call: Call, error_code: ErrorCode) -> tuple[ErrorCode, str]:
    """What Produce calls an error of the coordinator, with words."""
    if error_code is ErrorCode.producer_fenced:
        message = "a newer producer has this transactional id, or the transaction took too long"
        return ErrorCode.invalid_producer_epoch, message
    if error_code is ErrorCode.transaction_abortable:
        is_known = call.api_version >= FIRST_VERSION_THAT_KNOWS_ABORTABLE
        message = "the partition was not added to the transaction"
        return (error_code if is_known else ErrorCode.invalid_txn_state), message
    if error_code is ErrorCode.concurrent_transactions:
        # Producers of the first version of the protocol don't know this code here, but ask again after that.
        is_known = call.api_version >= FIRST_VERSION_THAT_ADDS_PARTITIONS
        message = "the transaction before this one is still ending"
        return (error_code if is_known else ErrorCode.not_enough_replicas), message
    return error_code, "the producer id is not that of the transactional id"
