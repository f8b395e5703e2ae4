"""How transactions end: by their producer, by a time-out, by a producer that takes over. Pure functions.

What EndTxn answers where no transaction is ongoing, by version of the protocol. `retry` comes with the epoch
before the present one, `present` with the present one; any other epoch is fenced.

                       TV1, present            TV2, retry              TV2, present
                       commit      abort       commit      abort       commit      abort
    EMPTY              invalid     invalid     fenced      fenced      invalid     ends
    COMPLETE_COMMIT    done        invalid     done        invalid     invalid     ends
    COMPLETE_ABORT     invalid     done        invalid     done        invalid     ends

`done` answers success and changes nothing: the answer to the first request was lost. `ends` aborts a
transaction that has no partitions, which raises the epoch: a producer does so after an error, when it can't
know whether the broker has heard of its transaction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.transactions.decision import Decision, decided, refused
from headrace.kafka.transactions.state import (
    EPOCH_MAX,
    NO_PRODUCER_ID,
    TV1,
    TV2,
    TransactionState,
)

if TYPE_CHECKING:
    from headrace.kafka.transactions.state import ProducerIdentity, Transaction

OUTCOMES: Final = {TransactionState.COMPLETE_COMMIT: True, TransactionState.COMPLETE_ABORT: False}
"""Whether a transaction that has ended was committed."""
ENDED: Final = {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT, *OUTCOMES}


def end_tv1(transaction: Transaction, producer: ProducerIdentity, *, commits: bool, now_ms: int) -> Decision:
    """End a transaction by the first version of the protocol: the epoch stays."""
    if producer.producer_id != transaction.producer_id:
        return refused(ErrorCode.invalid_producer_id_mapping)
    if producer.epoch != transaction.producer_epoch:
        return refused(ErrorCode.producer_fenced)
    if transaction.state is TransactionState.ONGOING:
        prepared = replace(
            transaction,
            previous_producer_id=transaction.producer_id,
            state=_prepared(commits),
            updated_at_ms=now_ms,
            client_version=TV1,
        )
        return decided(prepared)
    if transaction.state.is_prepared:
        is_same = transaction.state is _prepared(commits)
        return refused(ErrorCode.concurrent_transactions if is_same else ErrorCode.invalid_txn_state)
    is_done = OUTCOMES.get(transaction.state) is commits
    return Decision((), ErrorCode.none) if is_done else refused(ErrorCode.invalid_txn_state)


def end_tv2(
    transaction: Transaction,
    producer: ProducerIdentity,
    *,
    commits: bool,
    new_producer_id: int | None,
    now_ms: int,
) -> Decision:
    """End a transaction by the second version of the protocol: the epoch goes up."""
    error_code = _check_tv2(transaction, producer, commits)
    if error_code is not ErrorCode.none:
        return refused(error_code)
    if _is_retry(transaction, producer):
        return Decision((), ErrorCode.none, transaction.identity)
    if transaction.is_epoch_exhausted and new_producer_id is None:
        return refused(ErrorCode.concurrent_transactions)
    prepared = raise_epoch(transaction, _prepared(commits), new_producer_id=new_producer_id, now_ms=now_ms)
    return decided(prepared)


def raise_epoch(
    transaction: Transaction, state: TransactionState, *, new_producer_id: int | None, now_ms: int
) -> Transaction:
    """The transaction about to end, with its producer's epoch no longer good.

    The highest epoch is only ever that of markers. The producer goes on with the new id after it.
    """
    next_producer_id = new_producer_id if transaction.is_epoch_exhausted else None
    return replace(
        transaction,
        producer_epoch=transaction.producer_epoch + 1,
        last_producer_epoch=transaction.producer_epoch,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID if next_producer_id is None else next_producer_id,
        state=state,
        started_at_ms=now_ms if transaction.state.is_idle else transaction.started_at_ms,
        updated_at_ms=now_ms,
        client_version=TV2,
    )


def complete(transaction: Transaction, now_ms: int) -> Transaction:
    """A prepared transaction, all of whose markers are durable."""
    commits = transaction.state is TransactionState.PREPARE_COMMIT
    after = transaction.identity_after_end
    return replace(
        transaction,
        producer_id=after.producer_id,
        producer_epoch=after.epoch,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        state=TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_at_ms=now_ms,
    )


def _check_tv2(transaction: Transaction, producer: ProducerIdentity, commits: bool) -> ErrorCode:
    is_retry = _is_retry(transaction, producer)
    if producer.producer_id != transaction.producer_id and not is_retry:
        return ErrorCode.invalid_producer_id_mapping
    if producer.epoch != transaction.producer_epoch and not is_retry:
        return ErrorCode.producer_fenced
    if transaction.state.is_prepared:
        # The markers carry the present epoch, so nobody else may have it yet.
        return ErrorCode.concurrent_transactions if is_retry else ErrorCode.producer_fenced
    if transaction.state is TransactionState.ONGOING:
        return ErrorCode.none
    is_good = OUTCOMES.get(transaction.state) is commits if is_retry else not commits
    return ErrorCode.none if is_good else ErrorCode.invalid_txn_state


def _is_retry(transaction: Transaction, producer: ProducerIdentity) -> bool:
    """Whether the request has been granted before, and raised the epoch; its answer was lost."""
    if transaction.client_version != TV2 or transaction.state not in ENDED:
        return False
    if producer.producer_id == transaction.producer_id:
        return producer.epoch == transaction.producer_epoch - 1
    # The producer has been given a new id, its epochs being used up, and did not hear of it.
    return (
        transaction.producer_epoch == 0
        and producer.epoch == EPOCH_MAX - 1
        and producer.producer_id == transaction.previous_producer_id
    )


def _prepared(commits: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT
