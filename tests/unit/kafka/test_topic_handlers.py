"""Topics that are created, grown and deleted while others use them; the disk is done when the test says."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.config import MIB, Address, BrokerConfig
from headrace.errors import HeadraceError, StorageError
from headrace.kafka.answer import Pending
from headrace.kafka.commit import GroupCommit
from headrace.kafka.handlers.fetch import handle_fetch
from headrace.kafka.handlers.metadata import handle_metadata
from headrace.kafka.handlers.partitions import handle_create_partitions
from headrace.kafka.handlers.produce import handle_produce
from headrace.kafka.handlers.topics import handle_create_topics, handle_delete_topics
from headrace.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.kafka.messages.delete_topics import DeleteTopicsRequest
from headrace.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.kafka.producer_ids import ProducerIds
from headrace.kafka.services import Call, Services
from headrace.kafka.topic_changes import TopicChanges
from headrace.kafka.unsent_answers import UnsentAnswers
from headrace.kafka.watchers import Watchers
from headrace.log.batch import encode_batch
from headrace.log.record import Record
from headrace.log.store import LogStore
from headrace.testing.clock import ManualClock
from headrace.testing.disk import SimulatedDisk


class FakeGroups:
    """Forgets the offsets of deleted topics, at once or when the test says."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []
        self.is_slow = False
        self.waiting: list[Callable[[HeadraceError | None], None]] = []

    def topics_deleted(
        self, topics: Collection[str], on_durable: Callable[[HeadraceError | None], None]
    ) -> None:
        self.forgotten += topics
        if self.is_slow:
            self.waiting.append(on_durable)
        else:
            on_durable(None)


