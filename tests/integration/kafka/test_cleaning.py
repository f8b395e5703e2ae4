"""Retention, compaction, timestamps and compression as real clients see them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headrace.broker import Broker
from headrace.config import Address, BrokerConfig, LogConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE_MS = 300_000
"""Longer than any test waits."""
SMALL = {"internal.segment.bytes": "2000"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that cleans up all the time."""
    log = LogConfig(cleaner_interval_ms=20)
    config = BrokerConfig(
        listen=Address("127.0.0.1", 0), data_dir=tmp_path / "data", log=log, fetch_wait_ms_max=PATIENCE_MS
    )
    with Broker(config=config, metrics=True) as broker:
        yield broker


def create(kafka: Any, name: str = "orders", **config: str) -> None:
    given = {key.replace("_", "."): value for key, value in config.items()}
    (future,) = kafka.admin.create_topics([NewTopic(name, 1, 1, config={**SMALL, **given})]).values()
    future.result(30)


def change(kafka: Any, setting: str, value: str) -> None:
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[entry])
    kafka.admin.incremental_alter_configs([resource])[resource].result(30)


def produce(kafka: Any, records: list[tuple[bytes | None, bytes | None]], **settings: Any) -> list[Message]:
    producer = kafka.producer(**settings)
    delivered: list[Message] = []
    for key, value in records:
        producer.produce("orders", value, key, on_delivery=lambda _, message: delivered.append(message))
        producer.flush(30)
    return delivered


def read_all(kafka: Any, **settings: Any) -> list[Message]:
    """All records that there are now, from the start on."""
    consumer = kafka.consumer(enable_partition_eof=True, **settings)
    consumer.assign([TopicPartition("orders", 0, 0)])
    found: list[Message] = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            consumer.unassign()
            return found
        found.append(message)


def start_offset(kafka: Any) -> int:
    partition = TopicPartition("orders", 0)
    offset: int = kafka.admin.list_offsets({partition: OffsetSpec.earliest()})[partition].result(30).offset
    return offset


def test_a_compacted_topic_comes_down_to_the_last_value_of_each_key(
    kafka: Any, wait_until: Callable[..., Any]
) -> None:
    create(kafka, cleanup_policy="compact", min_cleanable_dirty_ratio="0", delete_retention_ms="0")
    produce(kafka, [(b"key %d" % (number % 4), b"%d" % number + bytes(300)) for number in range(40)])
    produce(kafka, [(b"key 0", None)], compression_type="zstd")
    produce(kafka, [(b"last", bytes(1_500)), (b"last", bytes(1_500))])

    def left() -> bool:
        produce(kafka, [(b"last", bytes(1_500))])
        return {message.key() for message in read_all(kafka)} == {b"key 1", b"key 2", b"key 3", b"last"}

    wait_until(left, "the tombstone is gone, too")
    values = {message.key(): (message.value() or b"")[:2] for message in read_all(kafka)}
    del values[b"last"]
    assert values == {b"key 1": b"37", b"key 2": b"38", b"key 3": b"39"}
    offsets = [message.offset() for message in read_all(kafka) if message.key() != b"last"]
    assert offsets == [37, 38, 39]


