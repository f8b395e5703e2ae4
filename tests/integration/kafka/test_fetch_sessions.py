"""Fetch sessions on the wire, and with a client that uses them."""

from __future__ import annotations

import datetime as dt
from contextlib import closing
from typing import TYPE_CHECKING, Any

import kio.schema.fetch.v12.request
import kio.schema.fetch.v17.request
import pytest
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from headrace.broker import Broker
from headrace.config import Address, BrokerConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FETCH = 1
METADATA = 3


def fetch_fields(
    session_id: int,
    epoch: int,
    offsets: dict[int, int] | None = None,
    *,
    forget: tuple[int, ...] = (),
    max_wait_ms: int = 0,
) -> dict[str, Any]:
    schemas: Any = kio.schema.fetch.v12.request
    partitions = tuple(
        schemas.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1_000_000)
        for number, offset in (offsets or {}).items()
    )
    return {
        "max_wait": dt.timedelta(milliseconds=max_wait_ms),
        "min_bytes": 1,
        "topics": (schemas.FetchTopic(topic="orders", partitions=partitions),) if partitions else (),
        "forgotten_topics_data": (
            (schemas.ForgottenTopic(topic="orders", partitions=forget),) if forget else ()
        ),
        "rack_id": "",
        "session_id": session_id,
        "session_epoch": epoch,
    }


def told(answer: Any) -> dict[int, int]:
    """The partitions of an answer, with their high watermarks."""
    assert answer.error_code.name == "none"
    return {
        partition.partition_index: partition.high_watermark
        for topic in answer.responses
        for partition in topic.partitions
    }


def test_an_answer_in_a_session_names_only_what_has_changed(kafka: Any, raw: Any) -> None:
    kafka.create_topic("orders", 3)
    first = raw.request(FETCH, 12, **fetch_fields(0, 0, {0: 0, 1: 0, 2: 0}))
    assert first.session_id != 0
    assert told(first) == {0: 0, 1: 0, 2: 0}
    assert told(raw.request(FETCH, 12, **fetch_fields(first.session_id, 1))) == {}
    kafka.produce("orders", [b"x"], partition=1)
    assert told(raw.request(FETCH, 12, **fetch_fields(first.session_id, 2))) == {1: 1}
    assert told(raw.request(FETCH, 12, **fetch_fields(first.session_id, 3, {1: 1}, forget=(0,)))) == {}
    kafka.produce("orders", [b"x"], partition=0)
    assert told(raw.request(FETCH, 12, **fetch_fields(first.session_id, 4))) == {}
    repeated = raw.request(FETCH, 12, **fetch_fields(first.session_id, 4))
    assert repeated.error_code.name == "invalid_fetch_session_epoch"
    unknown = raw.request(FETCH, 12, **fetch_fields(first.session_id ^ 1, 5))
    assert unknown.error_code.name == "fetch_session_id_not_found"


def test_a_fetch_in_a_session_waits_for_records_of_any_of_its_partitions(kafka: Any, raw: Any) -> None:
    kafka.create_topic("orders", 3)
    session_id = raw.request(FETCH, 12, **fetch_fields(0, 0, {0: 0, 1: 0, 2: 0})).session_id
    raw.send(raw.request_frame(FETCH, 12, **fetch_fields(session_id, 1, max_wait_ms=25_000)))
    assert not raw.has_something_to_read()
    kafka.produce("orders", [b"x"], partition=2)
    assert told(raw.receive(FETCH, 12)) == {2: 1}


def test_a_topic_that_is_deleted_and_made_anew_is_another_one_in_a_session(kafka: Any, raw: Any) -> None:
    kafka.create_topic("orders")
    metadata = raw.request(METADATA, 12, topics=None, include_topic_authorized_operations=False)
    schemas: Any = kio.schema.fetch.v17.request
    partition = schemas.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    topic = schemas.FetchTopic(topic_id=metadata.topics[0].topic_id, partitions=(partition,))
    common = {
        "max_wait": dt.timedelta(0),
        "min_bytes": 1,
        "forgotten_topics_data": (),
        "rack_id": "",
    }
    first = raw.request(FETCH, 17, topics=(topic,), session_id=0, session_epoch=0, **common)
    kafka.admin.delete_topics(["orders"])["orders"].result(30)
    kafka.create_topic("orders")
    second = raw.request(FETCH, 17, topics=(), session_id=first.session_id, session_epoch=1, **common)
    assert second.responses[0].partitions[0].error_code.name == "unknown_topic_id"


@pytest.mark.parametrize("count_max", [0, 1])
def test_no_more_sessions_than_the_maximum(
    tmp_path: Path, kafka_at: Callable[[str], Any], raw_at: Callable[[str], Any], count_max: int
) -> None:
    config = BrokerConfig(listen=Address("127.0.0.1", 0), fetch_session_count_max=count_max)
    with Broker(tmp_path, config=config) as broker:
        kafka_at(broker.bootstrap).create_topic("orders")
        raw = raw_at(broker.bootstrap)
        answers = [raw.request(FETCH, 12, **fetch_fields(0, 0, {0: 0})) for _ in range(3)]
    assert [answer.session_id != 0 for answer in answers].count(True) == count_max
    assert [told(answer) for answer in answers] == [{0: 0}] * 3


def test_kafka_python_reads_all_partitions_in_its_session(broker: Broker, kafka: Any) -> None:
    kafka.create_topic("orders", 4)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    with closing(consumer):
        consumer.assign([PythonPartition("orders", number) for number in range(4)])
        read: dict[int, list[bytes]] = {number: [] for number in range(4)}
        for turn in range(6):
            value = f"{turn}".encode()
            kafka.produce("orders", [value], partition=turn % 4)
            while value not in read[turn % 4]:
                for partition, records in consumer.poll(timeout_ms=1_000).items():
                    read[partition.partition] += [record.value for record in records]
        assert read == {0: [b"0", b"4"], 1: [b"1", b"5"], 2: [b"2"], 3: [b"3"]}
