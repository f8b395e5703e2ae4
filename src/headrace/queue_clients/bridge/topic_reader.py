"""Reads a topic from a position on: committed records of all partitions, also of those added later.

Blocking: runs on a thread beside the event loop. One thread at a time owns a reader.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headrace.config import ToQueueConfig
from headrace.errors import BridgeFailed, ConfigError
from headrace.queue_clients.bridge.position import Position
from headrace.queue_clients.bridge.records import TopicRecord
from headrace.queue_clients.bridge.topic_writer import ANSWER_S_MAX, RECONNECT_MS_MAX, bridge_errors

LOOK_FOR_PARTITIONS_S: Final = 30.0
_NO_OFFSET: Final = -1001


class TopicReader:
    """Reads for one bridge."""

    def __init__(self, config: ToQueueConfig) -> None:
        self._config = config
        self._looked_at_s = 0.0
        self._assigned: set[int] = set()
        self._consumer = Consumer(
            {
                "metadata.recovery.strategy": "none",
                "reconnect.backoff.max.ms": RECONNECT_MS_MAX,
                **config.client_options,
                "bootstrap.servers": config.bootstrap,
                "log_level": 0,
                # A group's offsets show how far the bridge is; what counts is the position in the queue.
                "group.id": f"headrace.bridge.{config.name}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                # What is gone before it was handed over must not be passed over.
                "auto.offset.reset": "error",
            }
        )

    def begin(self, position: Position | None) -> Position:
        """Read from here on; without a position, from the group's offsets or from the configured start.

        Returns the position of all partitions, which is where it begins.
        """
        with self._told():
            offsets = dict(position.offsets) if position is not None else self._committed()
            is_new = position is None and not offsets
            for number in self._partitions():
                if number not in offsets:
                    first, end = self._watermarks(number)
                    offsets[number] = end if is_new and self._config.start == "latest" else first
            self._assign(offsets)
        return Position(topic=self._config.topic, offsets=offsets)

    def read(self, wait_s: float) -> list[TopicRecord]:
        """The next records, up to a batch; none where none comes in time."""
        with self._told():
            self._look_for_partitions()
            messages = self._consumer.consume(self._config.batch_count_max, timeout=wait_s)
        return [self._record(each) for each in messages]

    def show_position(self, position: Position) -> None:
        """Let the group's offsets tell how far the bridge is, for whoever looks; nothing depends on it."""
        offsets = [TopicPartition(position.topic, *each) for each in position.offsets.items()]
        with self._told():
            self._consumer.commit(offsets=offsets, asynchronous=True)

    def close(self) -> None:
        """Let go of the client."""
        self._consumer.close()

    def _partitions(self) -> list[int]:
        topics = self._consumer.list_topics(self._config.topic, timeout=ANSWER_S_MAX).topics
        found = topics.get(self._config.topic)
        if found is None or found.error is not None or not found.partitions:
            raise ConfigError(f"there is no topic {self._config.topic} at {self._config.bootstrap}")
        return sorted(found.partitions)

    def _watermarks(self, number: int) -> tuple[int, int]:
        place = TopicPartition(self._config.topic, number)
        first, end = self._consumer.get_watermark_offsets(place, timeout=ANSWER_S_MAX)
        return first, end

    def _committed(self) -> dict[int, int]:
        places = [TopicPartition(self._config.topic, number) for number in self._partitions()]
        found = self._consumer.committed(places, timeout=ANSWER_S_MAX)
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def _assign(self, offsets: Mapping[int, int]) -> None:
        self._assigned = set(offsets)
        self._consumer.assign([TopicPartition(self._config.topic, *each) for each in offsets.items()])
        self._looked_at_s = time.monotonic()

    def _look_for_partitions(self) -> None:
        if time.monotonic() - self._looked_at_s < LOOK_FOR_PARTITIONS_S:
            return
        self._looked_at_s = time.monotonic()
        new = [number for number in self._partitions() if number not in self._assigned]
        if new:
            self._assigned.update(new)
            added = [TopicPartition(self._config.topic, number, 0) for number in new]
            self._consumer.incremental_assign(added)

    def _record(self, message: Message) -> TopicRecord:
        error = message.error()
        if error is not None:
            raise self._failed(error, message)
        headers: Any = message.headers() or ()
        _kind, timestamp_ms = message.timestamp()
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        return TopicRecord(
            topic=self._config.topic,
            key=message.key(),
            value=message.value(),
            headers=tuple(headers),
            timestamp_ms=timestamp_ms if timestamp_ms > 0 else None,
            partition=partition,
            offset=offset,
        )

    def _failed(self, error: KafkaError, message: Message) -> Exception:
        if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - the library's own name
            return BridgeFailed(
                f"records of {self._config.topic}-{message.partition()} were deleted before bridge "
                f"{self._config.name} handed them over ({error.str()}): keep them longer (retention.ms). To "
                f"go on without them, delete queue {self._config.position_queue}"
            )
        return KafkaException(error)

    def _told(self) -> Any:
        return bridge_errors(self._config.name, self._config.bootstrap)
