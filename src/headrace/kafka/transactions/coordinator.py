"""All transactional ids. `handle` methods change nothing; `apply` is the only mutation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.transactions import ending
from headrace.kafka.transactions.decision import Decision, decided, refused
from headrace.kafka.transactions.records import TransactionChanged, TransactionForgotten
from headrace.kafka.transactions.state import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    TV1,
    TV2,
    ProducerIdentity,
    Transaction,
    TransactionState,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from headrace.kafka.transactions.records import TransactionRecord
    from headrace.kafka.transactions.state import TopicPartition

TRANSACTIONAL_ID_COUNT_MAX: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLimits:
    """What producers may ask for."""

    timeout_ms_max: int = 900_000
    idle_ms_max: int = 604_800_000
    """A transactional id that has been used by nobody for so long is forgotten."""


@dataclass(slots=True)
class TransactionCoordinator:
    """Transactional ids and their transactions. Not safe to share between threads."""

    limits: TransactionLimits = field(default_factory=TransactionLimits)
    transactions: dict[str, Transaction] = field(default_factory=dict)

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether the next request for the id may need a producer id that nobody had before."""
        transaction = self.transactions.get(transactional_id)
        return transaction is None or transaction.is_epoch_exhausted

    def handle_init(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        new_producer_id: int | None,
        now_ms: int,
    ) -> Decision:
        """A producer wants to use the id; it says who it is if it has been told before."""
        error_code = self._check_init(transactional_id, timeout_ms, expected)
        if error_code is not ErrorCode.none:
            return refused(error_code)
        transaction = self.transactions.get(transactional_id)
        if self.needs_producer_id(transactional_id) and new_producer_id is None:
            return refused(ErrorCode.concurrent_transactions)
        if transaction is None:
            return decided(_first(transactional_id, timeout_ms, new_producer_id or 0, now_ms))
        if transaction.state is TransactionState.ONGOING:
            aborted = ending.raise_epoch(
                transaction, TransactionState.PREPARE_ABORT, new_producer_id=new_producer_id, now_ms=now_ms
            )
            return Decision((TransactionChanged(aborted),), ErrorCode.concurrent_transactions)
        return _init_again(transaction, timeout_ms, expected, new_producer_id, now_ms)

    def handle_add(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        *,
        client_version: int,
        now_ms: int,
    ) -> Decision:
        """A producer is about to write to these partitions."""
        error_code = self._check_producer(transactional_id, producer)
        if error_code is not ErrorCode.none:
            return refused(error_code)
        transaction = self.transactions[transactional_id]
        is_ongoing = transaction.state is TransactionState.ONGOING
        if is_ongoing and transaction.partitions.issuperset(partitions):
            return Decision((), ErrorCode.none, transaction.identity)
        return decided(
            replace(
                transaction,
                previous_producer_id=transaction.producer_id,
                state=TransactionState.ONGOING,
                partitions=transaction.partitions.union(partitions),
                started_at_ms=transaction.started_at_ms if is_ongoing else now_ms,
                updated_at_ms=now_ms,
                client_version=client_version,
            )
        )

    def check_partition(
        self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition
    ) -> ErrorCode:
        """Whether the producer may write to the partition without adding it."""
        error_code = self._check_producer(transactional_id, producer)
        if error_code is not ErrorCode.none:
            return error_code
        transaction = self.transactions[transactional_id]
        is_in = transaction.state is TransactionState.ONGOING and partition in transaction.partitions
        return ErrorCode.none if is_in else ErrorCode.transaction_abortable

    def handle_end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        commits: bool,
        client_version: int,
        new_producer_id: int | None,
        now_ms: int,
    ) -> Decision:
        """A producer wants to end its transaction."""
        if not transactional_id:
            return refused(ErrorCode.invalid_request)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return refused(ErrorCode.invalid_producer_id_mapping)
        if client_version < TV2:
            return ending.end_tv1(transaction, producer, commits=commits, now_ms=now_ms)
        return ending.end_tv2(
            transaction, producer, commits=commits, new_producer_id=new_producer_id, now_ms=now_ms
        )

    def handle_abort(self, transactional_id: str, *, new_producer_id: int | None, now_ms: int) -> Decision:
        """The broker ends an ongoing transaction, its time being up: whoever had it open is refused."""
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.state is not TransactionState.ONGOING:
            return Decision((), ErrorCode.none)
        if transaction.is_epoch_exhausted and new_producer_id is None:
            return refused(ErrorCode.concurrent_transactions)
        return decided(
            ending.raise_epoch(
                transaction, TransactionState.PREPARE_ABORT, new_producer_id=new_producer_id, now_ms=now_ms
            )
        )

    def handle_complete(self, transactional_id: str, now_ms: int) -> Decision:
        """All markers of a prepared transaction are durable."""
        transaction = self.transactions[transactional_id]
        assert transaction.state.is_prepared, f"{transactional_id} is {transaction.state.value}"
        return decided(ending.complete(transaction, now_ms))

    def handle_idle(self, now_ms: int) -> tuple[TransactionForgotten, ...]:
        """Forget the ids that nobody has used for a long time."""
        return tuple(
            TransactionForgotten(each.transactional_id)
            for each in self.transactions.values()
            if each.state.is_idle and now_ms - each.updated_at_ms >= self.limits.idle_ms_max
        )

    def prepared(self) -> Iterator[Transaction]:
        """The transactions whose outcome is decided and whose markers may be missing."""
        return (each for each in self.transactions.values() if each.state.is_prepared)

    def ongoing(self) -> Iterator[Transaction]:
        """The transactions that are under way."""
        return (each for each in self.transactions.values() if each.state is TransactionState.ONGOING)

    def apply(self, record: TransactionRecord) -> None:
        """Take a record in. Recovery does nothing else."""
        if isinstance(record, TransactionForgotten):
            self.transactions.pop(record.transactional_id, None)
        else:
            self.transactions[record.transactional_id] = record.transaction

    def _check_init(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None
    ) -> ErrorCode:
        if not transactional_id:
            return ErrorCode.invalid_request
        if not 0 < timeout_ms <= self.limits.timeout_ms_max:
            return ErrorCode.invalid_transaction_timeout
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            is_full = len(self.transactions) >= TRANSACTIONAL_ID_COUNT_MAX
            return ErrorCode.policy_violation if is_full else ErrorCode.none
        if expected is not None and not _is_known(transaction, expected):
            return ErrorCode.producer_fenced
        return ErrorCode.concurrent_transactions if transaction.state.is_prepared else ErrorCode.none

    def _check_producer(self, transactional_id: str, producer: ProducerIdentity) -> ErrorCode:
        if not transactional_id:
            return ErrorCode.invalid_request
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.producer_id != producer.producer_id:
            return ErrorCode.invalid_producer_id_mapping
        if transaction.producer_epoch != producer.epoch:
            return ErrorCode.producer_fenced
        return ErrorCode.concurrent_transactions if transaction.state.is_prepared else ErrorCode.none


