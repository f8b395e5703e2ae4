from __future__ import annotations

import pytest

from headrace.errors import CorruptBatch
from headrace.log.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from headrace.log.index import IndexMark, TimeEntry
from headrace.log.transaction_index import AbortedTransaction, Seal, TransactionIndex

ABORTED = AbortedTransaction(producer_id=7, first_offset=120, last_offset=130, last_stable_offset=110)
SEAL = Seal(log_bytes=5_000, last_offset=139, offsets_crc=3, times_crc=4)
CHECKPOINT = Checkpoint(
    base_offset=100,
    size_bytes=5000,
    next_offset=140,
    index=IndexMark(12, 11, 1_000, TimeEntry(1_002, 139), 33),
    index_checksums=(1, 2**32 - 1),
    aborted=(ABORTED, ABORTED),
)


def _damaged(content: bytes) -> list[bytes]:
    """The content with each of its bits flipped, and cut short everywhere."""
    flipped = []
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        flipped.append(bytes(changed))
    return flipped + [content[:size_bytes] for size_bytes in range(len(content))]


def test_a_checkpoint_is_read_as_it_was_written() -> None:
    assert decode_checkpoint(encode_checkpoint(CHECKPOINT)) == CHECKPOINT


def test_a_checkpoint_that_is_damaged_anywhere_is_refused() -> None:
    for content in _damaged(encode_checkpoint(CHECKPOINT)):
        with pytest.raises(CorruptBatch):
            decode_checkpoint(content)


def test_a_transaction_index_is_kafkas_with_a_seal_after_it() -> None:
    content = TransactionIndex([ABORTED]).encode(SEAL)
    assert content[:34].hex() == (
        "0000" + "0000000000000007" + "0000000000000078" + "0000000000000082" + "000000000000006e"
    )
    assert len(content) - 34 < 34, "Kafka's readers stop where no whole entry follows"
    index, seal = TransactionIndex.decode(content)
    assert (index.entries, seal) == ((ABORTED,), SEAL)


def test_a_transaction_index_that_is_damaged_anywhere_is_refused() -> None:
    for damaged in _damaged(TransactionIndex([ABORTED, ABORTED]).encode(SEAL)):
        with pytest.raises(CorruptBatch):
            TransactionIndex.decode(damaged)
