"""Consumer groups share the work: members join, leave, die and come back, and what is committed stays so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.waiting import eventually
from kafka_clients.interface import Client, ClientError, Consumer, Partition, Record

HERE = Path(__file__).parent
MEMBER = """
import json, sys
from kafka_clients.asyncio_kafka import AiokafkaClient
from kafka_clients.confluent import ConfluentClient
from kafka_clients.kafka_python import KafkaPythonClient
clients = {"confluent": ConfluentClient, "kafka-python": KafkaPythonClient, "aiokafka": AiokafkaClient}
name, bootstrap, topic, settings = sys.argv[1:]
consumer = clients[name](bootstrap).consumer(**json.loads(settings))
consumer.subscribe([topic])
while True:
    consumer.poll(2.0)
    print(json.dumps(sorted(consumer.assignment())), flush=True)
"""
"""A member in a process of its own, so that it can be killed.

It polls for long: when time is up while kafka-python joins, it goes on without heartbeats, and never notices.
"""

EAGER: dict[str, str | int | bool] = {
    "partition_assignment_strategy": "range",
    "session_timeout_ms": 20_000,
    "heartbeat_interval_ms": 200,
}
SETTLED_WITHIN_S = 120.0
"""A member that has missed a rebalance comes to its share only when a session or two have ended."""
CONSUMER_PROTOCOL: dict[str, str | int | bool] = {"group_protocol": "consumer"}


def settle(
    members: list[Consumer],
    share: Callable[[list[set[Partition]]], bool],
    record_count: int = 0,
    within_s: float = SETTLED_WITHIN_S,
) -> list[Record]:
    """Poll all members in turn until their shares are right and so much was read; return that."""
    records: list[Record] = []

    def is_settled() -> bool:
        for member in members:
            records.extend(member.poll(0.02))
        return share([member.assignment() for member in members]) and len(records) >= record_count

    eventually(
        is_settled,
        lambda: f"an even share, now {[member.assignment() for member in members]},",
        within_s=within_s,
    )
    return records


def are_even(partition_count: int) -> Callable[[list[set[Partition]]], bool]:
    """All partitions, each once, shared evenly."""

    def share(assignments: list[set[Partition]]) -> bool:
        together = sorted(partition for assignment in assignments for partition in assignment)
        sizes = [len(assignment) for assignment in assignments]
        return len(together) == len(set(together)) == partition_count and max(sizes) - min(sizes) <= 1

    return share


def test_one_member_reads_every_partition_and_goes_on_where_it_committed(
    client: Client, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(2)
    for partition in range(2):
        client.produce(topic, b"first", b"second", partition=partition)
    consumer = client.consumer(group_id=group)
    consumer.subscribe([topic])
    assert sorted((record.partition, record.offset) for record in consumer.read(4)) == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    assert consumer.committed((topic, 0)) is None
    consumer.commit({(topic, 0): 1, (topic, 1): 2})
    assert [consumer.committed((topic, partition)) for partition in range(2)] == [1, 2]
    consumer.close()
    successor = client.consumer(group_id=group)
    successor.subscribe([topic])
    assert [(record.partition, record.offset) for record in successor.read(1)] == [(0, 1)]


@pytest.mark.clients("confluent", "aiokafka", "java-4.3", "java-3.9")
def test_members_that_join_and_leave_share_the_partitions_and_lose_nothing(
    client: Client, new_topic: Callable[..., str], group: str
) -> None:
    """On a busy machine, kafka-python's members now and then keep an old share, whatever the broker."""
    topic = new_topic(4)
    first = client.consumer(group_id=group, **EAGER)
    first.subscribe([topic])
    settle([first], are_even(4))
    second = client.consumer(group_id=group, **EAGER)
    second.subscribe([topic])
    settle([first, second], are_even(4))
    for partition in range(4):
        client.produce(topic, str(partition).encode(), partition=partition)
    found = settle([first, second], are_even(4), record_count=4)
    assert sorted(record.value or b"" for record in found) == [b"0", b"1", b"2", b"3"]
    first.close()
    settle([second], are_even(4))


@pytest.mark.clients("confluent", "java-4.3", "java-3.9")
def test_a_cooperative_rebalance_leaves_a_member_what_it_keeps(
    client: Client, new_topic: Callable[..., str], group: str
) -> None:
    """kafka-python's members now and then leave the group on the way, whatever the broker."""
    topic = new_topic(4)
    settings = {**EAGER, "partition_assignment_strategy": "cooperative-sticky"}
    first = client.consumer(group_id=group, **settings)
    first.subscribe([topic])
    settle([first], are_even(4))
    second = client.consumer(group_id=group, **settings)
    second.subscribe([topic])
    least = 4

    def shares(assignments: list[set[Partition]]) -> bool:
        nonlocal least
        least = min(least, len(assignments[0]))
        return are_even(4)(assignments)

    settle([first, second], shares)
    assert least == 2, "the first member had to give up what it keeps"


