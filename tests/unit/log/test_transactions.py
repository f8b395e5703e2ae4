"""Transactions in one partition, and the naive reference that they are held against."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import (
    CorruptBatch,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from headrace.log.batch import decode_records, read_header
from headrace.log.failure import FailStop
from headrace.log.open_files import OpenFiles
from headrace.log.partition import PartitionLog
from headrace.log.producers import ProducerInfo
from headrace.log.storage import Storage
from headrace.log.topic_settings import TopicSettings
from headrace.testing.clock import ManualClock
from headrace.testing.disk import SimulatedDisk
from headrace.testing.partition import open_log

MakeBatch = Callable[..., bytes]
OpenPartition = Callable[..., PartitionLog]
SIZE_MAX = 1_000_000
TRANSACTIONAL = 0x10
CONTROL = 0x20


@pytest.fixture
def send(make_batch: MakeBatch) -> Callable[..., int]:
    """Append a transactional batch; return its offset."""

    def send_(log: PartitionLog, producer_id: int, sequence: int, *, epoch: int = 0, count: int = 1) -> int:
        batch = make_batch(count, producer=(producer_id, epoch, sequence), attributes=TRANSACTIONAL)
        return log.append(batch, size_bytes_max=SIZE_MAX).base_offset

    return send_


Send = Callable[..., int]


def _spans(log: PartitionLog, from_offset: int = 0, below_offset: int = 2**62) -> list[tuple[int, int, int]]:
    found = log.aborted_transactions(from_offset, below_offset)
    return [(each.producer_id, each.first_offset, each.last_offset) for each in found]


def open_transaction_of(log: PartitionLog, producer_id: int) -> int | None:
    """The first offset of the producer's open transaction."""
    found = {info.producer_id: info.transaction_start_offset for info in log.producers()}
    return found.get(producer_id)


def test_a_transaction_is_open_from_its_first_batch_to_its_marker(
    open_partition: OpenPartition, make_batch: MakeBatch, send: Send
) -> None:
    log = open_partition()
    log.append(make_batch(3), size_bytes_max=SIZE_MAX)
    send(log, 7, 0, count=2)
    send(log, 7, 2)
    assert open_transaction_of(log, 7) == 3
    assert open_transaction_of(log, 8) is None
    log.append_marker(7, 0, commits=True)
    assert open_transaction_of(log, 7) is None
    assert log.end_offset == 7


