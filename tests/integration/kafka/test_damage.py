"""A damaged batch on disk, as a consumer meets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import NewTopic

from headrace.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_damaged_batch_is_an_error_for_itself_alone(
    tmp_path: Path, kafka_at: Callable[[str], Any], wait_until: Callable[..., Any]
) -> None:
    with Broker(tmp_path) as broker:
        kafka = kafka_at(broker.bootstrap)
        topic = NewTopic("orders", 1, 1, config={"internal.segment.bytes": "500"})
        kafka.admin.create_topics([topic])["orders"].result(30)
        for number in range(8):
            kafka.produce("orders", [b"record %d" % number + bytes(80)])
    segment = tmp_path / "log" / "orders-0" / f"{0:020d}.log"
    content = bytearray(segment.read_bytes())
    content[content.index(b"record 1")] ^= 1
    segment.write_bytes(content)
    with Broker(tmp_path) as broker:
        consumer = kafka_at(broker.bootstrap).consumer()
        consumer.assign([TopicPartition("orders", 0, 0)])
        (first,) = kafka_at(broker.bootstrap).read(consumer, 1)
        assert (first.offset(), first.value()[:8]) == (0, b"record 0")
        met = wait_until(lambda: consumer.poll(0.1))
        assert met.error() is not None
        assert met.error().code() == KafkaError.INVALID_MSG
        consumer.seek(TopicPartition("orders", 0, 2))
        rest: list[int] = []

        def has_all() -> bool:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                rest.append(message.offset())
            return len(rest) == 6

        wait_until(has_all, "reading goes on after the damage")
        assert rest == [2, 3, 4, 5, 6, 7]
