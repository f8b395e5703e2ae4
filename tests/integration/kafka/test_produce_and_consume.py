"""Records go in through a real client and come out of one."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.broker import Broker
from headrace.config import Address, BrokerConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_come_back_in_order(kafka: Any, codec: str, idempotent: bool) -> None:
    kafka.create_topic("orders")
    sent = [f"order {number} ".encode() * 20 for number in range(500)]
    offsets = kafka.produce("orders", sent, compression_type=codec, enable_idempotence=idempotent)
    consumer = kafka.consumer()
    consumer.subscribe(["orders"])
    read = kafka.read(consumer, 500)
    assert [message.value() for message in read] == sent
    assert [message.offset() for message in read] == offsets == list(range(500))


@pytest.mark.parametrize("acks", ["all", "1"])
def test_an_acknowledged_record_can_be_read(kafka: Any, acks: str) -> None:
    kafka.create_topic("orders")
    assert kafka.produce("orders", [b"first"], acks=acks) == [0]
    consumer = kafka.consumer()
    consumer.subscribe(["orders"])
    assert [message.value() for message in kafka.read(consumer, 1)] == [b"first"]


def test_records_that_nobody_acknowledges_arrive_too(kafka: Any) -> None:
    kafka.create_topic("metrics")
    kafka.produce("metrics", [b"a", b"b", b"c"], acks="0")
    consumer = kafka.consumer()
    consumer.subscribe(["metrics"])
    assert [message.value() for message in kafka.read(consumer, 3)] == [b"a", b"b", b"c"]


def test_key_headers_timestamp_and_tombstone_come_back_as_they_were(kafka: Any) -> None:
    kafka.create_topic("people")
    producer = kafka.producer()
    headers = [("trace", b"\x00\xff"), ("empty", None), ("trace", b"again")]
    producer.produce("people", None, key=b"\xfe", headers=headers, timestamp=1_234_567_890_123)
    producer.flush(30)
    consumer = kafka.consumer()
    consumer.subscribe(["people"])
    (message,) = kafka.read(consumer, 1)
    assert (message.key(), message.value(), message.headers()) == (b"\xfe", None, headers)
    assert message.timestamp()[1] == 1_234_567_890_123


def test_a_record_of_ten_megabytes_goes_through(kafka: Any) -> None:
    kafka.create_topic("large")
    value = bytes(range(256)) * 40_000
    kafka.produce("large", [value], message_max_bytes=20_000_000)
    consumer = kafka.consumer()
    consumer.subscribe(["large"])
    (message,) = kafka.read(consumer, 1)
    assert message.value() == value


def test_a_batch_above_the_maximum_is_refused_and_the_next_one_is_taken(
    tmp_path: Path, kafka_at: Callable[[str], Any]
) -> None:
    config = BrokerConfig(listen=Address("127.0.0.1", 0), message_bytes_max=10_000)
    with Broker(tmp_path, config=config) as broker:
        kafka = kafka_at(broker.bootstrap)
        kafka.create_topic("small")
        producer = kafka.producer(enable_idempotence=False)
        errors: list[KafkaError | None] = []
        producer.produce("small", b"x" * 20_000, on_delivery=lambda error, _: errors.append(error))
        producer.flush(30)
        assert errors[0] is not None
        assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
        assert kafka.produce("small", [b"fits"]) == [0]


def test_a_consumer_waits_for_records_that_are_yet_to_come(kafka: Any) -> None:
    kafka.create_topic("later")
    consumer = kafka.consumer(fetch_wait_max_ms=10_000)
    # Where the topic ends, told beforehand: to ask for it might take until the record is there.
    consumer.assign([TopicPartition("later", 0, 0)])
    assert consumer.poll(0.3) is None
    started_s = time.monotonic()
    writer = threading.Timer(0.2, lambda: kafka.produce("later", [b"here"]))
    writer.start()
    (message,) = kafka.read(consumer, 1)
    writer.join()
    assert message.value() == b"here"
    assert time.monotonic() - started_s < 5, "the fetch was not woken by the append"


def test_a_consumer_may_start_at_any_offset(kafka: Any) -> None:
    kafka.create_topic("numbers")
    kafka.produce("numbers", [str(number).encode() for number in range(100)])
    consumer = kafka.consumer()
    consumer.assign([TopicPartition("numbers", 0, 63)])
    assert [message.value() for message in kafka.read(consumer, 37)] == [
        str(number).encode() for number in range(63, 100)
    ]


def test_a_consumer_with_an_offset_past_the_end_starts_anew(kafka: Any) -> None:
    kafka.create_topic("numbers")
    kafka.produce("numbers", [b"only"])
    consumer = kafka.consumer()
    consumer.assign([TopicPartition("numbers", 0, 99)])
    assert [message.offset() for message in kafka.read(consumer, 1)] == [0]


def test_a_small_fetch_size_still_gets_every_record_of_every_partition(kafka: Any) -> None:
    kafka.create_topic("spread", 4)
    for partition in range(4):
        kafka.produce("spread", [b"x" * 3_000] * 20, partition=partition, batch_size=5_000)
    consumer = kafka.consumer(fetch_message_max_bytes=1_000, fetch_max_bytes=2_000, message_max_bytes=2_000)
    consumer.subscribe(["spread"])
    read = kafka.read(consumer, 80)
    found = sorted((message.partition(), message.offset()) for message in read)
    assert found == [(partition, offset) for partition in range(4) for offset in range(20)]


def test_a_time_leads_to_the_first_record_at_or_after_it(kafka: Any) -> None:
    kafka.create_topic("timed")
    producer = kafka.producer()
    for number in range(10):
        producer.produce("timed", str(number).encode(), partition=0, timestamp=1_000_000 + number * 100)
    producer.flush(30)
    consumer = kafka.consumer()
    (found,) = consumer.offsets_for_times([TopicPartition("timed", 0, 1_000_450)], timeout=30)
    assert found.offset == 5
    (after_the_last,) = consumer.offsets_for_times([TopicPartition("timed", 0, 9_000_000)], timeout=30)
    assert after_the_last.offset == OFFSET_END


def test_earliest_latest_and_highest_timestamp_are_known(kafka: Any) -> None:
    kafka.create_topic("timed")
    producer = kafka.producer()
    for timestamp in (5_000, 9_000, 7_000):
        producer.produce("timed", b"x", partition=0, timestamp=timestamp)
        producer.flush(30)
    admin: AdminClient = kafka.admin
    partition = TopicPartition("timed", 0)
    found = [
        admin.list_offsets({partition: spec})[partition].result(30)
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp())
    ]
    assert [each.offset for each in found] == [0, 3, 1]
    assert found[2].timestamp == 9_000


def test_an_unknown_topic_is_created_for_a_producer_and_not_for_a_consumer(kafka: Any) -> None:
    consumer = kafka.consumer(allow_auto_create_topics=False, topic_metadata_refresh_interval_ms=50)
    consumer.subscribe(["fresh"])
    message = consumer.poll(10)
    assert message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert "fresh" not in kafka.admin.list_topics(timeout=30).topics
    kafka.produce("fresh", [b"made"])
    assert "fresh" in kafka.admin.list_topics(timeout=30).topics


def test_without_auto_creation_an_unknown_topic_stays_unknown(
    tmp_path: Path, kafka_at: Callable[[str], Any]
) -> None:
    config = BrokerConfig(listen=Address("127.0.0.1", 0), auto_create_topics=False)
    with Broker(tmp_path, config=config) as broker:
        kafka = kafka_at(broker.bootstrap)
        producer = kafka.producer(message_timeout_ms=2_000, topic_metadata_propagation_max_ms=100)
        errors: list[KafkaError | None] = []
        try:
            producer.produce("missing", b"x", on_delivery=lambda error, _: errors.append(error))
        except KafkaException as error:
            errors.append(error.args[0])
        producer.flush(30)
        assert errors[0] is not None
        assert errors[0].code() in {KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}
