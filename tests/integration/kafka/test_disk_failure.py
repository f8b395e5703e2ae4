"""A disk that fails: nothing more is acknowledged, everybody is told, reading goes on."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic

from headrace.broker import Broker
from headrace.log.disk import SystemDisk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def fail_with(number: int) -> Callable[..., None]:
    def fail(*_arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.fixture(params=[("sync_file", errno.EIO), ("append", errno.ENOSPC)], ids=["sync", "write"])
def break_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes the next sync, or the next write, fail, and all after it."""
    method, number = request.param
    return lambda: monkeypatch.setattr(SystemDisk, method, fail_with(number))


def produce_error(kafka: Any) -> int | None:
    producer = kafka.producer(retries=0, enable_idempotence=False, message_timeout_ms=10_000)
    errors: list[KafkaError | None] = []
    producer.produce("orders", b"lost", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    return None if errors[0] is None else errors[0].code()


def test_after_a_failure_nothing_is_acknowledged_and_the_log_says_so_once(
    kafka: Any, break_disk: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    kafka.create_topic("orders")
    assert produce_error(kafka) is None
    break_disk()
    assert [produce_error(kafka) for _ in range(3)] == [KafkaError.KAFKA_STORAGE_ERROR] * 3
    loud = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert len(loud) == 1
    assert "TAKES NO MORE WRITES" in loud[0]
    assert "repair the disk" in loud[0]


def test_what_was_acknowledged_can_still_be_read(kafka: Any, break_disk: Callable[[], None]) -> None:
    kafka.create_topic("orders")
    kafka.produce("orders", [b"kept"])
    break_disk()
    produce_error(kafka)
    consumer = kafka.consumer()
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert [message.value() for message in kafka.read(consumer, 1)] == [b"kept"]
    assert consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=30) == (0, 1)


def test_topics_and_offsets_are_refused_too(kafka: Any, break_disk: Callable[[], None]) -> None:
    kafka.create_topic("orders")
    consumer = kafka.consumer()
    consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    break_disk()
    produce_error(kafka)
    with pytest.raises(KafkaException):
        kafka.admin.create_topics([NewTopic("late", 1, 1)])["late"].result(30)
    with pytest.raises(KafkaException):
        consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
    (committed,) = consumer.committed([TopicPartition("orders", 0)], timeout=30)
    assert committed.offset == 1


def test_a_broker_with_a_repaired_disk_starts_with_what_was_acknowledged(
    tmp_path: Path, kafka_at: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(tmp_path / "data") as broker:
        kafka = kafka_at(broker.bootstrap)
        kafka.produce("orders", [b"kept"])
        with monkeypatch.context() as patch:
            patch.setattr(SystemDisk, "sync_file", fail_with(errno.EIO))
            assert produce_error(kafka) == KafkaError.KAFKA_STORAGE_ERROR
        assert produce_error(kafka) == KafkaError.KAFKA_STORAGE_ERROR, "a failed sync was tried again"
    with Broker(tmp_path / "data") as broker:
        kafka = kafka_at(broker.bootstrap)
        consumer = kafka.consumer()
        consumer.assign([TopicPartition("orders", 0, 0)])
        assert kafka.read(consumer, 1)[0].value() == b"kept"
        assert produce_error(kafka) is None
