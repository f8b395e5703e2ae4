"""Finds the last state that a capture has committed, on a topic that only it should write to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headrace.cdc.state import CaptureState, from_json
from headrace.cdc.topic_names import state_topic_of
from headrace.config import CaptureConfig
from headrace.errors import BrokerUnavailable

ANSWER_S_MAX: Final = 30.0
LOOK_BACK_FIRST: Final = 64
"""How many offsets before the end the last state is looked for first: markers and aborted ones take some."""
_LOOK_BACK_FACTOR: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundState:
    """What is on the topic."""

    value: bytes | None
    """The last state of the key; None where there is none, or where it was forgotten."""
    other_keys: tuple[str, ...]
    """Keys of others that have written lately, and have not been forgotten."""


def read_state(config: CaptureConfig, *, answer_s_max: float = ANSWER_S_MAX) -> CaptureState | None:
    """What a capture has published last, for others than itself: it goes on meanwhile."""
    clients = {**config.client_options, "bootstrap.servers": config.bootstrap, "log_level": 0}
    topic = state_topic_of(config.prefix)
    try:
        found = find_last_state(
            clients, topic, config.name.encode(), group="headrace.views", answer_s_max=answer_s_max
        )
    except KafkaException as error:
        raise BrokerUnavailable(
            f"how far capture {config.name} is can't be read from {topic} at {config.bootstrap}: "
            f"{error.args[0].str()}"
        ) from error
    return None if found.value is None else from_json(found.value, topic)


def find_last_state(
    clients: Mapping[str, Any], topic: str, key: bytes, *, group: str, answer_s_max: float
) -> FoundState:
    """Look for the last committed record of a key, from the end of the topic backwards."""
    consumer = Consumer(
        {
            **clients,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=answer_s_max)
        look_back, last = LOOK_BACK_FIRST, dict[bytes, bytes | None]()
        while end > first:
            start = max(first, end - look_back)
            consumer.assign([TopicPartition(topic, 0, start)])
            last = _last_values(consumer, answer_s_max)
            if key in last or start == first:
                break
            look_back *= _LOOK_BACK_FACTOR
    finally:
        consumer.close()
    others = {each.decode(errors="replace") for each, value in last.items() if value and each != key}
    return FoundState(value=last.get(key), other_keys=tuple(sorted(others)))


def _last_values(consumer: Consumer, answer_s_max: float) -> dict[bytes, bytes | None]:
    last: dict[bytes, bytes | None] = {}
    while True:
        message = consumer.poll(answer_s_max)
        if message is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - the library's own name
        error = message.error()
        if error is None:
            last[message.key() or b""] = message.value()
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - likewise
            return last
        else:
            raise KafkaException(error)
