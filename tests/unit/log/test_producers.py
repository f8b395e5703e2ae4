from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidProducerEpoch, OutOfOrderSequence
from headrace.log.batch import BatchHeader, encode_batch, read_header
from headrace.log.producers import BATCHES_REMEMBERED, Accept, Duplicate, ProducerStates
from headrace.log.record import Record

SEQUENCE_LAST = 2**31 - 1
MakeBatch = Callable[..., bytes]


def _header(
    sequence: int, *, count: int = 1, epoch: int = 0, producer_id: int = 1, offset: int = 0
) -> BatchHeader:
    records = [Record(timestamp_ms=5, key=None, value=None)] * count
    encoded = encode_batch(
        records, base_offset=offset, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    return read_header(encoded)


def _after(*headers: BatchHeader) -> ProducerStates:
    states = ProducerStates()
    for header in headers:
        states.apply(header)
    return states


def test_a_batch_without_a_producer_id_is_always_accepted() -> None:
    header = _header(-1, epoch=-1, producer_id=-1)
    states = _after(header, header)
    assert states.check(header) == Accept()
    assert len(states) == 0


def test_the_next_sequence_is_accepted() -> None:
    assert _after(_header(0, count=10)).check(_header(10)) == Accept()


def test_sequence_zero_follows_the_highest() -> None:
    assert _after(_header(SEQUENCE_LAST)).check(_header(0)) == Accept()
    assert _after(_header(SEQUENCE_LAST - 1, count=5)).check(_header(3)) == Accept()


@pytest.mark.parametrize("sequence", [0, 5, 9, 11, 100])
def test_a_gap_or_an_overlap_is_refused(sequence: int) -> None:
    with pytest.raises(OutOfOrderSequence, match=f"sent sequence {sequence} where 10 was expected"):
        _after(_header(0, count=10)).check(_header(sequence, count=3))


def test_each_of_the_last_five_batches_is_recognised_with_its_offsets() -> None:
    batches = [_header(n * 2, count=2, offset=100 + n * 7) for n in range(BATCHES_REMEMBERED + 1)]
    states = _after(*batches)
    for batch in batches[1:]:
        sent_again = batch._replace(base_offset=0)
        assert states.check(sent_again) == Duplicate(batch.base_offset, batch.base_offset + 1, 5)
    with pytest.raises(OutOfOrderSequence):
        states.check(batches[0])


def test_an_older_epoch_is_fenced_even_with_a_sequence_seen_before() -> None:
    states = _after(_header(0, epoch=4), _header(0, epoch=5))
    with pytest.raises(InvalidProducerEpoch, match="epoch 4, but epoch 5"):
        states.check(_header(0, epoch=4))


def test_a_newer_epoch_begins_with_sequence_zero() -> None:
    states = _after(_header(0), _header(1))
    assert states.check(_header(0, epoch=1)) == Accept()
    with pytest.raises(OutOfOrderSequence, match="must begin with 0"):
        states.check(_header(2, epoch=1))


def test_an_unknown_producer_may_go_on_where_it_is() -> None:
    assert ProducerStates().check(_header(1234, epoch=7)) == Accept()


def test_the_producer_that_wrote_longest_ago_is_forgotten_first() -> None:
    states = ProducerStates(producer_count_max=2)
    for producer_id in (1, 2, 1, 3):
        states.apply(_header(0, producer_id=producer_id))
    assert len(states) == 2
    assert isinstance(states.check(_header(0, producer_id=1)), Duplicate)
    assert states.check(_header(0, producer_id=2)) == Accept()


def test_checking_changes_nothing() -> None:
    states = _after(_header(0))
    assert states.check(_header(1)) == states.check(_header(1)) == Accept()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.booleans()), max_size=40))
def test_a_producer_that_retries_is_written_once_and_in_order(
    sends: list[tuple[int, int, bool]],
) -> None:
    """Producers send batches of some records, now and then twice; a naive log keeps each record once."""
    states = ProducerStates()
    log: list[tuple[int, int]] = []
    next_sequence = dict.fromkeys(range(3), 0)
    for producer_id, count, twice in sends:
        header = _header(next_sequence[producer_id], count=count, producer_id=producer_id)
        for _ in range(2 if twice else 1):
            if isinstance(states.check(header), Accept):
                states.apply(header._replace(base_offset=len(log)))
                log += [(producer_id, header.base_sequence + n) for n in range(count)]
        next_sequence[producer_id] += count
    for producer_id, sent in next_sequence.items():
        assert [sequence for owner, sequence in log if owner == producer_id] == list(range(sent))


def test_a_producer_with_an_open_transaction_is_never_forgotten() -> None:
    states = ProducerStates(producer_count_max=2)
    transactional = _header(0, producer_id=1)
    states.apply(transactional._replace(attributes=0x10))
    for producer_id in range(2, 20):
        states.apply(_header(0, producer_id=producer_id))
    assert sorted(info.producer_id for info in states.infos()) == [1, 19]
    for producer_id in range(20, 25):
        states.apply(_header(0, producer_id=producer_id)._replace(attributes=0x10))
    assert sorted(info.producer_id for info in states.infos()) == [1, 20, 21, 22, 23, 24]