@pytest.mark.clients("confluent", "aiokafka", "java-4.3", "java-3.9")
def test_a_static_member_that_comes_back_gets_its_share_without_a_rebalance(
    client: Client, new_topic: Callable[..., str], group: str
) -> None:
    """kafka-python may drop the answer to its join, and then neither shows a sign of life nor joins again."""
    topic = new_topic(2)
    first = client.consumer(group_id=group, group_instance_id="one", **EAGER)
    first.subscribe([topic])
    settle([first], are_even(2))
    second = client.consumer(group_id=group, group_instance_id="two", **EAGER)
    second.subscribe([topic])
    settle([first, second], are_even(2))
    had = second.assignment()
    second.close()
    again = client.consumer(group_id=group, group_instance_id="two", **EAGER)
    again.subscribe([topic])
    settle([first, again], are_even(2))
    assert again.assignment() == had


@pytest.mark.clients("confluent", "java-4.3", "java-3.9")
def test_a_static_member_is_fenced_by_another_of_its_name(
    client: Client, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic()
    first = client.consumer(group_id=group, group_instance_id="one", **EAGER)
    first.subscribe([topic])
    settle([first], are_even(1))
    usurper = client.consumer(group_id=group, group_instance_id="one", **EAGER)
    usurper.subscribe([topic])
    eventually(lambda: usurper.poll() or usurper.assignment())
    with pytest.raises(ClientError, match=r"FENCED_INSTANCE_ID|_FATAL|FencedInstanceId"):
        eventually(lambda: first.poll() and False)


@pytest.fixture
def start_member(server: Any) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a member in a process of its own, and wait until it has its share."""
    started: list[subprocess.Popen[str]] = []
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])

    def start(client: str, topic: str, **settings: str | int) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "ignore", "-c", MEMBER, client, server.bootstrap, topic]
        process = subprocess.Popen(
            [*command, json.dumps(settings)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        started.append(process)
        stdout = process.stdout
        assert stdout is not None
        eventually(lambda: json.loads(stdout.readline() or "[]"))
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.parametrize("library", ["confluent", "kafka-python", "aiokafka"])
@pytest.mark.clients("confluent")
def test_a_killed_members_share_goes_to_the_others_when_its_session_ends(
    client: Client,
    library: str,
    new_topic: Callable[..., str],
    group: str,
    start_member: Callable[..., subprocess.Popen[str]],
) -> None:
    topic = new_topic(2)
    settings = {**EAGER, "session_timeout_ms": 1_500}
    for attempts_left in reversed(range(5)):
        settings["group_id"] = f"{group}-{attempts_left}"
        killed = start_member(library, topic, **settings)
        survivor = client.consumer(**settings)
        survivor.subscribe([topic])
        try:
            settle([survivor], lambda shares: len(shares[0]) == 1, within_s=SETTLED_WITHIN_S / 5)
            break
        except AssertionError:
            # kafka-python's member may have missed the rebalance, for good: another group may do better.
            if not attempts_left:
                raise
    killed.kill()
    settle([survivor], are_even(2))


@pytest.mark.clients("confluent", "java-4.3", "java-3.9")
def test_a_member_that_was_thrown_out_can_not_commit(
    client: Client, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic()
    settings = {**EAGER, "session_timeout_ms": 1_500, "max_poll_interval_ms": 1_500}
    zombie = client.consumer(group_id=group, **settings)
    zombie.subscribe([topic])
    settle([zombie], are_even(1))
    other = client.consumer(group_id=group, **EAGER)
    other.subscribe([topic])
    settle([other], are_even(1))
    with pytest.raises(ClientError):
        zombie.commit({(topic, 0): 7})
    assert other.committed((topic, 0)) is None


@pytest.mark.clients("confluent", "java-4.3", "java-3.9")
def test_the_new_protocol_shares_partitions_as_members_join_and_leave(
    client: Client, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(4)
    first = client.consumer(group_id=group, **CONSUMER_PROTOCOL)
    first.subscribe([topic])
    settle([first], are_even(4))
    second = client.consumer(group_id=group, **CONSUMER_PROTOCOL)
    second.subscribe([topic])
    settle([first, second], are_even(4))
    first.commit(dict.fromkeys(first.assignment(), 0))
    first.close()
    settle([second], are_even(4))


@pytest.mark.clients("confluent", "java-4.3")
def test_a_member_of_the_new_protocol_that_is_killed_loses_its_share(
    client: Client,
    new_topic: Callable[..., str],
    group: str,
    start_member: Callable[..., subprocess.Popen[str]],
) -> None:
    topic = new_topic(2)
    killed = start_member("confluent", topic, group_id=group, **CONSUMER_PROTOCOL)
    survivor = client.consumer(group_id=group, **CONSUMER_PROTOCOL)
    survivor.subscribe([topic])
    settle([survivor], lambda shares: len(shares[0]) == 1)
    killed.kill()
    settle([survivor], are_even(2))


@pytest.mark.clients("confluent", "java-4.3")
def test_a_group_without_members_may_move_to_the_new_protocol_and_back_and_keeps_its_offsets(
    client: Client, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic()
    client.produce(topic, b"first", b"second")
    classic = client.consumer(group_id=group)
    classic.subscribe([topic])
    classic.read(2)
    classic.commit({(topic, 0): 1})
    classic.close()
    modern = client.consumer(group_id=group, **CONSUMER_PROTOCOL)
    modern.subscribe([topic])
    assert modern.values(1) == [b"second"]
    modern.commit({(topic, 0): 2})
    modern.close()
    client.produce(topic, b"third")
    again = client.consumer(group_id=group)
    again.subscribe([topic])
    assert again.values(1) == [b"third"]
    assert again.committed((topic, 0)) == 2
