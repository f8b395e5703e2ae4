"""Settings of groups: described, changed, listed, and held to."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.testing.waiting import eventually
from kafka_clients.interface import Client, ClientError

WITH_GROUPS = ("confluent", "kafka-python", "java-4.3")
"""The Java client of 3.9 knows of no settings of groups."""
THAT_TELL_REFUSALS = ("confluent", "java-4.3")
"""kafka-python does not raise what a broker says of one resource."""

GROUP_SETTINGS = {
    "consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "share.assignment.interval.ms",
    "share.auto.offset.reset",
    "share.delivery.count.limit",
    "share.heartbeat.interval.ms",
    "share.isolation.level",
    "share.partition.max.record.locks",
    "share.record.lock.duration.ms",
    "share.renew.acknowledge.enable",
    "share.session.timeout.ms",
    "streams.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.initial.rebalance.delay.ms",
    "streams.num.standby.replicas",
    "streams.session.timeout.ms",
}


@pytest.mark.clients(*WITH_GROUPS)
def test_a_group_of_which_nobody_has_heard_has_kafkas_settings(client: Client, group: str) -> None:
    found = client.admin.config("GROUP", group)
    assert set(found) == GROUP_SETTINGS
    assert found["share.auto.offset.reset"] == ("latest", "DEFAULT_CONFIG")
    assert found["share.isolation.level"] == ("read_uncommitted", "DEFAULT_CONFIG")
    assert found["share.renew.acknowledge.enable"] == ("true", "DEFAULT_CONFIG")
    assert found["share.delivery.count.limit"][0] == "5"
    assert found["share.partition.max.record.locks"][0] == "2000"
    assert found["streams.initial.rebalance.delay.ms"][0] == "3000"
    assert found["consumer.session.timeout.ms"] == ("3000", "STATIC_BROKER_CONFIG")


@pytest.mark.clients(*WITH_GROUPS)
def test_settings_of_a_group_are_changed_and_set_back(client: Client, group: str) -> None:
    before = client.admin.config("GROUP", group)
    client.admin.alter_config(
        "GROUP",
        group,
        {
            "consumer.session.timeout.ms": "50000",
            "share.auto.offset.reset": "by_duration:PT1H30M",
            "streams.num.standby.replicas": "1",
        },
    )

    def set_here() -> dict[str, str | None]:
        found = client.admin.config("GROUP", group)
        # librdkafka leaves the DYNAMIC out.
        return {name: value for name, (value, source) in found.items() if source.endswith("GROUP_CONFIG")}

    eventually(
        lambda: (
            set_here()
            == {
                "consumer.session.timeout.ms": "50000",
                "share.auto.offset.reset": "by_duration:PT1H30M",
                "streams.num.standby.replicas": "1",
            }
        )
    )
    client.admin.alter_config(
        "GROUP", group, {"share.auto.offset.reset": None, "streams.num.standby.replicas": None}
    )
    eventually(lambda: set_here() == {"consumer.session.timeout.ms": "50000"})
    client.admin.alter_config("GROUP", group, {"consumer.session.timeout.ms": None})
    eventually(lambda: client.admin.config("GROUP", group) == before)


@pytest.mark.parametrize(
    "changes",
    [
        {"no.such.setting": "1"},
        {"share.session.timeout.ms": "long"},
        {"share.session.timeout.ms": "0"},
        {"share.session.timeout.ms": "60001"},
        {"share.delivery.count.limit": "11"},
        {"share.partition.max.record.locks": "4001"},
        {"share.auto.offset.reset": "none"},
        {"share.auto.offset.reset": "by_duration:-PT1H"},
        {"share.isolation.level": "READ_COMMITTED"},
        {"share.renew.acknowledge.enable": "maybe"},
        {"streams.num.standby.replicas": "3"},
        {"consumer.session.timeout.ms": "10000", "consumer.heartbeat.interval.ms": "10000"},
    ],
    ids=str,
)
@pytest.mark.clients(*THAT_TELL_REFUSALS)
def test_a_setting_of_a_group_that_can_not_be_is_refused(
    client: Client, group: str, changes: dict[str, str | None]
) -> None:
    before = client.admin.config("GROUP", group)
    with pytest.raises(ClientError, match="INVALID_CONFIG"):
        client.admin.alter_config("GROUP", group, {"share.isolation.level": "read_committed", **changes})
    assert client.admin.config("GROUP", group) == before


@pytest.mark.clients("java-4.3")
def test_a_group_without_a_name_has_no_settings(client: Client) -> None:
    with pytest.raises(ClientError, match="INVALID_REQUEST"):
        client.admin.config("GROUP", "")
    with pytest.raises(ClientError, match="INVALID_REQUEST"):
        client.admin.alter_config("GROUP", "", {"share.isolation.level": "read_committed"})


@pytest.mark.clients("kafka-python")
def test_a_group_is_listed_while_something_is_set_for_it(client: Client, group: str) -> None:
    client.admin.alter_config("GROUP", group, {"share.isolation.level": "read_committed"})
    eventually(lambda: group in client.admin.groups_with_settings())
    client.admin.alter_config("GROUP", group, {"share.isolation.level": None})
    eventually(lambda: group not in client.admin.groups_with_settings())


@pytest.mark.clients("confluent")
def test_settings_of_a_group_outlive_the_group(client: Client, new_topic: Any, group: str) -> None:
    topic = new_topic()
    client.admin.alter_config("GROUP", group, {"share.isolation.level": "read_committed"})
    client.admin.alter_group_offsets(group, {(topic, 0): 0})
    client.admin.delete_group(group)
    assert group not in client.admin.list_groups()
    assert client.admin.config("GROUP", group)["share.isolation.level"][0] == "read_committed"