def _first(transactional_id: str, timeout_ms: int, producer_id: int, now_ms: int) -> Transaction:
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=0,
        previous_producer_id=producer_id,
        timeout_ms=timeout_ms,
        updated_at_ms=now_ms,
    )


def _is_known(transaction: Transaction, expected: ProducerIdentity) -> bool:
    """Whether a producer that says who it is may be the one that has the id; its epoch is checked later."""
    if expected.producer_id == transaction.producer_id:
        return True
    # A retry after the epochs were used up: the answer that named the new producer id was lost.
    is_last_epoch = expected.epoch >= EPOCH_MAX - 1
    return is_last_epoch and expected.producer_id == transaction.previous_producer_id


def _init_again(
    transaction: Transaction,
    timeout_ms: int,
    expected: ProducerIdentity | None,
    new_producer_id: int | None,
    now_ms: int,
) -> Decision:
    """Give an idle id the next epoch, or the same one again to a producer that did not hear the answer."""
    fresh = replace(
        transaction,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        started_at_ms=NO_TIME,
        updated_at_ms=now_ms,
        client_version=TV1,
    )
    if expected is not None and expected.epoch != transaction.producer_epoch:
        is_retry = expected.epoch == transaction.last_producer_epoch
        return decided(fresh) if is_retry else refused(ErrorCode.producer_fenced)
    fresh = replace(fresh, last_producer_epoch=NO_EPOCH if expected is None else transaction.producer_epoch)
    if transaction.is_epoch_exhausted and new_producer_id is not None:
        return decided(replace(fresh, producer_id=new_producer_id, producer_epoch=0))
    return decided(replace(fresh, producer_epoch=transaction.producer_epoch + 1))
