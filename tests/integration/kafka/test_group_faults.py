"""Groups through kills and pauses: nothing is skipped, commits never go back, zombies commit nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from headrace.broker import Broker
from headrace.config import Address, BrokerConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ATTEMPTS = 4
PARTITION_COUNT = 4
RECORD_COUNT = 200
"""In each partition."""
SESSION_TIMEOUT_MS = 2_000
SETTINGS: dict[str, dict[str, Any]] = {
    "classic": {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": 200},
    "consumer": {"group.protocol": "consumer"},
}
MEMBER = """
import json, sys
from confluent_kafka import Consumer, KafkaException
consumer = Consumer(json.loads(sys.argv[1]))
consumer.subscribe(["work"])
while True:
    messages = [each for each in consumer.consume(5, 0.1) if each.error() is None]
    for message in messages:
        print(json.dumps(["read", message.partition(), message.offset()]), flush=True)
    if not messages:
        continue
    try:
        consumer.commit(asynchronous=False)
        print(json.dumps(["committed"]), flush=True)
    except KafkaException as error:
        print(json.dumps(["refused", error.args[0].name()]), flush=True)
"""
"""Reads a little, says what, commits, and says how that went."""


class Member:
    """A consumer in a process of its own, so that it can be killed and stopped."""

    def __init__(self, bootstrap: str, protocol: str) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "workers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
            **SETTINGS[protocol],
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", MEMBER, json.dumps(settings)], stdout=subprocess.PIPE, text=True
        )
        self.events: list[list[Any]] = []
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    @property
    def read(self) -> set[tuple[int, int]]:
        return {(event[1], event[2]) for event in tuple(self.events) if event[0] == "read"}

    @property
    def refusals(self) -> list[str]:
        return [event[1] for event in tuple(self.events) if event[0] == "refused"]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                self.events.append(json.loads(line))


class CommitWatch:
    """Asks for the group's offsets again and again, and notes any that went back."""

    def __init__(self, kafka: Any) -> None:
        self.kafka = kafka
        self.committed = dict.fromkeys(range(PARTITION_COUNT), -1)
        self.went_back: list[tuple[int, int, int]] = []

    def look(self) -> dict[int, int]:
        asked = ConsumerGroupTopicPartitions(
            "workers", [TopicPartition("work", index) for index in range(PARTITION_COUNT)]
        )
        for each in self._ask(asked).topic_partitions:
            offset = max(each.offset, -1)
            if offset < self.committed[each.partition]:
                self.went_back.append((each.partition, self.committed[each.partition], offset))
            self.committed[each.partition] = offset
        return dict(self.committed)

    def _ask(self, asked: ConsumerGroupTopicPartitions) -> Any:
        """A question that went down with a broker is asked again."""
        last_error: Exception | None = None
        for _ in range(ATTEMPTS):
            futures = self.kafka.admin.list_consumer_group_offsets([asked], request_timeout=15)
            try:
                return futures["workers"].result(20)
            except (KafkaException, TimeoutError) as error:
                last_error = error
        raise AssertionError(f"the group's offsets were not told: {last_error}")

    def is_complete(self) -> bool:
        return set(self.look().values()) == {RECORD_COUNT}


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    config = BrokerConfig(
        listen=Address("127.0.0.1", 0),
        consumer_session_timeout_ms=SESSION_TIMEOUT_MS,
        consumer_heartbeat_interval_ms=100,
    )
    with Broker(tmp_path / "data", config=config) as broker:
        yield broker


@pytest.fixture
def start_member(protocol: str) -> Iterator[Callable[[str], Member]]:
    with ExitStack() as members:

        def start(bootstrap: str) -> Member:
            member = Member(bootstrap, protocol)
            members.callback(member.kill)
            return member

        yield start


def fill(kafka: Any) -> set[tuple[int, int]]:
    for partition in range(PARTITION_COUNT):
        kafka.produce("work", [b"x"] * RECORD_COUNT, partition=partition)
    return {(partition, offset) for partition in range(PARTITION_COUNT) for offset in range(RECORD_COUNT)}


def described_members(kafka: Any) -> list[Any]:
    return list(kafka.admin.describe_consumer_groups(["workers"])["workers"].result(30).members)


def shares(kafka: Any) -> list[int]:
    """How many partitions each member has."""
    return [len(member.assignment.topic_partitions) for member in described_members(kafka)]


