"""Consumer groups with real consumers: sharing, rebalancing, timing out, resuming."""

from __future__ import annotations

import datetime as dt
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import kio.schema.join_group.v5.request
import kio.schema.offset_commit.v7.request
import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from headrace.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PARTITION_COUNT = 6


class Worker:
    """A consumer that polls on a thread of its own until it is stopped."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self.consumer = consumer
        self.read: list[tuple[int, int]] = []
        self.assigned: set[int] = set()
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        consumer.subscribe([topic])
        self._thread.start()

    def stop(self, *, leave: bool = True) -> None:
        self._is_stopping.set()
        self._thread.join()
        if leave:
            self.consumer.close()

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            message = self.consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.read.append((message.partition() or 0, message.offset() or 0))
            self.assigned = {each.partition for each in self.consumer.assignment()}


@pytest.fixture
def start_worker(kafka: Any) -> Iterator[Callable[..., Worker]]:
    with ExitStack() as workers:

        def start(group: str = "workers", **settings: Any) -> Worker:
            settings = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 200, **settings}
            worker = Worker(kafka.consumer(group, **settings), "work")
            workers.callback(worker.stop)
            return worker

        yield start


@pytest.fixture
def topic(kafka: Any) -> str:
    created: str = kafka.create_topic("work", PARTITION_COUNT)
    return created


def shares_are_complete(*workers: Worker) -> bool:
    """Whether each partition has exactly one owner, and everybody has some."""
    owned = [partition for worker in workers for partition in worker.assigned]
    return sorted(owned) == list(range(PARTITION_COUNT)) and all(worker.assigned for worker in workers)


def fill(kafka: Any, count: int = 20) -> set[tuple[int, int]]:
    for partition in range(PARTITION_COUNT):
        kafka.produce("work", [b"x"] * count, partition=partition)
    return {(partition, offset) for partition in range(PARTITION_COUNT) for offset in range(count)}


def test_members_that_come_and_go_always_share_all_partitions(
    topic: str, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    first = start_worker()
    wait_until(lambda: shares_are_complete(first), "one member owning all")
    second, third = start_worker(), start_worker()
    wait_until(lambda: shares_are_complete(first, second, third), "three members sharing")
    second.stop()
    wait_until(lambda: shares_are_complete(first, third), "two members sharing")


def test_each_record_is_read_by_one_member(
    kafka: Any, topic: str, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    workers = [start_worker(), start_worker()]
    wait_until(lambda: shares_are_complete(*workers), "two members sharing")
    written = fill(kafka)
    wait_until(lambda: sum(len(worker.read) for worker in workers) >= len(written), "reading everything")
    assert sorted(workers[0].read + workers[1].read) == sorted(written)


def test_groups_do_not_take_records_from_each_other(
    kafka: Any, topic: str, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    written = fill(kafka, 3)
    workers = [start_worker("red"), start_worker("blue")]
    for worker in workers:
        wait_until(lambda worker=worker: set(worker.read) == written, "reading everything")


def test_the_partitions_of_a_member_that_dies_go_to_the_others(
    kafka: Any, topic: str, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    survivor = start_worker(session_timeout_ms=1_500)
    # A consumer that stops polling is taken out of the group by itself; it never says goodbye.
    victim = start_worker(session_timeout_ms=1_500, max_poll_interval_ms=1_500)
    wait_until(lambda: shares_are_complete(survivor, victim), "two members sharing")
    victim.stop(leave=False)
    wait_until(lambda: shares_are_complete(survivor), "the survivor owning all")


def test_a_cooperative_group_shares_all_partitions_too(
    topic: str, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    first = start_worker(partition_assignment_strategy="cooperative-sticky")
    wait_until(lambda: shares_are_complete(first), "one member owning all")
    second = start_worker(partition_assignment_strategy="cooperative-sticky")
    wait_until(lambda: shares_are_complete(first, second), "two members sharing")


def test_a_static_member_keeps_its_partitions_through_a_restart(
    kafka: Any, topic: str, wait_until: Callable[..., Any], start_worker: Callable[..., Worker]
) -> None:
    other = start_worker()
    first = start_worker(group_instance_id="host-1")
    wait_until(lambda: shares_are_complete(other, first), "two members sharing")
    owned = first.assigned
    before = kafka.admin.describe_consumer_groups(["workers"])["workers"].result(30)
    first.stop()
    again = start_worker(group_instance_id="host-1")
    wait_until(lambda: again.assigned == owned, "the member being back")
    after = kafka.admin.describe_consumer_groups(["workers"])["workers"].result(30)
    assert {member.group_instance_id for member in after.members} == {None, "host-1"}
    assert len(before.members) == len(after.members) == 2
    assert other.assigned == set(range(PARTITION_COUNT)) - owned


def test_a_group_resumes_at_its_commit(kafka: Any, topic: str) -> None:
    kafka.produce("work", [str(number).encode() for number in range(10)])
    first = kafka.consumer()
    first.subscribe(["work"])
    assert len(kafka.read(first, 4)) == 4
    first.commit(offsets=[TopicPartition("work", 0, 4, metadata="half way")], asynchronous=False)
    first.close()
    second = kafka.consumer()
    second.subscribe(["work"])
    assert [message.offset() for message in kafka.read(second, 6)] == [4, 5, 6, 7, 8, 9]
    (committed,) = second.committed([TopicPartition("work", 0)], timeout=30)
    assert (committed.offset, committed.metadata) == (4, "half way")


def test_a_group_resumes_at_its_commit_after_the_broker_was_restarted(
    tmp_path: Path, kafka_at: Callable[[str], Any]
) -> None:
    with Broker(tmp_path) as broker:
        kafka = kafka_at(broker.bootstrap)
        kafka.create_topic("work")
        kafka.produce("work", [str(number).encode() for number in range(10)])
        consumer = kafka.consumer()
        consumer.subscribe(["work"])
        kafka.read(consumer, 10)
        consumer.commit(offsets=[TopicPartition("work", 0, 3)], asynchronous=False)
        consumer.commit(offsets=[TopicPartition("work", 0, 7)], asynchronous=False)
        consumer.close()
    with Broker(tmp_path) as broker:
        kafka = kafka_at(broker.bootstrap)
        consumer = kafka.consumer()
        consumer.subscribe(["work"])
        assert [message.offset() for message in kafka.read(consumer, 3)] == [7, 8, 9]


def test_a_member_whose_session_timed_out_may_not_commit(
    kafka: Any, topic: str, raw: Any, wait_until: Callable[..., Any]
) -> None:
    member = join(raw, "zombies", session_ms=1_000)
    assert heartbeat(raw, "zombies", member) == "none"

    def state() -> ConsumerGroupState:
        (group,) = kafka.admin.list_consumer_groups().result(30).valid
        return ConsumerGroupState(group.state)

    wait_until(lambda: state() is ConsumerGroupState.EMPTY, "the session timing out")
    assert heartbeat(raw, "zombies", member) == "unknown_member_id"
    assert commit(raw, "zombies", member) == "unknown_member_id"
    (committed,) = kafka.consumer("zombies").committed([TopicPartition("work", 0)], timeout=30)
    assert committed.offset < 0


def test_a_commit_of_an_earlier_generation_is_refused_and_leaves_the_offset_alone(
    kafka: Any, topic: str, raw: Any, raw_at: Callable[[str], Any]
) -> None:
    member = join(raw, "movers")
    assert commit(raw, "movers", member, offset=5) == "none"
    newcomer = raw_at(kafka.bootstrap)
    newcomer_id = newcomer.request(11, 5, **join_fields("movers")).member_id
    newcomer.send(newcomer.request_frame(11, 5, **join_fields("movers", newcomer_id)))
    rejoined = raw.request(11, 5, **join_fields("movers", member.member_id))
    assert rejoined.generation_id == newcomer.receive(11, 5).generation_id == member.generation_id + 1
    assert commit(raw, "movers", member, offset=1) == "illegal_generation"
    assert commit(raw, "movers", rejoined, offset=1) == "rebalance_in_progress"
    (committed,) = kafka.consumer("movers").committed([TopicPartition("work", 0)], timeout=30)
    assert committed.offset == 5


def join_fields(group: str, member_id: str = "", session_ms: int = 30_000) -> dict[str, Any]:
    schemas: Any = kio.schema.join_group.v5.request
    return {
        "group_id": group,
        "session_timeout": dt.timedelta(milliseconds=session_ms),
        "rebalance_timeout": dt.timedelta(milliseconds=30_000),
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": (schemas.JoinGroupRequestProtocol(name="range", metadata=b""),),
    }


def join(raw: Any, group: str, session_ms: int = 30_000) -> Any:
    """Join an empty group, and share out nothing."""
    asked = raw.request(11, 5, **join_fields(group, "", session_ms))
    assert asked.error_code.name == "member_id_required"
    joined = raw.request(11, 5, **join_fields(group, asked.member_id, session_ms))
    assert joined.error_code.name == "none"
    synced = raw.request(
        14,
        3,
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=None,
        assignments=(),
    )
    assert synced.error_code.name == "none"
    return joined


def heartbeat(raw: Any, group: str, joined: Any) -> str:
    answer = raw.request(
        12,
        3,
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=None,
    )
    return str(answer.error_code.name)


def commit(raw: Any, group: str, joined: Any, offset: int = 3) -> str:
    schemas: Any = kio.schema.offset_commit.v7.request
    answer = raw.request(
        8,
        7,
        group_id=group,
        generation_id_or_member_epoch=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=None,
        topics=(
            schemas.OffsetCommitRequestTopic(
                name="work",
                partitions=(
                    schemas.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=None
                    ),
                ),
            ),
        ),
    )
    return str(answer.topics[0].partitions[0].error_code.name)


def test_groups_are_described_with_their_members(
    kafka: Any, topic: str, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    worker = start_worker(client_id="till-3")
    wait_until(lambda: shares_are_complete(worker), "one member owning all")
    described = kafka.admin.describe_consumer_groups(["workers"])["workers"].result(30)
    assert described.state is ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    (member,) = described.members
    assert (member.client_id, member.host) == ("till-3", "/127.0.0.1")
    assert {each.partition for each in member.assignment.topic_partitions} == set(range(PARTITION_COUNT))


def test_groups_are_listed_by_state(
    kafka: Any, topic: str, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    worker = start_worker("busy")
    wait_until(lambda: shares_are_complete(worker), "one member owning all")
    kafka.consumer("idle").commit(offsets=[TopicPartition("work", 0, 1)], asynchronous=False)
    admin = kafka.admin

    def listed(*states: ConsumerGroupState) -> set[str]:
        found = admin.list_consumer_groups(states=set(states)).result(30)
        return {group.group_id for group in found.valid}

    assert listed() == {"busy", "idle"}
    assert listed(ConsumerGroupState.STABLE) == {"busy"}
    assert listed(ConsumerGroupState.EMPTY) == {"idle"}


def test_a_group_is_deleted_with_its_offsets_once_it_is_empty(
    kafka: Any, topic: str, start_worker: Callable[..., Worker], wait_until: Callable[..., Any]
) -> None:
    worker = start_worker("old")
    wait_until(lambda: shares_are_complete(worker), "one member owning all")
    admin = kafka.admin
    with pytest.raises(KafkaException) as caught:
        admin.delete_consumer_groups(["old"])["old"].result(30)
    assert caught.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    worker.stop(leave=False)
    worker.consumer.commit(offsets=[TopicPartition("work", 0, 1)], asynchronous=False)
    worker.stop()
    admin.delete_consumer_groups(["old"])["old"].result(30)
    assert admin.list_consumer_groups().result(30).valid == []
    (committed,) = kafka.consumer("old").committed([TopicPartition("work", 0)], timeout=30)
    assert committed.offset < 0


def test_offsets_of_a_deleted_topic_are_forgotten(kafka: Any, topic: str) -> None:
    kafka.consumer().commit(offsets=[TopicPartition("work", 0, 1)], asynchronous=False)
    admin = kafka.admin
    admin.delete_topics(["work"])["work"].result(30)
    kafka.create_topic("work")
    (committed,) = kafka.consumer().committed([TopicPartition("work", 0)], timeout=30)
    assert committed.offset < 0
