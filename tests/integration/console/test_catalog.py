"""What a broker has, asked by protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from headrace.console.catalog import KafkaCatalog
from headrace.console.feed import client_settings
from headrace.errors import BrokerUnavailable, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tests.integration.console.conftest import Topics

    from headrace import Broker
    from headrace.config import ConsoleConfig


def test_topics_partitions_records_and_groups_are_told_as_they_are(
    headrace_broker: Broker, topics: Topics, config: ConsoleConfig, eventually: Callable[..., Any]
) -> None:
    topics.create("orders", 2)
    topics.send("orders", b"one", b"two", "drei ☃".encode())
    topics.send("orders", b"\xff\xfe", partition=1)
    catalog = KafkaCatalog(client_settings(config))

    rows = {row["name"]: row for row in catalog.topics()}
    assert (rows["orders"]["partition_count"], rows["orders"]["record_count"]) == (2, 4)
    assert catalog.topic("orders")["partitions"] == [
        {"partition": 0, "first": 0, "end": 3},
        {"partition": 1, "first": 0, "end": 1},
    ]
    assert {each["value"] for each in catalog.messages("orders", 50)} == {"one", "two", "drei ☃", "0xfffe"}
    assert len(catalog.messages("orders", 1)) == 1
    assert catalog.messages("transactions", 50) == []
    with pytest.raises(ConfigError, match="there is no topic nowhere"):
        catalog.messages("nowhere", 50)

    found: list[bytes | None] = []
    assert catalog.read_all("orders", lambda message: found.append(message.value()))
    assert len(found) == 4

    consumer = Consumer(
        {"bootstrap.servers": headrace_broker.bootstrap, "group.id": "readers", "log_level": 0}
    )
    consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
    consumer.close()
    # Answers are kept for a second.
    eventually(lambda: [group["name"] for group in catalog.groups()] == ["readers"])
    (group,) = catalog.groups()
    assert group["partitions"] == [{"topic": "orders", "partition": 0, "committed": 2, "lag": 1}]
    assert not any(row["name"] == "nowhere" for row in catalog.topics())


def test_a_broker_that_is_not_there_is_said_in_words(nowhere: ConsoleConfig) -> None:
    with pytest.raises(BrokerUnavailable, match="the broker does not answer"):
        KafkaCatalog(client_settings(nowhere)).topics()