def test_the_marker_is_kafkas_control_batch(open_partition: OpenPartition, send: Send) -> None:
    log = open_partition()
    send(log, 7, 0, epoch=3)
    written = log.append_marker(7, 3, commits=True, coordinator_epoch=9)
    assert (written.base_offset, written.last_offset) == (1, 1)
    data = log.read(1, size_bytes_max=SIZE_MAX)
    header = read_header(data)
    assert (header.is_transactional, header.is_control) == (True, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    (record,) = decode_records(data)
    assert (record.key, record.value) == (b"\0\0\0\1", b"\0\0\0\0\0\x09")
    log.append_marker(7, 3, commits=False, coordinator_epoch=9)
    (record,) = decode_records(log.read(2, size_bytes_max=SIZE_MAX))
    assert record.key == b"\0\0\0\0"


def test_what_is_stable_ends_where_the_first_open_transaction_begins(
    open_partition: OpenPartition, make_batch: MakeBatch, send: Send
) -> None:
    log = open_partition()
    log.append(make_batch(2), size_bytes_max=SIZE_MAX)
    assert log.last_stable_offset(2) == 2
    send(log, 1, 0)
    send(log, 2, 0)
    assert log.last_stable_offset(4) == 2
    log.append_marker(1, 0, commits=True)
    assert log.last_stable_offset(5) == 3
    log.append_marker(2, 0, commits=False)
    assert log.last_stable_offset(6) == 6


def test_a_transaction_stays_unstable_until_its_marker_is_below_the_high_watermark(
    open_partition: OpenPartition, send: Send
) -> None:
    log = open_partition()
    send(log, 1, 0)
    log.append_marker(1, 0, commits=True)
    assert [log.last_stable_offset(each) for each in (0, 1, 2)] == [0, 0, 2]


def test_a_settled_marker_lets_readers_go_on_before_it_is_below_the_high_watermark(
    open_partition: OpenPartition, send: Send
) -> None:
    log = open_partition()
    send(log, 1, 0)
    send(log, 2, 0)
    log.append_marker(1, 0, commits=True, is_settled=True)
    assert [log.last_stable_offset(each) for each in (0, 1, 2)] == [0, 1, 1]
    log.append_marker(2, 0, commits=True, is_settled=True)
    assert [log.last_stable_offset(each) for each in (1, 2, 3, 4)] == [1, 2, 3, 4]


def test_a_settled_marker_settles_no_other_transaction(open_partition: OpenPartition, send: Send) -> None:
    log = open_partition()
    send(log, 1, 0)
    send(log, 2, 0)
    log.append_marker(1, 0, commits=True)
    log.append_marker(2, 0, commits=True, is_settled=True)
    assert [log.last_stable_offset(each) for each in (1, 2, 3)] == [0, 0, 3]


def test_aborted_transactions_are_found_where_they_overlap(
    open_partition: OpenPartition, make_batch: MakeBatch, send: Send
) -> None:
    log = open_partition()
    send(log, 1, 0)  # 0
    send(log, 2, 0)  # 1
    log.append_marker(2, 0, commits=False)  # 2
    log.append(make_batch(), size_bytes_max=SIZE_MAX)  # 3
    log.append_marker(1, 0, commits=False)  # 4
    send(log, 2, 1)  # 5
    log.append_marker(2, 0, commits=True)  # 6
    send(log, 2, 2)  # 7
    log.append_marker(2, 0, commits=False)  # 8
    assert _spans(log) == [(2, 1, 2), (1, 0, 4), (2, 7, 8)]
    assert _spans(log, 3, 5) == [(1, 0, 4)]
    assert _spans(log, 0, 1) == [(1, 0, 4)]
    assert _spans(log, 5, 7) == []
    assert _spans(log, 5, 8) == [(2, 7, 8)]


def test_aborted_transactions_are_found_in_every_segment_and_after_a_restart(
    open_partition: OpenPartition, make_batch: MakeBatch, send: Send, disk: SimulatedDisk, partition_dir: Path
) -> None:
    log = open_partition()
    send(log, 1, 0)
    for sequence in range(4):
        send(log, 2, sequence)
        log.append_marker(2, 0, commits=False)
        log.append(make_batch(value=b"x" * 700), size_bytes_max=SIZE_MAX)
    log.append_marker(1, 0, commits=False)
    expected = [(2, 3 * n + 1, 3 * n + 2) for n in range(4)] + [(1, 0, 13)]
    assert _spans(log) == expected
    assert _spans(log, 8, 11) == [(2, 7, 8), (2, 10, 11), (1, 0, 13)]
    log.close()
    assert sum(name.endswith(".txnindex") for name in disk.names(partition_dir)) == 3
    log = open_partition()
    assert _spans(log) == expected
    assert _spans(log, 13, 14) == [(1, 0, 13)]
    disk.kill()
    assert _spans(open_partition()) == expected


def test_an_open_transaction_is_still_open_after_a_restart(open_partition: OpenPartition, send: Send) -> None:
    log = open_partition()
    send(log, 1, 0)
    send(log, 2, 0)
    log.append_marker(1, 0, commits=True)
    log.close()
    log = open_partition()
    assert (open_transaction_of(log, 1), open_transaction_of(log, 2)) == (None, 1)
    assert log.last_stable_offset(log.end_offset) == 1


def test_a_marker_of_an_older_epoch_is_refused_and_not_written(
    open_partition: OpenPartition, send: Send
) -> None:
    log = open_partition()
    send(log, 1, 0, epoch=5)
    with pytest.raises(InvalidProducerEpoch, match="epoch 4, but epoch 5"):
        log.append_marker(1, 4, commits=True)
    assert (log.end_offset, open_transaction_of(log, 1)) == (1, 0)


def test_a_marker_of_an_older_coordinator_is_refused(open_partition: OpenPartition, send: Send) -> None:
    log = open_partition()
    log.append_marker(1, 0, commits=True, coordinator_epoch=3)
    send(log, 1, 0)
    with pytest.raises(TransactionCoordinatorFenced, match="coordinator epoch 2, but epoch 3"):
        log.append_marker(1, 0, commits=True, coordinator_epoch=2)
    assert open_transaction_of(log, 1) == 1


def test_a_marker_where_nothing_is_open_is_written_and_harmless(open_partition: OpenPartition) -> None:
    log = open_partition()
    log.append_marker(1, 0, commits=False)
    assert (log.end_offset, log.last_stable_offset(1), _spans(log)) == (1, 1, [])


def test_sequences_go_on_after_a_marker_of_the_same_epoch(open_partition: OpenPartition, send: Send) -> None:
    log = open_partition()
    send(log, 1, 0, count=2)
    log.append_marker(1, 0, commits=True)
    assert send(log, 1, 0, count=2) == 0, "the retry of a batch is recognised after the marker, too"
    assert open_transaction_of(log, 1) is None
    assert send(log, 1, 2) == 3


@pytest.mark.parametrize("restarted", [False, True])
def test_sequences_begin_again_after_a_marker_of_a_newer_epoch(
    open_partition: OpenPartition, send: Send, restarted: bool
) -> None:
    log = open_partition()
    send(log, 1, 0, count=2)
    log.append_marker(1, 1, commits=True)
    if restarted:
        log.close()
        log = open_partition()
    with pytest.raises(InvalidProducerEpoch):
        send(log, 1, 2)
    with pytest.raises(OutOfOrderSequence, match="sent sequence 2 where 0 was expected"):
        send(log, 1, 2, epoch=1)
    assert send(log, 1, 0, epoch=1) == 3


def test_a_batch_outside_of_the_open_transaction_is_refused(
    open_partition: OpenPartition, make_batch: MakeBatch, send: Send
) -> None:
    log = open_partition()
    send(log, 1, 0)
    with pytest.raises(InvalidTransactionState, match="open since offset 0"):
        log.append(make_batch(producer=(1, 0, 1)), size_bytes_max=SIZE_MAX)
    log.append(make_batch(producer=(2, 0, 0)), size_bytes_max=SIZE_MAX)
    log.append_marker(1, 0, commits=True)
    log.append(make_batch(producer=(1, 0, 1)), size_bytes_max=SIZE_MAX)


def test_control_batches_and_transactions_of_nobody_are_refused(
    open_partition: OpenPartition, make_batch: MakeBatch
) -> None:
    log = open_partition()
    with pytest.raises(CorruptBatch, match="only a broker"):
        log.append(
            make_batch(producer=(1, 0, 0), attributes=TRANSACTIONAL | CONTROL), size_bytes_max=SIZE_MAX
        )
    with pytest.raises(CorruptBatch, match="no producer id"):
        log.append(make_batch(attributes=TRANSACTIONAL), size_bytes_max=SIZE_MAX)


def test_producers_are_described(open_partition: OpenPartition, make_batch: MakeBatch, send: Send) -> None:
    log = open_partition()
    send(log, 1, 0, count=2)
    log.append(make_batch(at=77, producer=(2, 4, 10)), size_bytes_max=SIZE_MAX)
    assert log.producers() == [
        ProducerInfo(
            producer_id=1,
            producer_epoch=0,
            last_sequence=1,
            last_timestamp_ms=1000,
            coordinator_epoch=-1,
            transaction_start_offset=0,
        ),
        ProducerInfo(
            producer_id=2,
            producer_epoch=4,
            last_sequence=10,
            last_timestamp_ms=77,
            coordinator_epoch=-1,
            transaction_start_offset=None,
        ),
    ]


def test_a_producer_that_is_idle_for_too_long_is_forgotten_unless_it_has_a_transaction_open(
    disk: SimulatedDisk, partition_dir: Path, make_batch: MakeBatch, send: Send
) -> None:
    clock = ManualClock()
    storage = Storage(disk=disk, files=OpenFiles(disk), fail_stop=FailStop(), producer_expiration_ms=1000)
    log = open_log(partition_dir, TopicSettings(), clock, storage=storage)
    send(log, 1, 0)
    log.append(make_batch(at=5, producer=(2, 0, 0)), size_bytes_max=SIZE_MAX)
    clock.advance(500)
    log.append(make_batch(producer=(3, 0, 0)), size_bytes_max=SIZE_MAX)
    clock.jump(10**9)
    assert [each.producer_id for each in log.producers()] == [1, 2, 3]
    clock.advance(500)
    assert sorted(each.producer_id for each in log.producers()) == [1, 3]
    clock.advance(10_000)
    assert [each.producer_id for each in log.producers()] == [1]
    log.append_marker(1, 0, commits=True)
    clock.advance(1000)
    assert log.producers() == []


def test_a_log_that_is_opened_knows_its_producers_as_long_as_one_that_was_not_closed(
    open_partition: OpenPartition, send: Send
) -> None:
    log = open_partition()
    send(log, 1, 0)
    log.append_marker(1, 2, commits=True, coordinator_epoch=4)
    before = log.producers()
    log.close()
    assert open_partition().producers() == before


def test_what_the_broker_writes_for_a_producer_has_no_sequence(
    open_partition: OpenPartition, make_batch: MakeBatch
) -> None:
    log = open_partition()
    batch = make_batch(2, producer=(7, 1, -1), attributes=TRANSACTIONAL)
    with pytest.raises(CorruptBatch, match="sequence"):
        log.append(batch, size_bytes_max=SIZE_MAX)
    offsets = [log.append(batch, size_bytes_max=SIZE_MAX, is_sequenced=False).base_offset for _ in range(2)]
    assert offsets == [0, 2]
    assert open_transaction_of(log, 7) == 0
    assert [each.last_sequence for each in log.producers()] == [-1]
    older = make_batch(1, producer=(7, 0, -1), attributes=TRANSACTIONAL)
    with pytest.raises(InvalidProducerEpoch):
        log.append(older, size_bytes_max=SIZE_MAX, is_sequenced=False)
    assert open_transaction_of(open_partition(), 7) == 0