def test_a_member_that_is_killed_leaves_nothing_unread(
    broker: Broker, kafka: Any, start_member: Callable[[str], Member], wait_until: Callable[..., Any]
) -> None:
    kafka.create_topic("work", PARTITION_COUNT)
    watch = CommitWatch(kafka)
    victim, survivor = start_member(broker.bootstrap), start_member(broker.bootstrap)
    wait_until(lambda: shares(kafka) == [2, 2], "both having a share")
    written = fill(kafka)
    wait_until(lambda: victim.read and survivor.read, "both reading")
    victim.kill()
    wait_until(watch.is_complete, "the survivor reading and committing the rest")
    wait_until(lambda: victim.read | survivor.read == written, "everything having been read")
    assert watch.went_back == []


def test_a_member_that_was_stopped_past_its_session_commits_nothing_over_the_others(
    broker: Broker, kafka: Any, start_member: Callable[[str], Member], wait_until: Callable[..., Any]
) -> None:
    kafka.create_topic("work", PARTITION_COUNT)
    written = fill(kafka)
    watch = CommitWatch(kafka)
    sleeper = start_member(broker.bootstrap)
    wait_until(lambda: len(sleeper.read) >= 20, "the first one reading")
    sleeper.signal(signal.SIGSTOP)
    survivor = start_member(broker.bootstrap)
    wait_until(watch.is_complete, "the survivor reading and committing everything")
    sleeper.signal(signal.SIGCONT)
    # It is back among the members when it has been given a share again; whatever it had to say is said.
    wait_until(lambda: len(described_members(kafka)) == 2, "the sleeper joining again")
    kafka.produce("work", [b"x"] * 50, partition=0)
    for index in range(1, PARTITION_COUNT):
        kafka.produce("work", [b"x"] * 50, partition=index)
    wait_until(lambda: set(watch.look().values()) == {RECORD_COUNT + 50}, "reading what came later")
    wait_until(lambda: sleeper.read | survivor.read >= written, "everything having been read")
    assert watch.went_back == []


def test_groups_go_on_where_they_were_when_the_broker_is_killed_amid_their_commits(
    broker_process: Any,
    kafka_at: Callable[[str], Any],
    start_member: Callable[[str], Member],
    wait_until: Callable[..., Any],
) -> None:
    kafka = kafka_at(broker_process.bootstrap)
    kafka.create_topic("work", PARTITION_COUNT)
    written = fill(kafka)
    watch = CommitWatch(kafka)
    members = [start_member(broker_process.bootstrap), start_member(broker_process.bootstrap)]

    def read() -> set[tuple[int, int]]:
        return members[0].read | members[1].read

    for part in (1, 2):
        wait_until(lambda part=part: len(read()) >= part * len(written) // 4, "reading on")
        broker_process.kill(signal.SIGKILL)
        broker_process.start()
        # An administrator whose connection was cut may take long to try again; a new one does not.
        watch.kafka = kafka_at(broker_process.bootstrap)
        watch.look()
    wait_until(watch.is_complete, "reading and committing everything")
    # What members have said before they committed may still be on its way.
    wait_until(lambda: read() == written, "everything having been read")
    assert watch.went_back == []


def test_members_keep_their_partitions_when_the_broker_is_killed_and_comes_back(
    broker_process: Any, kafka_at: Callable[[str], Any], protocol: str, wait_until: Callable[..., Any]
) -> None:
    kafka = kafka_at(broker_process.bootstrap)
    kafka.create_topic("work", PARTITION_COUNT)
    revoked: list[TopicPartition] = []
    settings = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, **SETTINGS[protocol]}
    settings |= {"session.timeout.ms": 30_000} if protocol == "classic" else {}
    consumers = [kafka.consumer("workers", **settings) for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe(["work"], on_revoke=lambda _consumer, partitions: revoked.extend(partitions))

    def owned_partitions() -> list[set[int]]:
        for consumer in consumers:
            consumer.poll(0.05)
        return [{each.partition for each in consumer.assignment()} for consumer in consumers]

    wait_until(lambda: [len(share) for share in owned_partitions()] == [2, 2], "two members sharing")
    owned, members = owned_partitions(), {each.member_id for each in described_members(kafka)}
    revoked.clear()
    broker_process.kill(signal.SIGKILL)
    broker_process.start()
    kafka = kafka_at(broker_process.bootstrap)
    for partition in range(PARTITION_COUNT):
        kafka.produce("work", [b"x"], partition=partition)
    read: set[tuple[int, int]] = set()

    def read_on() -> bool:
        for number, consumer in enumerate(consumers):
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                read.add((number, message.partition()))
        return len(read) == PARTITION_COUNT

    wait_until(read_on, "reading what came after the restart")
    assert read == {(number, partition) for number, share in enumerate(owned) for partition in share}
    for consumer in consumers:
        consumer.commit(asynchronous=False)
    assert ({each.member_id for each in described_members(kafka)}, revoked) == (members, [])
