"""Administration: topics, settings, partitions, records, groups, and what the cluster says of itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.testing.waiting import eventually
from kafka_clients.interface import Client, ClientError, NewRecord

COMPLETE = ("confluent", "kafka-python", "java-4.3", "java-3.9")
"""aiokafka's administrator has few operations."""
WITH_DETAILS = ("kafka-python", "java-4.3", "java-3.9")
"""confluent-kafka's doesn't have these."""

TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "index.interval.bytes": "4096",
    "max.compaction.lag.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""All of Kafka's settings of a topic, but for those of tiered storage and of replication between brokers."""
ON_PURPOSE = {"retention.ms": "-1"}
"""Where the embedded broker's default is another one: it deletes nothing unless it is told to."""


def test_a_topic_is_created_listed_described_and_deleted(client: Client, group: str) -> None:
    topic = f"topic-of-{group}"
    client.admin.create_topic(topic, 3, {"retention.ms": "3600000"})
    eventually(lambda: topic in client.admin.topic_names())
    assert client.admin.partition_count(topic) == 3
    client.admin.delete_topic(topic)
    eventually(lambda: topic not in client.admin.topic_names())


def test_a_topic_that_is_there_is_not_created_again(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    with pytest.raises(ClientError, match="TOPIC_ALREADY_EXISTS"):
        client.admin.create_topic(topic, 1, {})


@pytest.mark.parametrize(
    ("name", "partition_count", "config", "error"),
    [
        ("no spaces", 1, {}, "INVALID_TOPIC_EXCEPTION|TOPIC_EXCEPTION|InvalidTopic"),
        ("topic-x", 0, {}, "INVALID_PARTITIONS"),
        ("topic-x", 1, {"cleanup.policy": "burn"}, "INVALID_CONFIG"),
        ("topic-x", 1, {"no.such.setting": "1"}, "INVALID_CONFIG"),
        ("topic-x", 1, {"retention.ms": "soon"}, "INVALID_CONFIG"),
    ],
)
@pytest.mark.clients("confluent", "java-4.3")
def test_a_topic_that_can_not_be_is_refused_and_said_why(
    client: Client, name: str, partition_count: int, config: dict[str, str], error: str
) -> None:
    with pytest.raises(ClientError, match=error):
        client.admin.create_topic(name, partition_count, config)


def test_a_topic_that_is_not_there_is_not_deleted(client: Client, group: str) -> None:
    with pytest.raises(ClientError, match=r"UNKNOWN_TOPIC_OR_PART|UnknownTopicOrPartition"):
        client.admin.delete_topic(f"none-{group}")


def test_partitions_are_added_and_never_taken_away(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    client.admin.create_partitions(topic, 4)
    eventually(lambda: client.admin.partition_count(topic) == 4)
    with pytest.raises(ClientError, match="INVALID_PARTITIONS"):
        client.admin.create_partitions(topic, 1)
    client.produce(topic, b"in the newest", partition=3)
    assert client.reader((topic, 3)).values(1) == [b"in the newest"]


@pytest.mark.clients(*COMPLETE)
def test_settings_of_a_topic_are_described_changed_and_set_back(
    client: Client, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(retention_ms="3600000")
    before = client.admin.config("TOPIC", topic)
    assert before["retention.ms"] == ("3600000", "DYNAMIC_TOPIC_CONFIG")
    assert before["cleanup.policy"][0] == "delete"
    client.admin.alter_config("TOPIC", topic, {"cleanup.policy": "compact", "segment.ms": "60000"})

    def settings() -> dict[str, Any]:
        found = client.admin.config("TOPIC", topic)
        return {name: found[name][0] for name in ("retention.ms", "cleanup.policy", "segment.ms")}

    eventually(
        lambda: settings() == {"retention.ms": "3600000", "cleanup.policy": "compact", "segment.ms": "60000"}
    )
    client.admin.alter_config("TOPIC", topic, {"cleanup.policy": None, "segment.ms": None})
    eventually(lambda: settings()["cleanup.policy"] == "delete")
    assert client.admin.config("TOPIC", topic)["segment.ms"] == before["segment.ms"]


@pytest.mark.clients("java-4.3")
def test_a_topic_has_the_settings_and_the_defaults_that_apache_kafka_gives_it(
    client: Client, new_topic: Callable[..., str], server: Any
) -> None:
    found = client.admin.config("TOPIC", new_topic())
    expected = TOPIC_DEFAULTS | (ON_PURPOSE if server.kind == "embedded" else {})
    assert {name: found[name][0] for name in TOPIC_DEFAULTS} == expected


@pytest.mark.parametrize(
    "changes", [{"retention.ms": "soon"}, {"no.such.setting": "1"}, {"min.insync.replicas": "0"}]
)
@pytest.mark.clients("confluent", "java-4.3")
def test_a_setting_that_can_not_be_is_refused(
    client: Client, new_topic: Callable[..., str], changes: dict[str, str | None]
) -> None:
    with pytest.raises(ClientError, match="INVALID_CONFIG"):
        client.admin.alter_config("TOPIC", new_topic(), changes)


@pytest.mark.clients("confluent", "java-4.3")
def test_settings_of_a_topic_that_is_not_there_are_not_described(client: Client, group: str) -> None:
    with pytest.raises(ClientError, match=r"UNKNOWN_TOPIC_OR_PART"):
        client.admin.config("TOPIC", f"none-{group}")


@pytest.mark.clients(*COMPLETE)
def test_the_broker_tells_its_settings(client: Client, broker_id: int) -> None:
    settings = client.admin.config("BROKER", str(broker_id))
    for name in ("log.retention.ms", "num.partitions", "message.max.bytes", "auto.create.topics.enable"):
        assert name in settings


def test_deleted_records_are_gone_and_offsets_stay(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    client.produce(topic, *(str(number).encode() for number in range(10)))
    assert client.admin.delete_records((topic, 0), 6) == 6
    reader = client.reader((topic, 0))
    assert [record.offset for record in reader.read(4)] == [6, 7, 8, 9]
    assert (reader.beginning((topic, 0)), reader.end((topic, 0))) == (6, 10)


@pytest.mark.clients(*COMPLETE)
def test_records_beyond_the_end_can_not_be_deleted(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    client.produce(topic, b"only")
    with pytest.raises(ClientError, match="OFFSET_OUT_OF_RANGE"):
        client.admin.delete_records((topic, 0), 2)


@pytest.mark.clients(*COMPLETE)
def test_offsets_are_found_by_what_is_asked_for(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    producer = client.producer()
    for timestamp_ms in (1_600_000_005_000, 1_600_000_009_000, 1_600_000_007_000):
        producer.send([NewRecord(topic=topic, value=b"x", partition=0, timestamp_ms=timestamp_ms)])
        producer.flush()
    assert client.admin.list_offsets((topic, 0), "earliest")[0] == 0
    assert client.admin.list_offsets((topic, 0), "latest")[0] == 3
    assert client.admin.list_offsets((topic, 0), "max_timestamp") == (1, 1_600_000_009_000)
    assert client.admin.list_offsets((topic, 0), "1600000006000") == (1, 1_600_000_009_000)


@pytest.mark.clients(*COMPLETE)
def test_the_cluster_has_an_id_a_controller_and_the_address_that_was_asked(client: Client) -> None:
    cluster = client.admin.cluster()
    assert cluster["nodes"] == [client.bootstrap]
    assert cluster["has_controller"]
    assert len(cluster["id"]) == 22


@pytest.mark.clients(*WITH_DETAILS)
def test_the_one_node_is_the_whole_quorum(client: Client, broker_id: int) -> None:
    assert client.admin.quorum() == {"leader": broker_id, "voters": [broker_id]}


@pytest.mark.clients(*WITH_DETAILS)
def test_the_size_of_every_partition_is_told(
    client: Client, new_topic: Callable[..., str], broker_id: int
) -> None:
    topic = new_topic(2)
    client.produce(topic, b"x" * 1_000)
    sizes = client.admin.log_dirs(broker_id)
    assert sizes[f"{topic}-0"] > 1_000
    assert sizes[f"{topic}-1"] == 0


@pytest.fixture
def broker_id(administrator: Any) -> int:
    """The number of the one node."""
    return int(administrator.node_ids()[0])


@pytest.mark.clients(*COMPLETE)
def test_a_group_is_listed_and_described_while_it_works_and_when_it_is_empty(
    client: Client, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(2)
    consumer = client.consumer(group_id=group, client_id="the-reader")
    consumer.subscribe([topic])
    eventually(lambda: consumer.poll() or len(consumer.assignment()) == 2)
    consumer.commit({(topic, 0): 0})
    assert client.admin.list_groups()[group] == "Stable"
    described = client.admin.describe_group(group)
    assert described.state == "Stable"
    (member,) = described.members
    assert member.client_id == "the-reader"
    assert member.partitions == {(topic, 0), (topic, 1)}
    consumer.close()
    eventually(lambda: client.admin.describe_group(group).state == "Empty")


@pytest.mark.clients(*COMPLETE)
def test_offsets_of_an_empty_group_can_be_reset_and_the_group_deleted(
    client: Client, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic()
    client.produce(topic, b"first", b"second", b"third")
    client.admin.alter_group_offsets(group, {(topic, 0): 2})
    assert client.admin.group_offsets(group) == {(topic, 0): 2}
    consumer = client.consumer(group_id=group)
    consumer.subscribe([topic])
    assert consumer.values(1) == [b"third"]
    with pytest.raises(ClientError, match="NON_EMPTY_GROUP"):
        client.admin.delete_group(group)
    consumer.close()
    client.admin.delete_group(group)
    assert group not in client.admin.list_groups()


@pytest.mark.clients(*COMPLETE)
def test_a_group_with_members_keeps_its_offsets_from_others(
    client: Client, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic()
    consumer = client.consumer(group_id=group)
    consumer.subscribe([topic])
    eventually(lambda: consumer.poll() or consumer.assignment())
    with pytest.raises(ClientError, match="UNKNOWN_MEMBER_ID"):
        client.admin.alter_group_offsets(group, {(topic, 0): 0})


@pytest.mark.clients(*COMPLETE)
def test_a_group_that_is_not_there_can_not_be_deleted(client: Client, group: str) -> None:
    with pytest.raises(ClientError, match="GROUP_ID_NOT_FOUND"):
        client.admin.delete_group(group)


@pytest.mark.clients(*WITH_DETAILS)
def test_offsets_of_a_topic_that_nobody_reads_can_be_deleted(
    client: Client, new_topic: Callable[..., str], group: str
) -> None:
    kept, dropped = new_topic(), new_topic()
    client.admin.alter_group_offsets(group, {(kept, 0): 0, (dropped, 0): 0})
    consumer = client.consumer(group_id=group)
    consumer.subscribe([kept])
    eventually(lambda: consumer.poll() or consumer.assignment())
    client.admin.delete_group_offsets(group, [(dropped, 0)])
    assert client.admin.group_offsets(group) == {(kept, 0): 0}
    with pytest.raises(ClientError, match="GROUP_SUBSCRIBED_TO_TOPIC"):
        client.admin.delete_group_offsets(group, [(kept, 0)])
