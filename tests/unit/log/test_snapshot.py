from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptBatch
from headrace.log.producers import Duplicate, FrozenProducers, Producer, WrittenBatch
from headrace.log.snapshot import decode_snapshot, encode_snapshot

SEQUENCE_COUNT = 2**31

batches = st.builds(
    lambda offset, delta, sequence, time: WrittenBatch(
        sequence, (sequence + delta) % SEQUENCE_COUNT, Duplicate(offset, offset + delta, time)
    ),
    st.integers(0, 2**60),
    st.integers(0, 2**20),
    st.integers(0, SEQUENCE_COUNT - 1),
    st.integers(-1, 2**50),
)


@st.composite
def producers(draw: st.DrawFn) -> Producer:
    written = draw(st.lists(batches, max_size=5))
    return Producer(
        epoch=draw(st.integers(0, 2**15 - 1)),
        batches=tuple(written),
        coordinator_epoch=draw(st.integers(-1, 2**31 - 1)),
        last_timestamp_ms=written[-1].duplicate.timestamp_ms if written else draw(st.integers(-1, 2**50)),
    )


@given(st.dictionaries(st.integers(0, 2**62), producers(), max_size=5), st.data())
def test_what_was_known_of_producers_is_known_again(known: dict[int, Producer], data: st.DataObject) -> None:
    in_transaction = data.draw(st.sets(st.sampled_from(sorted(known)))) if known else set()
    frozen = FrozenProducers(
        producers=known, open_transactions={producer_id: producer_id // 2 for producer_id in in_transaction}
    )
    thawed = decode_snapshot(encode_snapshot(frozen))
    assert thawed == frozen
    assert list(thawed.producers) == list(known), "the one that wrote longest ago stays the first"


def test_the_format_is_kafkas() -> None:
    """What Kafka's ProducerStateManager writes for one producer with an open transaction."""
    written = WrittenBatch(5, 7, Duplicate(100, 102, 1000))
    producer = Producer(epoch=2, batches=(written,), coordinator_epoch=4, last_timestamp_ms=1000)
    content = encode_snapshot(FrozenProducers(producers={9: producer}, open_transactions={9: 90}))
    assert content[:2].hex() == "0001"
    assert (
        content[6:].hex()
        == (
            "00000001"  # one entry
            "0000000000000009" + "0002" + "00000007" + "0000000000000066" + "00000002" + "00000000000003e8"
            "00000004" + "000000000000005a"
        )
    )


def test_a_snapshot_with_any_bit_flipped_or_cut_short_is_refused() -> None:
    written = WrittenBatch(5, 7, Duplicate(100, 102, 1000))
    producer = Producer(epoch=2, batches=(written, written))
    content = encode_snapshot(FrozenProducers(producers={9: producer}, open_transactions={}))
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptBatch):
            decode_snapshot(bytes(flipped))
    for size_bytes in range(len(content)):
        with pytest.raises(CorruptBatch):
            decode_snapshot(content[:size_bytes])