def test_a_reader_of_committed_records_sees_no_aborted_ones_after_compaction(
    kafka: Any, wait_until: Callable[..., Any]
) -> None:
    create(kafka, cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    producer = kafka.producer(transactional_id="writer")
    producer.init_transactions(30)
    for number in range(12):
        producer.begin_transaction()
        producer.produce("orders", b"%d" % number + bytes(400), b"key %d" % (number % 3))
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    produce(kafka, [(b"last", bytes(1_500)), (b"last", bytes(1_500))])

    def left() -> bool:
        every = read_all(kafka, isolation_level="read_uncommitted")
        return len([message for message in every if message.key() != b"last"]) == 3

    wait_until(left, "all but the last committed records are gone")
    committed = {message.key(): (message.value() or b"")[:2] for message in read_all(kafka)}
    assert committed.pop(b"last")
    assert committed == {b"key 0": b"6\0", b"key 1": b"10", b"key 2": b"8\0"}


@pytest.mark.parametrize("config", [{"retention_ms": "1"}, {"retention_bytes": "0"}])
def test_old_records_go_and_the_next_offset_stays(
    kafka: Any, wait_until: Callable[..., Any], config: dict[str, str]
) -> None:
    create(kafka, **config)
    produce(kafka, [(None, bytes(500))] * 10)
    wait_until(lambda: start_offset(kafka) == 10, "all records are gone")
    assert read_all(kafka) == []
    (message,) = produce(kafka, [(None, b"next")])
    assert message.offset() == 10


def test_retention_begins_when_it_is_asked_for(kafka: Any, wait_until: Callable[..., Any]) -> None:
    create(kafka)
    produce(kafka, [(None, bytes(500))] * 10)
    assert len(read_all(kafka)) == 10
    change(kafka, "retention.bytes", "3000")
    start = wait_until(lambda: start_offset(kafka), "the oldest segments are gone")
    assert [message.offset() for message in read_all(kafka)] == list(range(start, 10))


def test_a_consumer_that_waits_at_records_that_retention_removes_hears_of_it(
    kafka: Any, broker: Broker, wait_until: Callable[..., Any]
) -> None:
    """It asks for more bytes than there are, and would wait for minutes."""
    create(kafka)
    produce(kafka, [(None, bytes(500))] * 10)
    consumer = kafka.consumer(
        fetch_min_bytes=1_000_000,
        fetch_wait_max_ms=PATIENCE_MS,
        socket_timeout_ms=PATIENCE_MS,
        auto_offset_reset="error",
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    with httpx.Client(trust_env=False, timeout=30) as http:
        wait_until(
            lambda: consumer.poll(0) is None and "parked_fetches 1.0" in http.get(broker.metrics_url).text,
            "the consumer waits",
        )
    change(kafka, "retention.bytes", "0")
    message = wait_until(lambda: consumer.poll(0.1), "the consumer hears of it")
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET


def test_records_get_the_brokers_time_where_the_topic_asks_for_it(kafka: Any) -> None:
    create(kafka, message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000) - 1
    producer = kafka.producer()
    producer.produce("orders", b"value", timestamp=12_345)
    producer.flush(30)
    (message,) = read_all(kafka)
    kind, at_ms = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert at_ms >= before_ms


def refusal(kafka: Any, *, key: bytes | None = None, timestamp_ms: int = 0) -> str:
    errors: list[KafkaError | None] = []
    producer = kafka.producer()
    producer.produce(
        "orders", b"value", key, timestamp=timestamp_ms, on_delivery=lambda error, _: errors.append(error)
    )
    producer.flush(30)
    (error,) = errors
    return "taken" if error is None else error.name()


def test_a_compacted_topic_takes_no_record_without_a_key(kafka: Any) -> None:
    create(kafka, cleanup_policy="compact,delete")
    assert refusal(kafka) == "INVALID_RECORD"
    assert refusal(kafka, key=b"key") == "taken"


def test_a_record_from_the_future_is_refused(kafka: Any) -> None:
    create(kafka)
    now_ms = int(time.time() * 1000)
    assert refusal(kafka, timestamp_ms=now_ms + 3_700_000) == "INVALID_TIMESTAMP"
    assert refusal(kafka, timestamp_ms=now_ms + 3_500_000) == "taken"


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_kept_as_the_topic_has_it_and_every_client_reads_them(kafka: Any, codec: str) -> None:
    create(kafka, compression_type=codec)
    expected = []
    for given in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(kafka, [(b"key", given.encode() * 100)], compression_type=given)
        expected.append(given.encode() * 100)
    assert [message.value() for message in read_all(kafka)] == expected
