"""Transactions as records: Kafka's own bytes, there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptBatch
from headrace.kafka.transactions.records import (
    TransactionChanged,
    TransactionForgotten,
    decode_transaction_record,
    encode_transaction_record,
)
from headrace.kafka.transactions.state import Transaction, TransactionState

KEY = b"\0\0\0\x06writer"
BY_KAFKA = {
    "0001000000000000002000010000ea60020211742d313438313530393235343733353603000000000000000100000001a1e229e301"
    "000001a1e229e2e8020008000000000000002002020002": Transaction(
        transactional_id="writer",
        producer_id=32,
        producer_epoch=1,
        previous_producer_id=32,
        timeout_ms=60_000,
        state=TransactionState.PREPARE_COMMIT,
        partitions=frozenset({("t-14815092547356", 0), ("t-14815092547356", 1)}),
        started_at_ms=1794795758312,
        updated_at_ms=1794795758337,
        client_version=2,
    ),
    "0001000000000000001000000000ea6000000000 01a1e20a2f4d ffffffffffffffff 010008"
    "0000000000000010": Transaction(
        transactional_id="writer",
        producer_id=16,
        producer_epoch=0,
        previous_producer_id=16,
        timeout_ms=60_000,
        updated_at_ms=1794793680717,
    ),
}

int64s = st.integers(-1, 2**63 - 1)
transactions = st.builds(
    Transaction,
    transactional_id=st.text(max_size=50),
    producer_id=int64s,
    producer_epoch=st.integers(-1, 2**15 - 1),
    previous_producer_id=int64s,
    next_producer_id=int64s,
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from([each for each in TransactionState if each is not TransactionState.EMPTY]),
    partitions=st.frozensets(st.tuples(st.text(max_size=200), st.integers(0, 2**31 - 1)), max_size=200),
    started_at_ms=int64s,
    updated_at_ms=int64s,
    client_version=st.integers(0, 2),
)


@pytest.mark.parametrize(("value", "transaction"), BY_KAFKA.items(), ids=["prepared", "empty"])
def test_kafkas_own_bytes_are_read_and_written(value: str, transaction: Transaction) -> None:
    data = bytes.fromhex(value)
    assert decode_transaction_record(KEY, data) == TransactionChanged(transaction)
    assert encode_transaction_record(TransactionChanged(transaction)) == (KEY, data)


@given(transaction=transactions)
def test_every_transaction_comes_back_as_it_was_written(transaction: Transaction) -> None:
    key, value = encode_transaction_record(TransactionChanged(transaction))
    assert decode_transaction_record(key, value) == TransactionChanged(transaction)


def test_a_record_without_a_value_forgets_the_id() -> None:
    assert encode_transaction_record(TransactionForgotten("writer")) == (KEY, None)
    assert decode_transaction_record(KEY, None) == TransactionForgotten("writer")


def test_the_first_version_of_the_format_is_read() -> None:
    value = bytes.fromhex(
        "0000 0000000000000010 0003 0000ea60 01 00000001 0001 74 00000002 00000000 00000005"
        "000001a1e20a2f4d 000001a1e20a2f4c"
    )
    decoded = decode_transaction_record(KEY, value)
    assert isinstance(decoded, TransactionChanged)
    assert decoded.transaction.partitions == {("t", 0), ("t", 5)}
    assert (decoded.transaction.producer_epoch, decoded.transaction.started_at_ms) == (3, 1794793680716)


def test_a_key_of_another_kind_is_skipped() -> None:
    assert decode_transaction_record(b"\0\1\0\0", b"") is None


@given(cut=st.integers(0, 60), transaction=transactions)
def test_a_record_that_is_cut_off_is_named_as_damaged(cut: int, transaction: Transaction) -> None:
    key, value = encode_transaction_record(TransactionChanged(transaction))
    assert value is not None
    with pytest.raises(CorruptBatch):
        decode_transaction_record(key, value[: min(cut, len(value) - 1)])
