"""Transactions at work, on a disk that loses what was not synced, with syncs and time moved by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.errors import StorageError, TooManyOpenFiles
from headrace.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.kafka.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.kafka.messages.describe_transactions import DescribeTransactionsRequest
from headrace.kafka.messages.end_txn import EndTxnRequest
from headrace.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.kafka.messages.init_producer_id import InitProducerIdRequest
from headrace.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.kafka.messages.list_transactions import ListTransactionsRequest
from headrace.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from headrace.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from headrace.kafka.transactions.state import ProducerIdentity
from headrace.log.batch import TRANSACTIONAL, decode_records, encode_batch, read_header
from headrace.log.marker import decode_marker
from headrace.log.record import Record
from headrace.testing.engine_by_hand import EngineByHand

if TYPE_CHECKING:
    from headrace.log.partition import PartitionLog

SIZE_MAX = 1_000_000
OLD, NEW = 11, 12
"""Versions of Produce: before and after partitions are added by producing to them."""


class Bench(EngineByHand):
    """A broker with topic `t` of three partitions. Nothing becomes durable until `sync` or `settle`."""

    def __init__(self) -> None:
        super().__init__()
        self.store.catalog.begin_creation("t", 3).at_once()

    def init(self, timeout_ms: int = 60_000, transactional_id: str = "id") -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        while True:
            answer = self.tell(22, 5, request)
            if answer.error_code is not ErrorCode.concurrent_transactions:
                assert answer.error_code is ErrorCode.none
                return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    def add(self, producer: ProducerIdentity, *partitions: int) -> Any:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="id",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name="t", partitions=partitions),),
        )
        return self.tell(24, 3, request)

    def produce_request(
        self, producer: ProducerIdentity, partition: int, value: str, sequence: int = 0, acks: int = -1
    ) -> ProduceRequest:
        batch = encode_batch(
            [Record(timestamp_ms=self.clock.now_ms(), key=None, value=value.encode())],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        data = (PartitionProduceData(index=partition, records=batch),)
        return ProduceRequest(
            transactional_id="id",
            acks=acks,
            timeout_ms=1_000,
            topic_data=(TopicProduceData(name="t", partition_data=data),),
        )

    def produce(self, producer: ProducerIdentity, partition: int, value: str, sequence: int = 0) -> str:
        answer = self.tell(0, NEW, self.produce_request(producer, partition, value, sequence))
        return error_of(answer)

    def end_request(self, producer: ProducerIdentity, *, commits: bool = True) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id="id",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commits,
        )

    def end(self, producer: ProducerIdentity, *, commits: bool = True, version: int = 5) -> Any:
        return self.tell(26, version, self.end_request(producer, commits=commits))

    def log(self, partition: int) -> PartitionLog:
        return self.store.topics["t"].partitions[partition]

    def open_transactions(self, partition: int) -> set[int]:
        """The producers that have one open in a partition."""
        infos = self.log(partition).producers()
        return {info.producer_id for info in infos if info.transaction_start_offset is not None}

    def markers(self, partition: int) -> list[bool]:
        """Whether they commit, one by one."""
        found, log = [], self.log(partition)
        offset = log.start_offset
        while data := log.read(offset, size_bytes_max=1):
            header = read_header(data)
            if header.is_control:
                marker = decode_marker(header, data)
                assert marker is not None
                found.append(marker.commits)
            offset = header.last_offset + 1
        return found

    def committed(self, partition: int) -> list[str]:
        """What a consumer of committed records reads, by itself skipping those of aborted transactions."""
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=1,
            topics=(
                FetchTopic(
                    topic="t",
                    partitions=(
                        FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=SIZE_MAX),
                    ),
                ),
            ),
        )
        (data,) = self.ask(1, 12, request).responses[0].partitions
        assert data.error_code is ErrorCode.none
        return read_committed(data.records, data.aborted_transactions)

    def latest(self, partition: int, isolation_level: int) -> int:
        asked = ListOffsetsPartition(partition_index=partition, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=(ListOffsetsTopic(name="t", partitions=(asked,)),),
        )
        return int(self.tell(2, 5, request).topics[0].partitions[0].offset)

    @property
    def state(self) -> str:
        return self.services.transactions.coordinator.transactions["id"].state.value


def read_committed(records: bytes, aborted: Any) -> list[str]:
    values, position = [], 0
    waiting = sorted((each.first_offset, each.producer_id) for each in aborted)
    skipped: set[int] = set()
    while position < len(records):
        header = read_header(records, position)
        data = records[position : position + header.size_bytes]
        position += header.size_bytes
        while waiting and waiting[0][0] <= header.last_offset:
            skipped.add(waiting.pop(0)[1])
        if header.is_control:
            skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            values += [(record.value or b"").decode() for record in decode_records(data)]
    return values


def error_of(answer: Any) -> str:
    return str(answer.responses[0].partition_responses[0].error_code.name)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_nothing_is_appended_before_the_record_that_adds_the_partition_is_durable(bench: Bench) -> None:
    producer = bench.init()
    first = bench.ask(0, NEW, bench.produce_request(producer, 0, "first"))
    second = bench.ask(0, NEW, bench.produce_request(producer, 0, "second", 1))
    assert bench.log(0).end_offset == 0
    bench.sync()
    assert bench.log(0).end_offset == 2
    assert not first.is_resolved
    bench.settle()
    assert (error_of(first.response), error_of(second.response)) == ("none", "none")
    bench.end(producer)
    assert bench.committed(0) == ["first", "second"]


def test_a_crash_before_the_partition_is_added_leaves_nothing_open(bench: Bench) -> None:
    producer = bench.init()
    bench.ask(0, NEW, bench.produce_request(producer, 0, "lost"))
    bench.crash()
    assert producer.producer_id not in bench.open_transactions(0)
    assert bench.produce(producer, 0, "again") == "none"
    bench.end(producer)
    assert bench.committed(0) == ["again"]


def test_a_commit_is_told_and_read_once_its_outcome_is_durable_and_its_markers_are_written(
    bench: Bench,
) -> None:
    producer = bench.init()
    for partition in (0, 1, 2):
        bench.produce(producer, partition, "value")
    answer = bench.ask(26, 5, bench.end_request(producer))
    assert [bench.markers(partition) for partition in (0, 1, 2)] == [[], [], []]
    assert [bench.committed(partition) for partition in (0, 1, 2)] == [[], [], []]
    assert not answer.is_resolved
    bench.sync()
    assert [bench.markers(partition) for partition in (0, 1, 2)] == [[True]] * 3
    assert [bench.committed(partition) for partition in (0, 1, 2)] == [["value"]] * 3
    assert answer.response.error_code is ErrorCode.none
    assert (answer.response.producer_id, answer.response.producer_epoch) == (producer.producer_id, 1)
    assert bench.state == "PrepareCommit"
    bench.sync()
    assert bench.state == "CompleteCommit"


@pytest.mark.parametrize("seed", range(8))
def test_a_crash_that_takes_markers_takes_nothing_that_was_told_or_read(bench: Bench, seed: int) -> None:
    producer = bench.init()
    for partition in (0, 1, 2):
        bench.produce(producer, partition, "value")
    answer = bench.ask(26, 5, bench.end_request(producer))
    bench.sync()
    assert answer.is_resolved
    # It goes on at once, and is not heard before the outcome is in all partitions.
    successor = ProducerIdentity(producer.producer_id, 1)
    bench.ask(0, NEW, bench.produce_request(successor, 0, "next"))
    bench.log(seed % 3).sync()
    bench.crash(seed)
    assert [bench.committed(partition) for partition in (0, 1, 2)] == [["value"]] * 3
    bench.settle()
    assert bench.state == "CompleteCommit"
    assert bench.open_transactions(0) | bench.open_transactions(1) | bench.open_transactions(2) == set()


def test_a_reader_that_waits_is_told_of_a_commit_before_its_marker_is_durable(bench: Bench) -> None:
    producer = bench.init()
    bench.produce(producer, 0, "value")
    told: list[int] = []
    bench.services.watchers.watch([bench.log(0)], lambda: told.append(bench.latest(0, 1)))
    bench.ask(26, 5, bench.end_request(producer))
    bench.sync()
    assert bench.log(0).durable_offset == 1
    assert told == [1]


def test_an_abort_is_told_once_its_markers_are_durable(bench: Bench) -> None:
    producer = bench.init()
    bench.produce(producer, 0, "value")
    answer = bench.ask(26, 5, bench.end_request(producer, commits=False))
    bench.sync()
    assert bench.markers(0) == [False]
    assert not answer.is_resolved
    bench.sync()
    assert answer.response.error_code is ErrorCode.none


def test_a_commit_behind_records_that_are_not_durable_waits_for_its_markers(bench: Bench) -> None:
    producer = bench.init()
    bench.produce(producer, 0, "value")
    answer = bench.ask(26, 5, bench.end_request(producer))
    other = encode_batch([Record(timestamp_ms=bench.clock.now_ms(), key=None, value=b"other")])
    bench.log(0).append(other, size_bytes_max=SIZE_MAX)
    bench.sync()
    assert bench.markers(0) == [True]
    assert not answer.is_resolved
    assert bench.committed(0) == []
    bench.sync()
    assert answer.response.error_code is ErrorCode.none
    assert bench.committed(0) == ["value", "other"]


@pytest.mark.parametrize("version", [4, 5])
def test_a_producer_that_goes_on_before_the_markers_are_durable_waits_for_them(
    bench: Bench, version: int
) -> None:
    producer = bench.init()
    bench.add(producer, 0, 1)
    bench.produce(producer, 0, "first")
    ended = bench.ask(26, version, bench.end_request(producer))
    bench.sync()
    successor = ProducerIdentity(producer.producer_id, ended.response.producer_epoch if version == 5 else 0)
    asked = bench.ask(0, NEW, bench.produce_request(successor, 0, "second", 0 if version == 5 else 1))
    assert bench.state == "PrepareCommit"
    bench.sync()
    assert bench.state == "Ongoing"
    bench.settle()
    assert error_of(asked.response) == "none"
    assert bench.end(successor, version=version).error_code is ErrorCode.none
    assert bench.committed(0) == ["first", "second"]


def test_an_empty_transaction_can_be_aborted_before_the_markers_of_the_last_are_durable(
    bench: Bench,
) -> None:
    producer = bench.init()
    bench.produce(producer, 0, "first")
    ended = bench.ask(26, 5, bench.end_request(producer))
    bench.sync()
    successor = ProducerIdentity(producer.producer_id, ended.response.producer_epoch)
    aborted = bench.ask(26, 5, bench.end_request(successor, commits=False))
    bench.settle()
    assert aborted.response.error_code is ErrorCode.none
    assert bench.committed(0) == ["first"]


def test_another_producer_takes_over_before_the_markers_of_the_first_are_durable(bench: Bench) -> None:
    producer = bench.init()
    bench.produce(producer, 0, "first")
    bench.ask(26, 5, bench.end_request(producer))
    bench.sync()
    request = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
    taken = bench.ask(22, 5, request)
    bench.settle()
    assert (taken.response.error_code, taken.response.producer_epoch) == (ErrorCode.none, 2)
    assert bench.committed(0) == ["first"]


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("version", [4, 5])
def test_a_crash_after_any_number_of_markers_is_finished_at_the_next_start(
    bench: Bench, commits: bool, version: int
) -> None:
    for synced in range(4):
        producer = bench.init()
        if version == 4:
            bench.add(producer, 0, 1, 2)
        for partition in (0, 1, 2):
            bench.produce(producer, partition, f"{synced}")
        bench.ask(26, version, bench.end_request(producer, commits=commits))
        # The outcome is durable; of the markers, only the first few.
        bench.sync()
        for partition in range(synced):
            bench.log(partition).sync()
        bench.crash(seed=synced)
        assert bench.state in {"PrepareCommit", "PrepareAbort"}
        bench.settle()
        assert bench.state == ("CompleteCommit" if commits else "CompleteAbort")
        expected = [str(each) for each in range(synced + 1)] if commits else []
        assert [bench.committed(partition) for partition in (0, 1, 2)] == [expected] * 3
        assert bench.latest(0, 1) == bench.latest(0, 0)


def test_a_crash_before_the_outcome_is_durable_leaves_the_transaction_open(bench: Bench) -> None:
    producer = bench.init()
    bench.produce(producer, 0, "value")
    bench.ask(26, 5, bench.end_request(producer))
    bench.crash()
    bench.settle()
    if bench.state == "Ongoing":
        assert bench.end(producer, commits=False).error_code is ErrorCode.none
        assert bench.committed(0) == []
    else:
        assert bench.committed(0) == ["value"]


def test_a_crash_that_takes_the_last_record_of_a_transaction_changes_nothing(bench: Bench) -> None:
    producer = bench.init()
    bench.produce(producer, 0, "first")
    answer = bench.ask(26, 5, bench.end_request(producer))
    bench.sync()
    bench.sync()
    assert answer.is_resolved
    successor = ProducerIdentity(producer.producer_id, 1)
    bench.ask(0, NEW, bench.produce_request(successor, 0, "second"))
    bench.crash(seed=3)
    bench.settle()
    assert bench.state in {"CompleteCommit", "Ongoing"}
    assert bench.committed(0) == ["first"]
    assert bench.produce(successor, 0, "second") == "none"
    assert bench.end(successor).error_code is ErrorCode.none
    assert bench.committed(0) == ["first", "second"]


def test_a_retried_end_is_told_that_it_has_succeeded_also_after_a_crash(bench: Bench) -> None:
    producer = bench.init()
    bench.produce(producer, 0, "value")
    bench.end(producer)
    bench.crash()
    retried = bench.end(producer)
    assert (retried.error_code, retried.producer_epoch) == (ErrorCode.none, 1)


def test_the_time_of_a_transaction_goes_by_the_clock_that_does_not_jump(bench: Bench) -> None:
    producer = bench.init(timeout_ms=10_000)
    bench.produce(producer, 0, "late")
    bench.clock.jump(3_600_000)
    bench.advance(9_999)
    bench.settle()
    assert bench.state == "Ongoing"
    bench.advance(1)
    bench.settle()
    assert bench.state == "CompleteAbort"
    assert bench.produce(producer, 0, "zombie", 1) == "invalid_producer_epoch"
    assert bench.committed(0) == []


def test_each_transaction_has_its_whole_time(bench: Bench) -> None:
    producer = bench.init(timeout_ms=10_000)
    bench.produce(producer, 0, "first")
    bench.advance(6_000)
    bench.end(producer, version=4)
    bench.produce(producer, 0, "second", 1)
    bench.advance(6_000)
    bench.settle()
    assert bench.state == "Ongoing"
    bench.advance(4_000)
    bench.settle()
    assert bench.state == "CompleteAbort"


def test_a_transaction_that_a_crash_left_open_ends_by_the_time_at_which_it_began(bench: Bench) -> None:
    bench.produce(bench.init(timeout_ms=10_000), 0, "late")
    bench.clock.advance(6_000)
    bench.crash()
    bench.advance(3_999)
    bench.settle()
    assert bench.state == "Ongoing"
    bench.advance(1)
    bench.settle()
    assert bench.state == "CompleteAbort"


def test_an_id_that_nobody_has_used_for_a_week_is_forgotten_for_good(bench: Bench) -> None:
    bench.init()
    for _ in range(7 * 24):
        bench.advance(3_600_000)
        bench.settle()
    assert bench.services.transactions.coordinator.transactions == {}
    bench.crash()
    assert bench.services.transactions.coordinator.transactions == {}


def test_a_marker_that_finds_no_file_is_written_later(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = bench.init()
    bench.produce(producer, 0, "value")

    def refuse(*_: Any, **__: Any) -> None:
        raise TooManyOpenFiles("no file can be opened")

    with monkeypatch.context() as patch:
        patch.setattr(bench.log(0), "append_marker", refuse)
        answer = bench.ask(26, 5, bench.end_request(producer))
        bench.settle()
        assert not answer.is_resolved
    bench.advance(100)
    bench.settle()
    assert answer.response.error_code is ErrorCode.none
    assert bench.committed(0) == ["value"]


def test_a_failed_disk_is_told_as_a_coordinator_that_is_not_there(bench: Bench) -> None:
    producer = bench.init()
    bench.produce(producer, 0, "value")
    bench.disk.fail("append")
    assert bench.end(producer).error_code is ErrorCode.coordinator_not_available
    assert bench.produce(producer, 0, "more", 1) == "kafka_storage_error"


def test_offsets_of_a_transaction_survive_crashes_as_pending_and_as_committed(bench: Bench) -> None:
    producer = bench.init()

    def commit_offset(offset: int, identity: ProducerIdentity) -> str:
        asked = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id="id",
            group_id="g",
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=(TxnOffsetCommitRequestTopic(name="t", partitions=(asked,)),),
        )
        return str(bench.tell(28, 5, request).topics[0].partitions[0].error_code.name)

    def fetch_offset() -> tuple[str, int]:
        topic = OffsetFetchRequestTopic(name="t", partition_indexes=(0,))
        request = OffsetFetchRequest(group_id="g", topics=(topic,), require_stable=True)
        (found,) = bench.tell(9, 7, request).topics[0].partitions
        return found.error_code.name, found.committed_offset

    assert commit_offset(5, producer) == "none"
    bench.crash()
    assert fetch_offset() == ("unstable_offset_commit", -1)
    bench.end(producer)
    assert fetch_offset() == ("none", 5)
    bench.crash()
    assert fetch_offset() == ("none", 5)
    assert commit_offset(7, producer) == "invalid_producer_epoch"
    successor = ProducerIdentity(producer.producer_id, 1)
    assert commit_offset(7, successor) == "none"
    bench.end(successor, commits=False)
    bench.crash()
    assert fetch_offset() == ("none", 5)


def test_who_wants_stable_offsets_waits_for_those_that_are_on_their_way_to_the_disk(bench: Bench) -> None:
    producer = bench.init()
    bench.add(producer, 0)
    asked = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata=None)
    commit = TxnOffsetCommitRequest(
        transactional_id="id",
        group_id="g",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=(TxnOffsetCommitRequestTopic(name="t", partitions=(asked,)),),
    )

    def fetch(topics: tuple[OffsetFetchRequestTopic, ...] | None) -> list[str]:
        request = OffsetFetchRequest(group_id="g", topics=topics, require_stable=True)
        topics_found = bench.ask(9, 7, request).topics
        return [each.error_code.name for topic in topics_found for each in topic.partitions]

    answer = bench.ask(28, 5, commit)
    bench.sync()
    # The group may have let another member have the partition meanwhile: it must not begin before offset 5.
    assert not answer.is_resolved
    assert fetch((OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1)),)) == [
        "unstable_offset_commit",
        "none",
    ]
    assert fetch(None) == ["unstable_offset_commit"]
    bench.settle()
    assert fetch(None) == ["unstable_offset_commit"]
    bench.end(producer)
    assert fetch(None) == ["none"]


def test_after_a_failed_sync_nobody_waits_for_what_it_has_lost(bench: Bench) -> None:
    producer = bench.init()
    bench.ask(0, NEW, bench.produce_request(producer, 0, "value"))
    (logs,) = bench.syncs
    bench.syncs.clear()
    bench.disk.fail("sync_file")
    with pytest.raises(StorageError) as failure:
        logs[0].sync()
    bench.engine.synced(logs, failure.value)
    # The partition has been added as far as anybody can see, but that will never be durable.
    assert error_of(bench.ask(0, NEW, bench.produce_request(producer, 0, "value"))) == "kafka_storage_error"
    assert error_of(bench.ask(0, OLD, bench.produce_request(producer, 0, "value"))) == "kafka_storage_error"


def test_offsets_by_the_first_version_of_the_protocol_have_to_be_added(bench: Bench) -> None:
    producer = bench.init()
    request = TxnOffsetCommitRequest(
        transactional_id="id",
        group_id="g",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=(
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=(
                    TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=1, committed_metadata=None
                    ),
                ),
            ),
        ),
    )
    answers = [bench.tell(28, version, request) for version in (3, 4)]
    codes = [answer.topics[0].partitions[0].error_code for answer in answers]
    assert codes == [ErrorCode.invalid_txn_state, ErrorCode.transaction_abortable]
    added = AddOffsetsToTxnRequest(
        transactional_id="id",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id="g",
    )
    assert bench.tell(25, 3, added).error_code is ErrorCode.none
    assert bench.tell(28, 3, request).topics[0].partitions[0].error_code is ErrorCode.none


def test_a_batch_does_not_overtake_the_first_one_of_its_producer(bench: Bench) -> None:
    producer = bench.init()
    assert bench.produce(producer, 0, "second", 1) == "out_of_order_sequence_number"
    assert bench.produce(producer, 0, "first", 0) == "none"
    assert bench.produce(producer, 0, "second", 1) == "none"
    # A producer of the first version of the protocol may have been forgotten here, and goes on where it is.
    bench.add(producer, 1)
    assert error_of(bench.tell(0, OLD, bench.produce_request(producer, 1, "tenth", 9))) == "none"


def test_a_batch_to_a_partition_that_was_not_added_is_refused(bench: Bench) -> None:
    producer = bench.init()
    bench.add(producer, 0)
    for version, code in ((10, "invalid_txn_state"), (OLD, "transaction_abortable")):
        answers = [
            bench.tell(0, version, bench.produce_request(producer, partition, "value"))
            for partition in (0, 1)
        ]
        assert [error_of(answer) for answer in answers] == ["none", code]


def test_partitions_that_are_not_there_are_refused_and_the_others_not_tried(bench: Bench) -> None:
    answer = bench.add(bench.init(), 0, 9)
    (topic,) = answer.results_by_topic_v3_and_below
    assert [each.partition_error_code for each in topic.results_by_partition] == [
        ErrorCode.operation_not_attempted,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert bench.state == "Empty"


def test_what_is_latest_depends_on_what_a_client_wants_to_read(bench: Bench) -> None:
    producer = bench.init()
    bench.produce(producer, 0, "value")
    assert (bench.latest(0, isolation_level=0), bench.latest(0, isolation_level=1)) == (1, 0)
    bench.end(producer)
    assert (bench.latest(0, isolation_level=0), bench.latest(0, isolation_level=1)) == (2, 2)


def _marker(producer: ProducerIdentity, *, commits: bool, partition: int = 0) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=(
            WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                transaction_result=commits,
                topics=(WritableTxnMarkerTopic(name="t", partition_indexes=(partition,)),),
                coordinator_epoch=0,
            ),
        )
    )


def _marker_errors(answer: Any) -> list[str]:
    return [each.error_code.name for each in answer.markers[0].topics[0].partitions]


def test_ending_a_transaction_by_hand_in_one_partition_aborts_all_of_it(bench: Bench) -> None:
    producer = bench.init()
    bench.produce(producer, 0, "value")
    bench.produce(producer, 1, "value")
    assert _marker_errors(bench.tell(27, 1, _marker(producer, commits=True))) == ["invalid_txn_state"]
    assert _marker_errors(bench.tell(27, 1, _marker(producer, commits=False))) == ["none"]
    assert bench.state == "CompleteAbort"
    assert (bench.markers(0), bench.markers(1)) == ([False], [False])
    assert _marker_errors(bench.tell(27, 1, _marker(producer, commits=False))) == ["invalid_producer_epoch"]


def test_a_transaction_that_the_coordinator_does_not_know_is_ended_by_hand(bench: Bench) -> None:
    stranger = ProducerIdentity(77, 3)
    batch = bench.produce_request(stranger, 0, "hanging").topic_data[0].partition_data[0].records
    assert batch is not None
    bench.log(0).append(batch, size_bytes_max=SIZE_MAX)
    assert _marker_errors(bench.tell(27, 1, _marker(stranger, commits=False))) == ["none"]
    assert 77 not in bench.open_transactions(0)
    assert _marker_errors(bench.tell(27, 1, _marker(stranger, commits=False, partition=9))) == [
        "unknown_topic_or_partition"
    ]


def test_the_topic_of_transactions_takes_no_markers_from_outside(bench: Bench) -> None:
    producer = bench.init()
    topic = WritableTxnMarkerTopic(name="__transaction_state", partition_indexes=(0,))
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=0,
        transaction_result=False,
        topics=(topic,),
        coordinator_epoch=0,
    )
    answer = bench.tell(27, 1, WriteTxnMarkersRequest(markers=(marker,)))
    assert _marker_errors(answer) == ["invalid_topic_exception"]


def test_transactions_are_listed_by_state_producer_duration_and_name(bench: Bench) -> None:
    producer = bench.init()
    other = bench.init(transactional_id="other")
    bench.produce(producer, 0, "value")
    bench.advance(1_000)

    def listed(**filters: Any) -> list[str]:
        answer = bench.tell(66, 2, ListTransactionsRequest(**filters))
        assert answer.error_code is ErrorCode.none
        return sorted(each.transactional_id for each in answer.transaction_states)

    assert listed() == ["id", "other"]
    assert listed(state_filters=("Ongoing",)) == ["id"]
    assert listed(producer_id_filters=(other.producer_id,)) == ["other"]
    assert listed(state_filters=("Ongoing",), duration_filter=999) == ["id"]
    assert listed(state_filters=("Ongoing",), duration_filter=1_000) == []
    assert listed(transactional_id_pattern="o.*") == ["other"]
    unknown = bench.tell(66, 2, ListTransactionsRequest(state_filters=("Sleeping",)))
    assert (unknown.unknown_state_filters, unknown.transaction_states) == (("Sleeping",), ())
    broken = bench.tell(66, 2, ListTransactionsRequest(transactional_id_pattern="("))
    assert broken.error_code is ErrorCode.invalid_regular_expression


def test_a_transaction_is_described_while_it_is_open_and_after(bench: Bench) -> None:
    producer = bench.init()
    bench.produce(producer, 1, "value")
    bench.produce(producer, 0, "value")
    request = DescribeTransactionsRequest(transactional_ids=("id", "nobody", "", "id"))
    described, unknown, empty = bench.tell(65, 0, request).transaction_states
    assert (described.transaction_state, described.producer_id) == ("Ongoing", producer.producer_id)
    assert [(each.topic, each.partitions) for each in described.topics] == [("t", (0, 1))]
    assert described.transaction_start_time_ms == bench.clock.now_ms()
    assert unknown.error_code is ErrorCode.transactional_id_not_found
    assert empty.error_code is ErrorCode.invalid_request
    bench.end(producer)
    (described, *_) = bench.tell(65, 0, request).transaction_states
    assert (described.transaction_state, described.producer_epoch) == ("CompleteCommit", 1)


def test_the_producers_of_a_partition_are_described(bench: Bench) -> None:
    producer = bench.init()
    bench.produce(producer, 0, "value")
    request = DescribeProducersRequest(topics=(TopicRequest(name="t", partition_indexes=(0, 9)),))
    known, unknown = bench.tell(61, 0, request).topics[0].partitions
    (described,) = known.active_producers
    assert (described.producer_id, described.last_sequence) == (producer.producer_id, 0)
    assert described.current_txn_start_offset == 0
    assert unknown.error_code is ErrorCode.unknown_topic_or_partition
    bench.end(producer)
    (described,) = bench.tell(61, 0, request).topics[0].partitions[0].active_producers
    assert (described.producer_epoch, described.current_txn_start_offset) == (1, -1)


def test_brokers_ask_about_many_transactions_at_once(bench: Bench) -> None:
    producer = bench.init()
    bench.add(producer, 0)

    def asked(transactional_id: str, partition: int, *, verify_only: bool) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=verify_only,
            topics=(AddPartitionsToTxnTopic(name="t", partitions=(partition,)),),
        )

    request = AddPartitionsToTxnRequest(
        transactions=(
            asked("id", 0, verify_only=True),
            asked("id", 1, verify_only=True),
            asked("id", 2, verify_only=False),
            asked("nobody", 0, verify_only=True),
        )
    )
    results = bench.tell(24, 5, request).results_by_transaction
    codes = [each.topic_results[0].results_by_partition[0].partition_error_code.name for each in results]
    assert codes == ["none", "transaction_abortable", "none", "invalid_producer_id_mapping"]
