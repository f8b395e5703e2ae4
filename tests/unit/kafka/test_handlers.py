"""Handlers over a log whose syncs the test finishes, without a connection."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.config import Address, BrokerConfig
from headrace.errors import StorageError
from headrace.kafka.answer import Pending
from headrace.kafka.commit import GroupCommit
from headrace.kafka.consumer_groups import ConsumerGroups
from headrace.kafka.handlers.configs import Resource, handle_describe_configs
from headrace.kafka.handlers.fetch import handle_fetch
from headrace.kafka.handlers.group_admin import handle_describe_groups
from headrace.kafka.handlers.list_offsets import MAX_TIMESTAMP, handle_list_offsets
from headrace.kafka.handlers.metadata import handle_metadata
from headrace.kafka.handlers.offsets import handle_offset_commit, handle_offset_fetch
from headrace.kafka.handlers.topics import handle_delete_topics
from headrace.kafka.messages.delete_topics import DeleteTopicsRequest
from headrace.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.kafka.messages.describe_groups import DescribeGroupsRequest
from headrace.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from headrace.kafka.producer_ids import ProducerIds
from headrace.kafka.services import INTERNAL_TOPICS, OFFSETS_TOPIC, Call, Services
from headrace.kafka.topic_changes import TopicChanges
from headrace.kafka.unsent_answers import UnsentAnswers
from headrace.kafka.watchers import Watchers
from headrace.log.batch import encode_batch
from headrace.log.disk import SystemDisk
from headrace.log.record import Record
from headrace.log.store import LogStore
from headrace.testing.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
from types import SimpleNamespace

MIB = 1024 * 1024


class CountingDisk(SystemDisk):
    """Counts what is read."""

    read_bytes = 0

    def read(self, file: int, position: int, size: int) -> bytes:
        data = super().read(file, position, size)
        self.read_bytes += len(data)
        return data


class Bench:
    """The services of a broker with one topic `t`."""

    def __init__(self, data_dir: Path, partition_count: int = 40) -> None:
        config = BrokerConfig(data_dir=data_dir)
        clock = ManualClock()
        self.disk = CountingDisk()
        self.store = LogStore.open(data_dir, config.log, clock, disk=self.disk)
        self.topic = self.store.catalog.begin_creation("t", partition_count).at_once()
        self.store.catalog.begin_creation(OFFSETS_TOPIC, 1, INTERNAL_TOPICS[OFFSETS_TOPIC]).at_once()
        self.syncs: list[Any] = []
        watchers = Watchers()
        self.commit = GroupCommit("sync", self.syncs.append, watchers.notify, lambda _: None)
        scheduler: Any = None
        transactions: Any = None
        shares: Any = SimpleNamespace(topics_deleted=lambda _: None)
        self.services = Services(
            config=config,
            store=self.store,
            clock=clock,
            scheduler=scheduler,
            commit=self.commit,
            watchers=watchers,
            groups=ConsumerGroups(config, self.store, clock, scheduler, self.commit),
            topics=TopicChanges(self.store, self.submit, self.commit.fail),
            producer_ids=ProducerIds(self.store, self.submit, self.commit.fail),
            transactions=transactions,
            shares=shares,
            unsent_answers=UnsentAnswers(MIB),
        )

    def submit(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        """Work for the disk is done at once."""
        work()
        then()

    def call(self, api_version: int) -> Call:
        return Call(
            services=self.services,
            client_id="test",
            host="127.0.0.1",
            address=Address("127.0.0.1", 9_092),
            api_version=api_version,
        )

    def finish_syncs(self) -> None:
        while self.syncs:
            logs = self.syncs.pop(0)
            for log in logs:
                log.sync()
            self.commit.synced(logs, None)

    def append(self, partition: int, value: bytes, timestamp_ms: int = 1) -> None:
        log = self.topic.partitions[partition]
        log.append(
            encode_batch([Record(timestamp_ms=timestamp_ms, key=None, value=value)]),
            size_bytes_max=16 * MIB,
        )
        self.commit.appended(log)

    def commit_offset(self, offset: int, metadata: str = "", partition: int = 0) -> Any:
        asked = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id="g", member_id="", topics=(OffsetCommitRequestTopic(name="t", partitions=(asked,)),)
        )
        return handle_offset_commit(self.call(8), request)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "data")
    yield bench
    bench.services.groups.close()
    bench.store.close()


def heard(pending: Any) -> list[Any]:
    assert isinstance(pending, Pending)
    answers: list[Any] = []
    pending.then(answers.append)
    return answers


def delete_request(*names: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=names, timeout_ms=1_000)


def test_a_topic_is_deleted_once_its_offsets_are_forgotten_for_good(bench: Bench) -> None:
    committed = heard(bench.commit_offset(5_000))
    deleted = heard(handle_delete_topics(bench.call(1), delete_request("t", "unknown")))
    assert "t" not in bench.store.topics
    assert (committed, deleted) == ([], [])
    bench.finish_syncs()
    assert [each.error_code for each in deleted[0].responses] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert bench.services.groups.coordinator.offsets_of("g") == {}


def test_a_topic_that_is_still_being_deleted_is_not_called_unknown(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    work: list[Any] = []
    monkeypatch.setattr(bench.services.topics, "_submit", lambda *given: work.append(given))
    first = heard(handle_delete_topics(bench.call(1), delete_request("t")))
    second = heard(handle_delete_topics(bench.call(1), delete_request("t")))
    assert (first, second) == ([], [])
    while work:
        run, then = work.pop(0)
        run()
        then()
        bench.finish_syncs()
    assert [each[0].responses[0].error_code for each in (first, second)] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
    ]


def test_a_topic_whose_deletion_has_failed_is_not_called_unknown(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(errno.EIO, "a bad sector")

    monkeypatch.setattr(bench.disk, "rename", fail)
    for _ in range(2):
        answer: Any = handle_delete_topics(bench.call(1), delete_request("t"))
        responses = heard(answer)[0].responses if isinstance(answer, Pending) else answer.responses
        assert responses[0].error_code is ErrorCode.kafka_storage_error


def test_a_deletion_whose_offsets_could_not_be_forgotten_is_not_called_a_success(bench: Bench) -> None:
    bench.commit_offset(5_000)
    deleted = heard(handle_delete_topics(bench.call(1), delete_request("t", "unknown")))
    bench.commit.synced(bench.syncs.pop(), StorageError("the disk is gone"))
    assert [each.error_code for each in deleted[0].responses] == [
        ErrorCode.kafka_storage_error,
        ErrorCode.unknown_topic_or_partition,
    ]


def test_producers_that_wait_hear_of_a_deletion_even_if_offsets_can_not_be_forgotten(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise StorageError("the disk is gone")

    bench.append(0, b"x")
    released: list[Any] = []
    bench.commit.when_durable(bench.topic.partitions[0], 1, released.append)
    monkeypatch.setattr(ConsumerGroups, "topics_deleted", fail)
    answer: Any = handle_delete_topics(bench.call(1), delete_request("t"))
    assert answer.responses[0].error_code is ErrorCode.kafka_storage_error
    assert len(released) == 1


def test_a_topic_that_is_asked_for_many_times_is_described_once(bench: Bench) -> None:
    by_name = MetadataRequestTopic(name="t")
    by_id = [MetadataRequestTopic(name=f"n{n}", topic_id=bench.topic.topic_id) for n in range(100)]
    request = MetadataRequest(topics=(by_name,) * 1_000 + tuple(by_id), allow_auto_topic_creation=False)
    answer: Any = handle_metadata(bench.call(12), request)
    assert [topic.name for topic in answer.topics] == ["t", "t"]


def test_a_group_that_is_asked_for_many_times_is_described_once(bench: Bench) -> None:
    answer = handle_describe_groups(bench.call(5), DescribeGroupsRequest(groups=("g", "h") * 1_000))
    assert [group.group_id for group in answer.groups] == ["g", "h"]


def test_settings_that_are_asked_for_many_times_are_listed_once(bench: Bench) -> None:
    topic = DescribeConfigsResource(resource_type=Resource.TOPIC, resource_name="t")
    answer = handle_describe_configs(bench.call(4), DescribeConfigsRequest(resources=(topic,) * 1_000))
    assert [result.resource_name for result in answer.results] == ["t"]


@pytest.mark.parametrize("version", [7, 8])
def test_an_offset_that_is_asked_for_many_times_is_told_once(bench: Bench, version: int) -> None:
    heard(bench.commit_offset(7, "m" * 4_000))
    bench.finish_syncs()
    topics = (OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1, 0)),) * 100
    group = OffsetFetchRequestGroup(group_id="g", topics=topics)
    request = (
        OffsetFetchRequest(groups=(group,) * 10)
        if version >= 8
        else OffsetFetchRequest(group_id="g", topics=topics)
    )
    answer = handle_offset_fetch(bench.call(version), request)
    (told,) = answer.groups[0].topics if version >= 8 else answer.topics
    assert len(answer.groups) == (version >= 8)
    assert [(each.partition_index, each.committed_offset) for each in told.partitions] == [(0, 7), (1, -1)]


def test_who_asks_for_all_offsets_of_a_group_gets_them_by_topic_and_partition(bench: Bench) -> None:
    for partition in (2, 0, 1):
        heard(bench.commit_offset(10 + partition, partition=partition))
    bench.finish_syncs()
    named = OffsetFetchRequestGroup(group_id="g", topics=(OffsetFetchRequestTopic(name="x"),))
    everything = OffsetFetchRequestGroup(group_id="g", topics=None)
    answer = handle_offset_fetch(bench.call(8), OffsetFetchRequest(groups=(named, everything)))
    (told,) = answer.groups[0].topics
    assert [(each.partition_index, each.committed_offset) for each in told.partitions] == [
        (0, 10),
        (1, 11),
        (2, 12),
    ]


@pytest.mark.parametrize("offset", [-2, -(2**63)])
def test_a_negative_offset_is_not_committed(bench: Bench, offset: int) -> None:
    (answer,) = heard(bench.commit_offset(offset))
    assert answer.topics[0].partitions[0].error_code is ErrorCode.invalid_request


def fetch(bench: Bench, *, max_bytes: int, partition_max_bytes: int, partitions: range) -> Any:
    asked = tuple(
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=partition_max_bytes)
        for index in partitions
    )
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=(FetchTopic(topic="t", partitions=asked),)
    )
    return handle_fetch(bench.call(12), request)


def test_a_fetch_reads_at_most_one_batch_more_than_it_answers_with(bench: Bench) -> None:
    for index in range(40):
        bench.append(index, b"x" * 100_000)
    bench.finish_syncs()
    bench.disk.read_bytes = 0
    answer = fetch(bench, max_bytes=1_050_000, partition_max_bytes=50_000, partitions=range(40))
    sizes = [len(each.records) for each in answer.responses[0].partitions]
    assert [size > 0 for size in sizes] == [True] * 10 + [False] * 30
    assert bench.disk.read_bytes < sum(sizes) + 250_000


def test_a_fetch_by_topic_id_tells_an_unknown_partition_from_an_unknown_topic(bench: Bench) -> None:
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=(
            FetchTopic(
                topic_id=bench.topic.topic_id,
                partitions=(FetchPartition(partition=99, fetch_offset=0, partition_max_bytes=1),),
            ),
        ),
    )
    answer: Any = handle_fetch(bench.call(17), request)
    assert answer.responses[0].partitions[0].error_code is ErrorCode.unknown_topic_or_partition


def newest(bench: Bench) -> Any:
    asked = ListOffsetsPartition(partition_index=0, timestamp=MAX_TIMESTAMP)
    request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="t", partitions=(asked,)),))
    return handle_list_offsets(bench.call(7), request)


def test_who_asks_for_the_highest_timestamp_hears_of_it_once_it_is_durable(bench: Bench) -> None:
    bench.append(0, b"x", timestamp_ms=10)
    bench.finish_syncs()
    assert newest(bench).topics[0].partitions[0].timestamp == 10
    bench.append(0, b"y", timestamp_ms=20)
    answers = heard(newest(bench))
    bench.append(0, b"z", timestamp_ms=30)
    assert answers == []
    logs = bench.syncs.pop(0)
    bench.topic.partitions[0].sync()
    bench.commit.synced(logs, None)
    (told,) = answers[0].topics[0].partitions
    assert (told.timestamp, told.offset) == (20, 1)


def test_a_highest_timestamp_that_never_becomes_durable_is_not_told(bench: Bench) -> None:
    bench.append(0, b"y", timestamp_ms=20)
    answers = heard(newest(bench))
    bench.commit.synced(bench.syncs.pop(0), StorageError("the disk is gone"))
    assert answers[0].topics[0].partitions[0].offset == -1
