"""Consumes alerts as they come: how old each was when first seen, and what its last version says."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

ALERTS_TOPIC: Final = "fraud-alerts"
ANSWER_S_MAX: Final = 10.0


class AlertReader:
    """Reads `fraud-alerts` from its beginning."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = _consumer(bootstrap)
        self._consumer.assign(_places(self._consumer, ALERTS_TOPIC))
        self.versions: dict[str, dict[str, Any]] = {}
        """The last version of each alert, by its id."""

    def read_for(self, seconds: float, until: Callable[[], bool] = lambda: True) -> list[float]:
        """The ages in ms of alerts first seen from now on, for so long and then until the condition holds."""
        ages_ms: list[float] = []
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s or not until():
            # It returns with the first message. To wait for several would make the first ones older.
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            now_ms = time.time() * 1000
            if message.error() is not None:
                raise SystemExit(f"error: the alerts can't be read: {message.error()}")
            alert = json.loads(message.value() or b"{}")
            if alert["alert_id"] not in self.versions:
                ages_ms.append(now_ms - alert["sent_at"])
            # The evidence in full is not compared, and would take much memory.
            del alert["transactions"]
            self.versions[alert["alert_id"]] = alert
        return ages_ms

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()


def read_values(bootstrap: str, topic: str) -> Iterator[bytes]:
    """All values that a topic has now."""
    consumer = _consumer(bootstrap)
    try:
        places = _places(consumer, topic)
        left = sum(end - begin for begin, end in map(consumer.get_watermark_offsets, places))
        consumer.assign(places)
        while left > 0 and (messages := consumer.consume(min(left, 10_000), timeout=ANSWER_S_MAX)):
            left -= len(messages)
            yield from (value for message in messages if (value := message.value()) is not None)
    finally:
        consumer.close()


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
        }
    )


def _places(consumer: Consumer, topic: str) -> list[TopicPartition]:
    partitions = consumer.list_topics(topic, timeout=ANSWER_S_MAX).topics[topic].partitions
    return [TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions]
