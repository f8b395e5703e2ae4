"""What a page may ask of the bank, by records of a topic: another rate.

    key `world`      {"rate": 20}               so many wishes a second from now on

What was asked for before the bank opened counts, too.
"""

from __future__ import annotations

import json
import sys
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

CONTROL: Final = "bank-control"
RATE_MAX: Final = 1_000.0
ANSWER_S_MAX: Final = 10.0


class Unreadable(Exception):
    """A record asks for nothing that could be done."""


def read_rate(value: bytes) -> float:
    """The rate that a record asks for."""
    try:
        fields = json.loads(value)
    except ValueError as error:
        raise Unreadable(f"it is not JSON: {error}") from error
    rate = fields.get("rate") if isinstance(fields, dict) else None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 1 <= rate <= RATE_MAX:
        raise Unreadable(f"rate is {rate!r}; use a number from 1 to {RATE_MAX:g}")
    return float(rate)


class ControlReader:
    """Reads the topic from its beginning."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "bank", "log_level": 0}
        self._consumer = Consumer({**settings, "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(CONTROL, 0, OFFSET_BEGINNING)])

    def read(self) -> float | None:
        """The rate that was asked for last since the last call; what can't be read is told and skipped."""
        rate = None
        for message in self._consumer.consume(100, timeout=0):
            value = message.value()
            # An error is one of the connection: it comes back by itself.
            if message.error() is not None or value is None:
                continue
            try:
                rate = read_rate(value)
            except Unreadable as error:
                print(f"skipped a record of {CONTROL}: {error}", file=sys.stderr, flush=True)
        return rate


def create_topic(bootstrap: str) -> None:
    """Make the topic where it is missing."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (made,) = admin.create_topics([NewTopic(CONTROL)], request_timeout=ANSWER_S_MAX).values()
    try:
        made.result(ANSWER_S_MAX)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
