"""Both brokers write the same about groups: what Kafka's own tool reads in `__consumer_offsets`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from apache_kafka import run_java
from headrace.testing.waiting import eventually
from kafka_clients.interface import Admin, Client

pytestmark = [pytest.mark.java, pytest.mark.clients("confluent")]

DUMP = "org.apache.kafka.tools.DumpLogSegments"
DUMPED = re.compile(r" key: (\{.*\}) payload: (\{.*\}|<DELETE>)$", re.MULTILINE)

COMMIT, CLASSIC_GROUP = 1, 2
GROUP_EPOCH, MEMBER_METADATA, TARGET_EPOCH, TARGET, CURRENT_ASSIGNMENT = 3, 5, 6, 7, 8


@pytest.fixture
def records_of(server: Any, kafka_jars: list[Path], administrator: Admin) -> Callable[[str], list[Any]]:
    """What is written about a group once all its members have left: kinds, and values or None."""

    def records_of(group: str) -> list[Any]:
        eventually(lambda: administrator.list_groups()[group] == "Empty")
        segments = sorted(map(str, server.data_dir.rglob("__consumer_offsets*/*.log")))
        dumped = run_java(kafka_jars, DUMP, "--offsets-decoder", "--files", ",".join(segments))
        return list(_records(dumped, group))

    return records_of


def _records(dumped: str, group: str) -> Iterator[tuple[int, Any]]:
    for found in DUMPED.finditer(dumped):
        key = json.loads(found[1])
        if group in key["data"].values():
            yield int(key["type"]), None if found[2] == "<DELETE>" else json.loads(found[2])["data"]


def use(client: Client, topic: str, group: str, **settings: str) -> None:
    """Join, read, commit and leave."""
    client.produce(topic, b"first", b"second")
    member = client.consumer(group_id=group, client_id="reader", **settings)
    member.subscribe([topic])
    member.read(2)
    member.commit({(topic, 0): 2})
    member.close()


def test_a_classic_group_is_written_when_it_has_settled_and_when_it_is_empty(
    client: Client, new_topic: Callable[..., str], group: str, records_of: Callable[[str], list[Any]]
) -> None:
    topic = new_topic(2)
    use(client, topic, group)
    # Apache Kafka also writes a group that nobody has settled in yet.
    records = [(kind, value) for kind, value in records_of(group) if value.get("generation") != 0]
    assert [kind for kind, _ in records] == [CLASSIC_GROUP, COMMIT, CLASSIC_GROUP]
    settled, committed, empty = (value for _, value in records)
    (member,) = settled["members"]
    assert (settled["protocolType"], settled["generation"], settled["protocol"]) == ("consumer", 1, "range")
    assert settled["leader"] == member["memberId"]
    assert (member["clientId"], member["clientHost"]) == ("reader", "/127.0.0.1")
    assert (member["groupInstanceId"], member["subscription"]["topics"]) == (None, [topic])
    assert member["assignment"]["assignedPartitions"] == [{"topic": topic, "partitions": [0, 1]}]
    assert (committed["offset"], committed["metadata"]) == (2, "")
    assert (empty["generation"], empty["protocol"], empty["leader"], empty["members"]) == (2, None, None, [])


def test_a_consumer_group_is_written_member_by_member(
    client: Client, new_topic: Callable[..., str], group: str, records_of: Callable[[str], list[Any]]
) -> None:
    topic = new_topic(2)
    # The coordinators of Kafka hear of a new topic a little later: who has read it has waited for them.
    use(client, topic, f"{group}-before", group_protocol="consumer")
    use(client, topic, group, group_protocol="consumer")
    records = records_of(group)
    joined, left = records[:5], records[-4:]
    assert [kind for kind, _ in joined] == [
        MEMBER_METADATA,
        GROUP_EPOCH,
        TARGET,
        TARGET_EPOCH,
        CURRENT_ASSIGNMENT,
    ]
    metadata, epoch, target, target_epoch, current = (value for _, value in joined)
    assert (metadata["clientId"], metadata["subscribedTopicNames"]) == ("reader", [topic])
    assert (metadata["instanceId"], metadata["serverAssignor"]) == (None, None)
    (topic_target,) = target["topicPartitions"]
    assert topic_target["partitions"] == [0, 1]
    assert target_epoch["assignmentEpoch"] == epoch["epoch"] == current["memberEpoch"]
    assert (current["previousMemberEpoch"], current["state"]) == (0, 0)
    assert current["assignedPartitions"] == [{**topic_target, "assignmentEpochs": [epoch["epoch"]] * 2}]
    assert [value["offset"] for kind, value in records if kind == COMMIT] == [2]
    assert [(kind, value is None) for kind, value in left] == [
        (CURRENT_ASSIGNMENT, True),
        (TARGET, True),
        (MEMBER_METADATA, True),
        (GROUP_EPOCH, False),
    ]
    assert left[-1][1]["epoch"] == epoch["epoch"] + 1
