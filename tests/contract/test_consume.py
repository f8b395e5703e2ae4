"""A consumer without a group reads what it asks for: from the beginning, an offset, a time, or the end."""

from __future__ import annotations

from collections.abc import Callable

from kafka_clients.interface import Client, NewRecord


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [str(number).encode() for number in range(start, start + count)]


def test_a_consumer_reads_every_partition_from_the_beginning(
    client: Client, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(3)
    for partition in range(3):
        client.produce(topic, *numbers(20, start=partition * 100), partition=partition)
    records = client.reader(*((topic, partition) for partition in range(3))).read(60)
    for partition in range(3):
        found = [record for record in records if record.partition == partition]
        assert [record.offset for record in found] == list(range(20))
        assert [record.value for record in found] == numbers(20, start=partition * 100)


def test_a_consumer_may_seek_to_any_offset_forwards_and_back(
    client: Client, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    client.produce(topic, *numbers(50))
    consumer = client.reader((topic, 0))
    assert consumer.values(50) == numbers(50)
    consumer.seek((topic, 0), 31)
    assert consumer.values(19) == numbers(19, start=31)
    consumer.seek((topic, 0), 2)
    assert consumer.read(48)[0].offset == 2
    assert consumer.position((topic, 0)) == 50


def test_a_consumer_at_the_end_gets_what_comes_next(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    client.produce(topic, b"old")
    consumer = client.reader((topic, 0), fetch_max_wait_ms=300)
    assert consumer.values(1) == [b"old"]
    consumer.seek_to_end((topic, 0))
    assert consumer.poll() == []
    client.produce(topic, b"new")
    (record,) = consumer.read(1)
    assert (record.offset, record.value) == (1, b"new")


def test_a_consumer_past_the_end_starts_where_it_was_told_to_in_that_case(
    client: Client, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    client.produce(topic, *numbers(3))
    consumer = client.reader((topic, 0))
    consumer.read(3)
    consumer.seek((topic, 0), 99)
    assert consumer.values(3) == numbers(3)


def test_beginning_end_and_times_lead_to_offsets(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    producer = client.producer()
    for number in range(5):
        timestamp_ms = 1_600_000_000_000 + number * 100
        producer.send([NewRecord(topic=topic, value=b"x", partition=0, timestamp_ms=timestamp_ms)])
        producer.flush()
    consumer = client.reader((topic, 0))
    assert (consumer.beginning((topic, 0)), consumer.end((topic, 0))) == (0, 5)
    assert consumer.offset_for_time((topic, 0), 1_600_000_000_000) == 0
    assert consumer.offset_for_time((topic, 0), 1_600_000_000_250) == 3
    assert consumer.offset_for_time((topic, 0), 1_600_000_000_401) is None


def test_a_time_leads_into_the_middle_of_a_batch(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    producer = client.producer(linger_ms=200, compression_type="gzip")
    producer.send(
        NewRecord(topic=topic, value=b"x", partition=0, timestamp_ms=1_600_000_000_000 + number * 10)
        for number in range(100)
    )
    producer.flush()
    assert client.reader((topic, 0)).offset_for_time((topic, 0), 1_600_000_000_505) == 51


def test_small_fetches_still_get_every_record_of_every_partition(
    client: Client, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(3)
    for partition in range(3):
        client.produce(topic, *(b"x" * 3_000 for _ in range(10)), partition=partition)
    consumer = client.reader(*((topic, partition) for partition in range(3)), max_partition_fetch_bytes=1_000)
    found = sorted((record.partition, record.offset) for record in consumer.read(30))
    assert found == [(partition, offset) for partition in range(3) for offset in range(10)]


def test_a_client_that_waits_for_a_minimum_gets_it_when_it_is_there(
    client: Client, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    consumer = client.reader((topic, 0), fetch_min_bytes=1_000_000, fetch_max_wait_ms=500)
    client.produce(topic, b"little")
    assert consumer.values(1) == [b"little"]
