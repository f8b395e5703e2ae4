"""Read the last records of a topic, so that its columns can be told."""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from headrace.config import StreamsConfig
from headrace.errors import FaultError
from headrace.streams.admin import Cluster
from headrace.streams.log_offsets import end_offsets, existing_places, first_offsets

SAMPLE_COUNT: Final = 500
"""How many records of a topic are looked at, about."""
SAMPLE_S_MAX: Final = 20.0
"""How long that may take."""
_POLL_S: Final = 0.5


def sample(config: StreamsConfig, topic: str) -> list[bytes | None]:
    """The values of the last committed records, an equal number of each partition."""
    cluster = Cluster(config)
    places = existing_places(cluster, [topic])
    firsts, ends = first_offsets(cluster, places), end_offsets(cluster, places)
    share = max(1, SAMPLE_COUNT // max(1, len(places)))
    starts = {
        place: max(firsts[place], ends[place] - share) for place in places if ends[place] > firsts[place]
    }
    if not starts:
        return []
    settings: dict[str, Any] = {
        "log_level": 0,
        **config.client_options,
        "bootstrap.servers": config.bootstrap,
        "group.id": "headrace.sql",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(*place, offset) for place, offset in starts.items()])
        return _read(consumer, topic, len(starts))
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str, partition_count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    ended = 0
    deadline_s = time.monotonic() + SAMPLE_S_MAX
    # A topic that is written to faster than it is read here has no end.
    while ended < partition_count and len(values) < 2 * SAMPLE_COUNT:
        message = consumer.poll(_POLL_S)
        if message is None:
            if time.monotonic() > deadline_s:
                raise FaultError(f"topic {topic} could not be read within {SAMPLE_S_MAX:.0f} s")
            continue
        error = message.error()
        if error is None:
            values.append(message.value())
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's name
            ended += 1
        else:
            raise FaultError(f"topic {topic} could not be read: {error.str()}")
    return values