class Bench:
    """A broker whose disk thread and syncs the test plays."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        clock = ManualClock()
        self.config = BrokerConfig(topic_count_max=5, partition_count_max=10)
        self.store = LogStore.open(Path("/data"), self.config.log, clock, disk=self.disk)
        self.work: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self.syncs: list[Any] = []
        watchers = Watchers()
        self.commit = GroupCommit("sync", self.syncs.append, watchers.notify, lambda _: None)
        unused: Any = SimpleNamespace()
        shares: Any = SimpleNamespace(topics_deleted=lambda _: None)
        timer = SimpleNamespace(cancel=lambda: None)
        scheduler: Any = SimpleNamespace(call_later=lambda _delay, _callback: timer)
        self.groups = FakeGroups()
        groups: Any = self.groups
        self.services = Services(
            config=self.config,
            store=self.store,
            clock=clock,
            scheduler=scheduler,
            commit=self.commit,
            watchers=watchers,
            groups=groups,
            topics=TopicChanges(self.store, self.submit, self.commit.fail),
            producer_ids=ProducerIds(self.store, self.submit, self.commit.fail),
            transactions=unused,
            shares=shares,
            unsent_answers=UnsentAnswers(MIB),
        )

    def submit(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        self.work.append((work, then))

    def finish_work(self) -> None:
        while self.work:
            work, then = self.work.pop(0)
            work()
            then()

    def ask(self, handler: Callable[[Call, Any], Any], request: Any, version: int = 7) -> list[Any]:
        """What is answered: nothing yet, or the one response."""
        call = Call(
            services=self.services,
            client_id="test",
            host="127.0.0.1",
            address=Address("127.0.0.1", 9_092),
            api_version=version,
        )
        outcome = handler(call, request)
        if not isinstance(outcome, Pending):
            return [outcome]
        answers: list[Any] = []
        outcome.then(answers.append)
        return answers

    def create(self, *names: str, partition_count: int = 1) -> list[Any]:
        topics = tuple(
            CreatableTopic(
                name=name, num_partitions=partition_count, replication_factor=1, assignments=(), configs=()
            )
            for name in names
        )
        return self.ask(handle_create_topics, CreateTopicsRequest(topics=topics))

    def delete(self, *names: str) -> list[Any]:
        return self.ask(handle_delete_topics, DeleteTopicsRequest(topic_names=names, timeout_ms=1), 5)

    def metadata(self, name: str) -> list[Any]:
        return self.ask(handle_metadata, MetadataRequest(topics=(MetadataRequestTopic(name=name),)), 9)

    def produce(self, name: str, partition: int = 0) -> list[Any]:
        records = encode_batch([Record(timestamp_ms=0, key=None, value=b"x")])
        data = TopicProduceData(
            name=name,
            partition_data=(PartitionProduceData(index=partition, records=records),),
            topic_id=None,
        )
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1, topic_data=(data,))
        return self.ask(handle_produce, request, 9)

    def fetch(self, name: str) -> list[Any]:
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
        topic = FetchTopic(topic=name, partitions=(partition,))
        return self.ask(handle_fetch, FetchRequest(max_wait_ms=1_000, min_bytes=1, topics=(topic,)), 12)

    def grow(self, name: str, count: int) -> list[Any]:
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=(topic,), timeout_ms=1, validate_only=False)
        return self.ask(handle_create_partitions, request, 3)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.store.close()


def codes(answers: list[Any]) -> list[ErrorCode]:
    (answer,) = answers
    if hasattr(answer, "responses"):
        return [
            each.partition_responses[0].error_code
            if hasattr(each, "partition_responses")
            else each.error_code
            for each in answer.responses
        ]
    return [each.error_code for each in (answer.topics if hasattr(answer, "topics") else answer.results)]


def test_of_two_clients_that_create_a_topic_at_once_one_wins_and_the_other_hears_that_it_exists(
    bench: Bench,
) -> None:
    first, second = bench.create("orders", partition_count=3), bench.create("orders", partition_count=5)
    assert (first, second) == ([], [])
    bench.finish_work()
    assert (codes(first), codes(second)) == ([ErrorCode.none], [ErrorCode.topic_already_exists])
    assert len(bench.store.topics["orders"].partitions) == 3


def test_who_asks_for_a_topic_that_is_being_created_is_told_when_it_is_there(bench: Bench) -> None:
    created = bench.create("orders", partition_count=3)
    asked = bench.metadata("orders")
    assert asked == []
    bench.finish_work()
    assert codes(created) == [ErrorCode.none]
    assert len(asked[0].topics[0].partitions) == 3


def test_clients_that_ask_for_an_unknown_topic_at_once_all_get_the_one_that_is_created(bench: Bench) -> None:
    answers = [bench.metadata("orders") for _ in range(10)]
    bench.finish_work()
    assert {answer[0].topics[0].topic_id for answer in answers} == {bench.store.topics["orders"].topic_id}


def test_topics_that_are_being_created_count_towards_the_limits(bench: Bench) -> None:
    many = [bench.create(f"t{number}") for number in range(7)]
    wide = bench.create("wide", partition_count=9)
    bench.finish_work()
    assert [codes(each) for each in many] == [[ErrorCode.none]] * 5 + [[ErrorCode.policy_violation]] * 2
    assert codes(wide) == [ErrorCode.policy_violation]


def test_a_topic_that_is_being_deleted_is_unknown_to_everybody_at_once(bench: Bench) -> None:
    bench.create("orders")
    bench.finish_work()
    waiting_producer, waiting_consumer = bench.produce("orders"), bench.fetch("orders")
    deleted = bench.delete("orders")
    assert codes(bench.produce("orders")) == [ErrorCode.unknown_topic_or_partition]
    assert bench.fetch("orders")[0].responses[0].partitions[0].error_code is (
        ErrorCode.unknown_topic_or_partition
    )
    assert (waiting_producer, waiting_consumer, deleted) == ([], [], [])
    bench.finish_work()
    assert codes(deleted) == [ErrorCode.none]
    assert codes(waiting_producer) == [ErrorCode.unknown_topic_or_partition]
    told = waiting_consumer[0].responses[0].partitions[0]
    assert told.error_code is ErrorCode.unknown_topic_or_partition


def test_a_deletion_ends_a_sync_of_the_topic_that_was_on_its_way(bench: Bench) -> None:
    bench.create("orders")
    bench.finish_work()
    log = bench.store.topics["orders"].partitions[0]
    bench.produce("orders")
    bench.delete("orders")
    log.sync()
    bench.finish_work()
    bench.commit.synced(bench.syncs.pop(), None)
    assert bench.store.failed is None


def test_a_topic_that_is_deleted_and_asked_for_at_once_is_another_one(bench: Bench) -> None:
    bench.create("orders")
    bench.finish_work()
    old = bench.store.topics["orders"].topic_id
    bench.delete("orders")
    asked = bench.metadata("orders")
    bench.finish_work()
    assert asked[0].topics[0].topic_id == bench.store.topics["orders"].topic_id != old


def test_a_topic_is_made_anew_only_after_the_offsets_of_the_old_one_are_forgotten_for_good(
    bench: Bench,
) -> None:
    bench.create("orders")
    bench.finish_work()
    bench.groups.is_slow = True
    deleted, asked = bench.delete("orders"), bench.metadata("orders")
    bench.finish_work()
    assert (deleted, asked) == ([], [])
    assert "orders" not in bench.store.topics
    bench.groups.waiting.pop()(None)
    bench.finish_work()
    assert codes(deleted) == [ErrorCode.none]
    assert asked[0].topics[0].topic_id == bench.store.topics["orders"].topic_id


def test_offsets_of_a_topic_are_forgotten_before_other_topics_of_the_request_are_gone(bench: Bench) -> None:
    bench.create("orders", "clicks")
    bench.finish_work()
    deleted = bench.delete("orders", "clicks")
    work, then = bench.work.pop(0)
    work()
    then()
    assert bench.groups.forgotten == ["orders"]
    bench.finish_work()
    assert bench.groups.forgotten == ["orders", "clicks"]
    assert codes(deleted) == [ErrorCode.none, ErrorCode.none]


def test_offsets_are_forgotten_of_a_topic_whose_files_could_not_all_be_removed_yet(bench: Bench) -> None:
    bench.create("orders")
    bench.finish_work()
    bench.disk.fail("names", errno.EMFILE)
    deleted = bench.delete("orders")
    bench.finish_work()
    assert codes(deleted) != [ErrorCode.none]
    bench.disk.heal()
    # It is gone for everybody, and what is left of its files goes when another takes its place.
    assert bench.groups.forgotten == ["orders"]
    created = bench.create("orders")
    bench.finish_work()
    assert codes(created) == [ErrorCode.none]


def test_offsets_that_can_not_be_forgotten_are_told_and_hold_up_nothing(bench: Bench) -> None:
    bench.create("orders")
    bench.finish_work()
    bench.groups.is_slow = True
    deleted, created = bench.delete("orders"), bench.create("orders")
    bench.finish_work()
    bench.groups.waiting.pop()(StorageError("the disk is gone"))
    bench.finish_work()
    assert codes(deleted) == [ErrorCode.kafka_storage_error]
    assert codes(created) == [ErrorCode.none]


def test_a_deletion_releases_those_who_wait_for_partitions_that_came_after_it_was_asked_for(
    bench: Bench,
) -> None:
    bench.create("orders")
    bench.finish_work()
    bench.grow("orders", 2)
    bench.grow("orders", 3)
    deleted = bench.delete("orders")
    work, then = bench.work.pop(0)
    work()
    then()
    waiting = bench.produce("orders", partition=1)
    assert waiting == []
    bench.finish_work()
    assert codes(deleted) == [ErrorCode.none]
    assert codes(waiting) == [ErrorCode.unknown_topic_or_partition]


def test_a_topic_grows_by_one_client_at_a_time(bench: Bench) -> None:
    bench.create("orders")
    bench.finish_work()
    first, second, third = bench.grow("orders", 3), bench.grow("orders", 3), bench.grow("orders", 9)
    bench.finish_work()
    assert codes(first) == [ErrorCode.none]
    assert codes(second) == [ErrorCode.invalid_partitions]
    assert codes(third) == [ErrorCode.none]


def test_a_disk_that_fails_meanwhile_releases_everybody_with_the_error(bench: Bench) -> None:
    bench.create("orders")
    bench.finish_work()
    producer = bench.produce("orders")
    created = bench.create("more")
    bench.disk.fail("sync_file", errno.EIO)
    bench.finish_work()
    assert codes(created) == [ErrorCode.kafka_storage_error]
    assert codes(producer) == [ErrorCode.kafka_storage_error]


def test_making_partitions_opens_no_segment_on_the_disk_thread(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    open_ = bench.disk.open

    def watched(path: Path) -> int:
        opened.append(path)
        return open_(path)

    bench.create("orders", partition_count=3)
    monkeypatch.setattr(bench.disk, "open", watched)
    bench.finish_work()
    assert [path for path in opened if path.suffix != ".unfinished" and "topics" not in path.parts] == []
