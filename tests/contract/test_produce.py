"""What is produced is what is read, whatever the client, its settings and the broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_clients.interface import Client, ClientError, NewRecord


@pytest.mark.parametrize("acks", ["all", "1"])
def test_an_acknowledged_record_has_an_offset_and_can_be_read(
    client: Client, new_topic: Callable[..., str], acks: str
) -> None:
    topic = new_topic()
    producer = client.producer(acks=acks, enable_idempotence=False)
    assert producer.produce(topic, b"first", b"second") == [0, 1]
    assert client.reader((topic, 0)).values(2) == [b"first", b"second"]


def test_records_that_nobody_acknowledges_arrive_too(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    client.producer(acks="0", enable_idempotence=False).produce(topic, b"first", b"second")
    assert client.reader((topic, 0)).values(2) == [b"first", b"second"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.clients("confluent", "aiokafka", "java-4.3", "java-3.9")
def test_records_of_every_codec_come_back(client: Client, new_topic: Callable[..., str], codec: str) -> None:
    topic = new_topic()
    sent = [f"order {number} ".encode() * 10 for number in range(200)]
    assert client.producer(compression_type=codec).produce(topic, *sent) == list(range(200))
    assert client.reader((topic, 0)).values(200) == sent


@pytest.mark.clients("kafka-python")
def test_compressed_records_come_back(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    sent = [f"order {number} ".encode() * 10 for number in range(200)]
    assert client.producer(compression_type="gzip").produce(topic, *sent) == list(range(200))
    assert client.reader((topic, 0)).values(200) == sent


def test_key_headers_time_and_tombstone_come_back_as_they_were(
    client: Client, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    headers: list[tuple[str, bytes | None]] = [("trace", b"\x00\xff"), ("trace", b"again"), ("empty", b"")]
    producer = client.producer()
    producer.send(
        [
            NewRecord(topic=topic, value=None, key=b"\xfe", headers=headers, timestamp_ms=1_600_000_000_123),
            NewRecord(topic=topic, value=b"", key=None, timestamp_ms=1_600_000_000_124),
        ]
    )
    producer.flush()
    tombstone, empty = client.reader((topic, 0)).read(2)
    assert (tombstone.key, tombstone.value, tombstone.headers) == (b"\xfe", None, headers)
    assert (empty.key, empty.value, empty.headers) == (None, b"", [])
    assert [tombstone.timestamp_ms, empty.timestamp_ms] == [1_600_000_000_123, 1_600_000_000_124]


def test_records_of_one_key_stay_in_one_partition_and_in_order(
    client: Client, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(4)
    producer = client.producer()
    producer.send(
        NewRecord(topic=topic, key=f"key {number % 10}".encode(), value=str(number).encode())
        for number in range(100)
    )
    producer.flush()
    records = client.reader(*((topic, partition) for partition in range(4))).read(100)
    by_key: dict[bytes | None, list[tuple[int, int]]] = {}
    for record in records:
        by_key.setdefault(record.key, []).append((record.partition, int(record.value or b"")))
    assert len({partition for found in by_key.values() for partition, _ in found}) > 1
    for found in by_key.values():
        assert len({partition for partition, _ in found}) == 1
        assert [number for _, number in found] == sorted(number for _, number in found)


def test_a_record_of_five_megabytes_goes_through(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    value = bytes(range(256)) * 20_000
    client.producer(max_request_size=8_000_000).produce(topic, value, b"next")
    assert client.reader((topic, 0)).values(2) == [value, b"next"]


def test_a_record_above_the_topics_maximum_is_refused(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(max_message_bytes="5000")
    producer = client.producer()
    with pytest.raises(ClientError, match=r"MESSAGE_TOO_LARGE|MSG_SIZE_TOO_LARGE"):
        producer.produce(topic, b"x" * 10_000)


@pytest.mark.clients("confluent", "java-4.3")
def test_a_record_without_a_key_is_refused_by_a_compacted_topic(
    client: Client, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(cleanup_policy="compact")
    producer = client.producer(linger_ms=100)
    producer.send(NewRecord(topic=topic, partition=0, value=b"x", key=key) for key in (None, b"a", b"b"))
    with pytest.raises(ClientError, match="INVALID_RECORD"):
        producer.flush()
    producer.send(NewRecord(topic=topic, partition=0, value=b"x", key=key) for key in (b"a", None))
    with pytest.raises(ClientError, match=r"INVALID_RECORD|part of a batch"):
        producer.flush()
    producer.send([NewRecord(topic=topic, partition=0, value=b"x", key=b"a")])
    assert producer.flush() == [(0, 0)]


def test_an_idempotent_producer_writes_every_record_once_and_in_order(
    client: Client, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    producer = client.producer(enable_idempotence=True, acks="all", batch_size=1_000)
    sent = [str(number).encode() for number in range(2_000)]
    producer.send(NewRecord(topic=topic, value=value, partition=0) for value in sent)
    assert [offset for _, offset in producer.flush()] == list(range(2_000))
    assert client.reader((topic, 0)).values(2_000) == sent


def test_a_topic_that_nobody_created_is_created_for_a_producer(client: Client, group: str) -> None:
    topic = f"fresh-{group}"
    client.produce(topic, b"first")
    assert client.reader((topic, 0)).values(1) == [b"first"]


@pytest.mark.clients("confluent", "java-4.3")
def test_the_log_may_give_records_its_own_time(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    producer = client.producer()
    producer.send([NewRecord(topic=topic, value=b"x", partition=0, timestamp_ms=1_600_000_000_000)])
    producer.flush()
    (record,) = client.reader((topic, 0)).read(1)
    assert record.timestamp_ms > 1_700_000_000_000
