"""What the Kafka client's error codes mean to the console.

Codes that the client library raises by itself, rather than the broker, have names that begin with `_`. They
are part of its documented interface.
"""

# ruff: noqa: SLF001  # see above: the underscore does not mean private here

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

ALL_BROKERS_DOWN: Final = KafkaError._ALL_BROKERS_DOWN

PARTITION_END: Final = KafkaError._PARTITION_EOF
"""No error: a partition was read to its end."""

NO_ANSWER: Final = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT})
"""Nobody answers; there is no more to say."""

LOST_POSITION: Final = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.OFFSET_OUT_OF_RANGE,
    }
)
"""Errors of a partition that mean: the topic is no longer what the reader was told to read."""


def reason(error: KafkaError) -> str:
    """What is wrong, where there is more to say than that nobody answers."""
    return "" if error.code() in NO_ANSWER else error.str()
