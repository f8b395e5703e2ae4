"""What a request leads to: records to be written, and an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.transactions.records import TransactionChanged
from headrace.kafka.transactions.state import NO_EPOCH, NO_PRODUCER_ID, ProducerIdentity

if TYPE_CHECKING:
    from headrace.kafka.transactions.records import TransactionRecord
    from headrace.kafka.transactions.state import Transaction

NOBODY: Final = ProducerIdentity(NO_PRODUCER_ID, NO_EPOCH)


@dataclass(frozen=True, slots=True)
class Decision:
    """Records, and what to answer once they are durable."""

    records: tuple[TransactionRecord, ...]
    error_code: ErrorCode
    producer: ProducerIdentity = NOBODY
    """Who the producer is from now on."""


def decided(transaction: Transaction) -> Decision:
    """The transaction becomes this one."""
    return Decision((TransactionChanged(transaction),), ErrorCode.none, transaction.identity_after_end)


def refused(error_code: ErrorCode) -> Decision:
    """Nothing changes."""
    return Decision((), error_code)
