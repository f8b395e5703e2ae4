"""Transactions as records of `__transaction_state`, in Kafka's own format.

    key    version i16 = 0, transactional id string
    value  version i16 = 1, producer id i64, producer epoch i16, timeout ms i32, status i8, partitions,
           last update ms i64, start ms i64, tags

           partitions   array of (topic string, array of i32, no tags), null while EMPTY
           tags         0 previous producer id i64, 1 next producer id i64, 2 client version i16

A string of the key is its length as i16 and its bytes; lengths in the value are unsigned varints, one more
than they say. A field that has its default is not among the tags. Version 0 of the value has the same fields
without tags, with i32 and i16 lengths. A record without a value forgets the transactional id.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from struct import Struct
from struct import error as struct_error
from typing import Final

from headrace.errors import CorruptBatch
from headrace.kafka.transactions.state import (
    NO_PRODUCER_ID,
    TV1,
    TopicPartition,
    Transaction,
    TransactionState,
)

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 1
PREVIOUS_PRODUCER_ID_TAG: Final = 0
NEXT_PRODUCER_ID_TAG: Final = 1
CLIENT_VERSION_TAG: Final = 2

STATUS_NUMBERS: Final = {
    TransactionState.EMPTY: 0,
    TransactionState.ONGOING: 1,
    TransactionState.PREPARE_COMMIT: 2,
    TransactionState.PREPARE_ABORT: 3,
    TransactionState.COMPLETE_COMMIT: 4,
    TransactionState.COMPLETE_ABORT: 5,
    TransactionState.DEAD: 6,
    TransactionState.PREPARE_EPOCH_FENCE: 7,
}
STATES: Final = {number: state for state, number in STATUS_NUMBERS.items()}

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_FIXED: Final = Struct(">hqhib")
_TIMES: Final = Struct(">qq")


@dataclass(frozen=True, slots=True)
class TransactionChanged:
    """A transactional id stands where this says."""

    transaction: Transaction

    @property
    def transactional_id(self) -> str:
        """Whose record this is."""
        return self.transaction.transactional_id


@dataclass(frozen=True, slots=True)
class TransactionForgotten:
    """A transactional id is known no more."""

    transactional_id: str


TransactionRecord = TransactionChanged | TransactionForgotten


def encode_transaction_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """The key and the value of a record."""
    transactional_id = record.transactional_id.encode()
    key = _INT16.pack(KEY_VERSION) + _INT16.pack(len(transactional_id)) + transactional_id
    if isinstance(record, TransactionForgotten):
        return key, None
    transaction = record.transaction
    value = bytearray(
        _FIXED.pack(
            VALUE_VERSION,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.timeout_ms,
            STATUS_NUMBERS[transaction.state],
        )
    )
    if transaction.state is TransactionState.EMPTY:
        _write_unsigned(value, 0)
    else:
        _write_partitions(value, transaction.partitions)
    value += _TIMES.pack(transaction.updated_at_ms, transaction.started_at_ms)
    _write_tags(value, transaction)
    return key, bytes(value)


def decode_transaction_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Read a record back, or None if its key is of another kind."""
    try:
        if _INT16.unpack_from(key)[0] != KEY_VERSION:
            return None
        transactional_id = _Reader(key, 2, is_compact=False).string()
        if value is None:
            return TransactionForgotten(transactional_id)
        return TransactionChanged(_decode(transactional_id, value))
    except (struct_error, IndexError, KeyError, UnicodeDecodeError) as error:
        raise CorruptBatch(f"a transaction can't be read back: {error!r}; its key is {key!r}") from error


def _decode(transactional_id: str, value: bytes) -> Transaction:
    version, producer_id, producer_epoch, timeout_ms, status = _FIXED.unpack_from(value)
    if version not in {0, VALUE_VERSION}:
        raise CorruptBatch(f"a transaction has format {version}; 0 and {VALUE_VERSION} are understood")
    reader = _Reader(value, _FIXED.size, is_compact=version >= 1)
    partitions = reader.partitions()
    updated_at_ms, started_at_ms = reader.fixed(_TIMES)
    tags = reader.tags()
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        previous_producer_id=_tag(tags, PREVIOUS_PRODUCER_ID_TAG, _INT64, NO_PRODUCER_ID),
        next_producer_id=_tag(tags, NEXT_PRODUCER_ID_TAG, _INT64, NO_PRODUCER_ID),
        timeout_ms=timeout_ms,
        state=STATES[status],
        partitions=partitions,
        started_at_ms=started_at_ms,
        updated_at_ms=updated_at_ms,
        client_version=_tag(tags, CLIENT_VERSION_TAG, _INT16, TV1),
    )


def _tag(tags: dict[int, bytes], number: int, layout: Struct, default: int) -> int:
    return int(layout.unpack(tags[number])[0]) if number in tags else default


def _write_partitions(out: bytearray, partitions: frozenset[TopicPartition]) -> None:
    by_topic = [
        (topic, [number for _, number in group])
        for topic, group in groupby(sorted(partitions), key=lambda each: each[0])
    ]
    _write_unsigned(out, len(by_topic) + 1)
    for topic, numbers in by_topic:
        name = topic.encode()
        _write_unsigned(out, len(name) + 1)
        out += name
        _write_unsigned(out, len(numbers) + 1)
        for number in numbers:
            out += _INT32.pack(number)
        _write_unsigned(out, 0)


def _write_tags(out: bytearray, transaction: Transaction) -> None:
    tags = []
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags.append((PREVIOUS_PRODUCER_ID_TAG, _INT64.pack(transaction.previous_producer_id)))
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags.append((NEXT_PRODUCER_ID_TAG, _INT64.pack(transaction.next_producer_id)))
    if transaction.client_version != TV1:
        tags.append((CLIENT_VERSION_TAG, _INT16.pack(transaction.client_version)))
    _write_unsigned(out, len(tags))
    for number, data in tags:
        _write_unsigned(out, number)
        _write_unsigned(out, len(data))
        out += data


def _write_unsigned(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


class _Reader:
    """Reads fields one after the other."""

    def __init__(self, data: bytes, position: int, *, is_compact: bool) -> None:
        self._data = data
        self._position = position
        self._is_compact = is_compact

    def fixed(self, layout: Struct) -> tuple[int, ...]:
        found: tuple[int, ...] = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return found

    def string(self) -> str:
        size = self._unsigned() - 1 if self._is_compact else self.fixed(_INT16)[0]
        return self._bytes(size).decode()

    def partitions(self) -> frozenset[TopicPartition]:
        found = []
        for _ in range(self._array_length()):
            topic = self.string()
            found += [(topic, self.fixed(_INT32)[0]) for _ in range(self._array_length())]
            self.tags()
        return frozenset(found)

    def tags(self) -> dict[int, bytes]:
        if not self._is_compact:
            return {}
        return {self._unsigned(): self._bytes(self._unsigned()) for _ in range(self._unsigned())}

    def _array_length(self) -> int:
        return self._unsigned() - 1 if self._is_compact else self.fixed(_INT32)[0]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _bytes(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise struct_error(f"{size} bytes at byte {self._position} run past the end")
        found = self._data[self._position : end]
        self._position = end
        return found
