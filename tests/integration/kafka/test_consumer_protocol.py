"""Consumers of the new protocol (KIP-848), whose partitions the broker shares out."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import NewPartitions

from headrace.broker import Broker
from headrace.config import Address, BrokerConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PARTITION_COUNT = 6


class Worker:
    """A consumer that polls on a thread of its own until it is stopped."""

    def __init__(self, consumer: Consumer, topics: list[str]) -> None:
        self.consumer = consumer
        self.read: list[tuple[int, int]] = []
        self.assigned: set[tuple[str, int]] = set()
        self.revoked: set[tuple[str, int]] = set()
        self.error: KafkaError | None = None
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        consumer.subscribe(topics, on_revoke=self._on_revoke)
        self._thread.start()

    @property
    def partitions(self) -> set[int]:
        return {partition for _, partition in self.assigned}

    def stop(self, *, leave: bool = True) -> None:
        self._is_stopping.set()
        self._thread.join()
        if leave:
            self.consumer.close()

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked |= {(each.topic, each.partition) for each in partitions}

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            message = self.consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.read.append((message.partition() or 0, message.offset() or 0))
            elif message is not None:
                self.error = message.error()
            self.assigned = {(each.topic, each.partition) for each in self.consumer.assignment()}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    config = BrokerConfig(
        listen=Address("127.0.0.1", 0), consumer_session_timeout_ms=5_000, consumer_heartbeat_interval_ms=100
    )
    with Broker(tmp_path / "data", config=config) as broker:
        yield broker


@pytest.fixture
def start_worker(kafka: Any) -> Iterator[Callable[..., Worker]]:
    with ExitStack() as workers:

        def start(*topics: str, group: str = "workers", **settings: Any) -> Worker:
            consumer = kafka.consumer(group, group_protocol="consumer", **settings)
            worker = Worker(consumer, list(topics) or ["work"])
            workers.callback(worker.stop)
            return worker

        yield start


@pytest.fixture
def topic(kafka: Any) -> str:
    created: str = kafka.create_topic("work", PARTITION_COUNT)
    return created


def shares_are_even(*workers: Worker) -> bool:
    """Whether each partition has exactly one owner, and everybody has about as many."""
    owned = [partition for worker in workers for partition in worker.partitions]
    sizes = [len(worker.partitions) for worker in workers]
    return sorted(owned) == list(range(PARTITION_COUNT)) and max(sizes) - min(sizes) <= 1


def test_members_that_come_and_go_always_share_all_partitions(
    topic: str, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    first = start_worker()
    wait_until(lambda: shares_are_even(first), "one member owning all")
    second, third = start_worker(), start_worker()
    wait_until(lambda: shares_are_even(first, second, third), "three members sharing")
    second.stop()
    wait_until(lambda: shares_are_even(first, third), "two members sharing")


def test_a_newcomer_takes_no_more_from_the_others_than_its_share(
    topic: str, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    first, second = start_worker(), start_worker()
    wait_until(lambda: shares_are_even(first, second), "two members sharing")
    first.revoked, second.revoked = set(), set()
    third = start_worker()
    wait_until(lambda: shares_are_even(first, second, third), "three members sharing")
    assert len(first.revoked) == len(second.revoked) == 1
    assert third.assigned == first.revoked | second.revoked


def test_each_record_is_read_by_one_member(
    kafka: Any, topic: str, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    workers = [start_worker(), start_worker()]
    wait_until(lambda: shares_are_even(*workers), "two members sharing")
    for partition in range(PARTITION_COUNT):
        kafka.produce("work", [b"x"] * 20, partition=partition)
    written = [(partition, offset) for partition in range(PARTITION_COUNT) for offset in range(20)]
    wait_until(lambda: sum(len(worker.read) for worker in workers) >= len(written), "reading everything")
    assert sorted(workers[0].read + workers[1].read) == written


def test_the_members_may_ask_for_ranges(
    topic: str, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    workers = [start_worker(group_remote_assignor="range"), start_worker(group_remote_assignor="range")]
    wait_until(lambda: shares_are_even(*workers), "two members sharing")
    assert sorted(sorted(worker.partitions) for worker in workers) == [[0, 1, 2], [3, 4, 5]]


def test_a_static_member_keeps_its_partitions_through_a_restart(
    topic: str, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    other = start_worker(group_instance_id="host-2")
    first = start_worker(group_instance_id="host-1")
    wait_until(lambda: shares_are_even(other, first), "two members sharing")
    owned, other.revoked = first.assigned, set()
    kept = other.assigned
    first.stop()
    again = start_worker(group_instance_id="host-1")
    wait_until(lambda: again.assigned == owned, "the member being back")
    assert (other.assigned, other.revoked) == (kept, set())


def test_two_consumers_of_one_instance_do_not_share_its_place(
    topic: str, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    first = start_worker(group_instance_id="host-1")
    wait_until(lambda: shares_are_even(first), "one member owning all")
    second = start_worker(group_instance_id="host-1")
    wait_until(lambda: second.error is not None, "the second one being refused")
    assert second.error is not None
    assert "instance" in second.error.str()
    assert shares_are_even(first)


def test_partitions_that_a_topic_gains_are_shared_out(
    kafka: Any, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    kafka.create_topic("work", 2)
    workers = [start_worker(), start_worker()]
    wait_until(lambda: [len(worker.partitions) for worker in workers] == [1, 1], "two members sharing")
    kafka.admin.create_partitions([NewPartitions("work", PARTITION_COUNT)])["work"].result(30)
    wait_until(lambda: shares_are_even(*workers), "sharing the new partitions, too")


def test_a_regular_expression_follows_the_topics_that_come_and_go(
    kafka: Any, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    kafka.create_topic("orders.eu")
    kafka.create_topic("refunds")
    worker = start_worker(r"^orders\..*")
    wait_until(lambda: worker.assigned == {("orders.eu", 0)}, "reading the topic that is there")
    kafka.create_topic("orders.us")
    wait_until(lambda: worker.assigned == {("orders.eu", 0), ("orders.us", 0)}, "reading the new topic, too")
    kafka.admin.delete_topics(["orders.eu"])["orders.eu"].result(30)
    wait_until(lambda: worker.assigned == {("orders.us", 0)}, "letting go of the deleted topic")


def test_a_group_resumes_at_its_commit_and_goes_where_it_is_sent(kafka: Any, topic: str) -> None:
    kafka.produce("work", [str(number).encode() for number in range(10)])
    first = kafka.consumer(group_protocol="consumer")
    first.subscribe(["work"])
    assert len(kafka.read(first, 4)) == 4
    first.commit(offsets=[TopicPartition("work", 0, 4, metadata="half way")], asynchronous=False)
    first.close()
    second = kafka.consumer(group_protocol="consumer")
    second.subscribe(["work"])
    assert [message.offset() for message in kafka.read(second, 6)] == [4, 5, 6, 7, 8, 9]
    second.seek(TopicPartition("work", 0, 1))
    assert [message.offset() for message in kafka.read(second, 3)] == [1, 2, 3]
    (committed,) = second.committed([TopicPartition("work", 0)], timeout=30)
    assert (committed.offset, committed.metadata) == (4, "half way")


def test_groups_are_described_with_their_members(
    kafka: Any, topic: str, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    worker = start_worker(client_id="till-3", group_instance_id="host-1")
    wait_until(lambda: shares_are_even(worker), "one member owning all")
    described = kafka.admin.describe_consumer_groups(["workers"])["workers"].result(30)
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    assert described.partition_assignor == "uniform"
    (member,) = described.members
    assert (member.client_id, member.host, member.group_instance_id) == ("till-3", "/127.0.0.1", "host-1")
    owned = {each.partition for each in member.assignment.topic_partitions}
    assert owned == {each.partition for each in member.target_assignment.topic_partitions}
    assert owned == set(range(PARTITION_COUNT))


def test_groups_are_listed_by_type_and_state(
    kafka: Any, topic: str, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    worker = start_worker(group="modern")
    wait_until(lambda: shares_are_even(worker), "one member owning all")
    kafka.consumer("idle").commit(offsets=[TopicPartition("work", 0, 1)], asynchronous=False)

    def listed(**filters: Any) -> set[str]:
        found = kafka.admin.list_consumer_groups(**filters).result(30)
        return {group.group_id for group in found.valid}

    assert listed() == {"modern", "idle"}
    assert listed(types={ConsumerGroupType.CONSUMER}) == {"modern"}
    assert listed(types={ConsumerGroupType.CLASSIC}) == {"idle"}
    assert listed(states={ConsumerGroupState.STABLE}) == {"modern"}
    worker.stop()
    assert listed(states={ConsumerGroupState.EMPTY}) == {"modern", "idle"}


def test_a_group_is_deleted_with_its_offsets_once_it_is_empty(
    kafka: Any, topic: str, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    worker = start_worker(group="old")
    wait_until(lambda: shares_are_even(worker), "one member owning all")
    with pytest.raises(KafkaException) as caught:
        kafka.admin.delete_consumer_groups(["old"])["old"].result(30)
    assert caught.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    worker.stop(leave=False)
    worker.consumer.commit(offsets=[TopicPartition("work", 0, 1)], asynchronous=False)
    worker.stop()
    kafka.admin.delete_consumer_groups(["old"])["old"].result(30)
    assert kafka.admin.list_consumer_groups().result(30).valid == []
    (committed,) = kafka.consumer("old").committed([TopicPartition("work", 0)], timeout=30)
    assert committed.offset < 0


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("classic", "consumer", "The group id does not exist"),
        ("consumer", "classic", "Inconsistent group protocol"),
    ],
)
def test_a_group_with_members_keeps_its_protocol(
    kafka: Any,
    topic: str,
    start_worker: Callable[..., Worker],
    wait_until: Callable[..., Any],
    first: str,
    second: str,
    reason: str,
) -> None:
    member = Worker(kafka.consumer("workers", group_protocol=first), ["work"])
    try:
        wait_until(lambda: shares_are_even(member), "one member owning all")
        other = Worker(kafka.consumer("workers", group_protocol=second), ["work"])
        try:
            wait_until(lambda: other.error is not None, "the other one being refused")
            assert other.error is not None
            assert reason in other.error.str()
            assert shares_are_even(member)
        finally:
            other.stop()
    finally:
        member.stop()
