"""What administrators change is written down, when it has been changed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import TopicPartition as PythonPartition
from kafka.admin import KafkaAdminClient

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def audited(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, logger="headrace.audit"):
        yield


def actions(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in vars(record)["fields"].items() if not name.startswith("client")}
        for record in caplog.records
        if record.name == "headrace.audit"
    ]


def commit(kafka: Any, offset: int) -> None:
    kafka.produce("orders", [b"x"] * 10)
    consumer = kafka.consumer("readers")
    consumer.subscribe(["orders"])
    kafka.read(consumer, 1)
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


def test_creating_changing_and_deleting_a_topic(kafka: Any, caplog: pytest.LogCaptureFixture) -> None:
    kafka.create_topic("orders")
    entry = ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[entry])
    for future in kafka.admin.incremental_alter_configs([resource]).values():
        future.result(30)
    for future in kafka.admin.delete_topics(["orders"]).values():
        future.result(30)
    found = actions(caplog)
    assert [each["action"] for each in found] == ["topic.create", "topic.configure", "topic.delete"]
    assert {each["principal"] for each in found} == {"User:ANONYMOUS"}


def test_moving_a_group_back_from_outside_and_no_ordinary_commit(
    kafka: Any, caplog: pytest.LogCaptureFixture
) -> None:
    commit(kafka, 7)
    back = ConsumerGroupTopicPartitions("readers", [TopicPartition("orders", 0, 2)])
    kafka.admin.alter_consumer_group_offsets([back])["readers"].result(30)
    resets = [each for each in actions(caplog) if each["action"].startswith("group.")]
    assert resets == [
        {
            "action": "group.reset-offsets",
            "principal": "User:ANONYMOUS",
            "group": "readers",
            "offsets": "orders-0:7->2",
        }
    ]


def test_deleting_offsets_and_groups(kafka: Any, caplog: pytest.LogCaptureFixture) -> None:
    commit(kafka, 7)
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    admin.delete_group_offsets("readers", [PythonPartition("orders", 0)])
    admin.close()
    commit(kafka, 8)
    kafka.admin.delete_consumer_groups(["readers"])["readers"].result(30)
    found = [each for each in actions(caplog) if each["action"].startswith("group.")]
    assert [each["action"] for each in found] == ["group.delete-offsets", "group.delete"]
    assert found[0]["partitions"] == "orders-0"


def test_what_was_refused_is_not_written_down(kafka: Any, caplog: pytest.LogCaptureFixture) -> None:
    for future in kafka.admin.delete_topics(["missing"]).values():
        assert future.exception(30) is not None
    assert kafka.admin.delete_consumer_groups(["missing"])["missing"].exception(30) is not None
    assert actions(caplog) == []
