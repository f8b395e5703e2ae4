"""Settings that change while the broker runs, through three admin clients."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioType
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType as PythonType
from kafka.admin import KafkaAdminClient

from headrace.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.testing.process import BrokerProcess

TOPIC = ConfigResource(ResourceType.TOPIC, "orders")
BROKER = ConfigResource(ResourceType.BROKER, "1")


def described(kafka: Any, resource: ConfigResource = TOPIC) -> Any:
    return kafka.admin.describe_configs([resource])[resource].result(30)


def alter(
    kafka: Any,
    *changes: tuple[str, AlterConfigOpType, str | None],
    resource: ConfigResource = TOPIC,
    validate_only: bool = False,
) -> None:
    asked = ConfigResource(
        resource.restype,
        resource.name,
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=operation) for name, operation, value in changes
        ],
    )
    kafka.admin.incremental_alter_configs([asked], validate_only=validate_only)[asked].result(30)


SET, DELETE, APPEND = AlterConfigOpType.SET, AlterConfigOpType.DELETE, AlterConfigOpType.APPEND


def produce_error(kafka: Any, value: bytes) -> KafkaError | None:
    errors: list[KafkaError | None] = []
    producer = kafka.producer(message_max_bytes=10_000_000)
    producer.produce("orders", value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    return errors[0]


def test_a_topic_keeps_the_settings_that_it_was_created_with(
    tmp_path: Path, kafka_at: Callable[[str], Any]
) -> None:
    with Broker(tmp_path) as broker:
        kafka = kafka_at(broker.bootstrap)
        topic = NewTopic("orders", 1, 1, config={"retention.ms": "1000", "cleanup.policy": "compact,delete"})
        kafka.admin.create_topics([topic])["orders"].result(30)
    with Broker(tmp_path) as broker:
        settings = described(kafka_at(broker.bootstrap))
    assert settings["retention.ms"].value == "1000"
    assert settings["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert settings["cleanup.policy"].value == "compact,delete"
    assert settings["segment.ms"].source == ConfigSource.DEFAULT_CONFIG.value
    assert not settings["segment.ms"].is_read_only


def test_a_limit_that_is_changed_holds_at_once(kafka: Any) -> None:
    kafka.create_topic("orders")
    assert produce_error(kafka, b"x" * 5_000) is None
    alter(kafka, ("max.message.bytes", SET, "1000"))
    error = produce_error(kafka, b"x" * 5_000)
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    alter(kafka, ("max.message.bytes", DELETE, None))
    assert produce_error(kafka, b"x" * 5_000) is None


def test_changes_of_a_topic_happen_together_or_not_at_all(kafka: Any) -> None:
    kafka.create_topic("orders")
    with pytest.raises(KafkaException, match=r"retention\.ms: use a whole number from -1") as caught:
        alter(kafka, ("segment.ms", SET, "5000"), ("retention.ms", SET, "soon"))
    assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert described(kafka)["segment.ms"].value == "604800000"


def test_a_change_that_is_only_validated_does_not_happen(kafka: Any) -> None:
    kafka.create_topic("orders")
    alter(kafka, ("segment.ms", SET, "5000"), validate_only=True)
    assert described(kafka)["segment.ms"].value == "604800000"


def test_the_synonyms_of_a_setting_are_listed(kafka: Any) -> None:
    kafka.create_topic("orders")
    alter(kafka, ("cleanup.policy", APPEND, "compact"))
    setting = described(kafka)["cleanup.policy"]
    assert setting.value == "delete,compact"
    synonyms = [(each.name, each.value, each.source) for each in setting.synonyms.values()]
    assert ("log.cleanup.policy", "delete", ConfigSource.DEFAULT_CONFIG.value) in synonyms


def test_settings_of_a_group_survive_the_death_of_the_broker(
    broker_process: BrokerProcess, kafka_at: Callable[[str], Any]
) -> None:
    billing = ConfigResource(ResourceType.GROUP, "billing")
    kafka = kafka_at(broker_process.bootstrap)
    alter(kafka, ("consumer.session.timeout.ms", SET, "60000"), resource=billing)
    broker_process.kill()
    broker_process.start()
    setting = described(kafka_at(broker_process.bootstrap), billing)["consumer.session.timeout.ms"]
    assert setting.value == "60000"
    assert setting.source == ConfigSource.GROUP_CONFIG.value


def test_defaults_of_topics_change_while_the_broker_runs_and_stay(
    tmp_path: Path, kafka_at: Callable[[str], Any]
) -> None:
    with Broker(tmp_path) as broker:
        kafka = kafka_at(broker.bootstrap)
        kafka.create_topic("orders")
        alter(kafka, ("log.retention.ms", SET, "90000"), resource=BROKER)
        assert described(kafka)["retention.ms"].value == "90000"
    with Broker(tmp_path) as broker:
        kafka = kafka_at(broker.bootstrap)
        setting = described(kafka)["retention.ms"]
        assert (setting.value, setting.source) == ("90000", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
        assert described(kafka, BROKER)["log.retention.ms"].value == "90000"
        alter(kafka, ("log.retention.ms", DELETE, None), resource=BROKER)
        assert described(kafka)["retention.ms"].value == "-1"


def test_what_the_broker_was_started_with_can_not_be_changed(kafka: Any) -> None:
    with pytest.raises(KafkaException, match="can't be changed while the broker runs") as caught:
        alter(kafka, ("num.partitions", SET, "9"), resource=BROKER)
    assert caught.value.args[0].code() == KafkaError.INVALID_REQUEST
    assert described(kafka, BROKER)["num.partitions"].is_read_only


def test_the_older_request_replaces_all_settings(kafka: Any, broker: Broker) -> None:
    kafka.create_topic("orders")
    alter(kafka, ("retention.ms", SET, "1000"))

    async def replace_all() -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            resource = AioResource(AioType.TOPIC, "orders", configs={"segment.ms": "5000"})
            return await admin.alter_configs([resource])
        finally:
            await admin.close()

    (response,) = asyncio.run(replace_all())
    assert [resource[0] for resource in response.resources] == [0]
    settings = described(kafka)
    assert (settings["segment.ms"].value, settings["retention.ms"].value) == ("5000", "-1")


def test_kafka_python_changes_and_lists_settings(broker: Broker, kafka: Any) -> None:
    kafka.create_topic("orders")
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        resource = PythonResource(PythonType.TOPIC, "orders", configs={"retention.ms": "5000"})
        admin.alter_configs([resource])
        wanted = PythonResource(PythonType.TOPIC, "orders")
        assert {
            name: setting["value"]
            for name, setting in admin.describe_configs([wanted])["topic"]["orders"].items()
        } == {"retention.ms": "5000"}
        assert admin.list_config_resources() == {"broker": ["1"], "topic": ["orders"]}
