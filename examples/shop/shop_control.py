"""What a page may ask of the shop, by records of a topic: another rate, and a mistake.

    key `world`      {"rate": 50}               so many transactions a second from now on
    key `mistake`    {"pressed_ms": 17...}      delete lines of old orders, as by a script with a wrong WHERE

What was asked for before the shop opened counts, too. A mistake is made once at most: that one was read is
remembered by the broker, as the offset of a group, before it is made.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

CONTROL: Final = "shop-control"
GROUP: Final = "shop"
RATE_MAX: Final = 1_000.0
MISTAKE_COUNT: Final = 10_000
DELETE_PAST_LINES: Final = (
    "DELETE FROM order_lines WHERE (order_id, line) IN ("
    "SELECT order_id, line FROM order_lines JOIN orders USING (order_id) WHERE status = 'shipped' "
    "ORDER BY order_id, line LIMIT %s)"
)
ANSWER_S_MAX: Final = 10.0


class Unreadable(Exception):
    """A record asks for nothing that could be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What is asked for."""

    rate: float | None = None
    is_mistake: bool = False


def read_control(key: bytes | None, value: bytes) -> Control:
    """What a record asks for."""
    try:
        fields = json.loads(value)
    except ValueError as error:
        raise Unreadable(f"it is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise Unreadable("it is no JSON object")
    if key == b"mistake":
        return Control(is_mistake=True)
    rate = fields.get("rate")
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 1 <= rate <= RATE_MAX:
        raise Unreadable(f"rate is {rate!r}; use a number from 1 to {RATE_MAX:g}")
    return Control(rate=float(rate))


class ControlReader:
    """Reads the topic from its beginning, and leaves out mistakes that were made before."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        (made,) = self._consumer.committed([TopicPartition(CONTROL, 0)], timeout=ANSWER_S_MAX)
        self._next_mistake = max(0, made.offset)
        self._consumer.assign([TopicPartition(CONTROL, 0, OFFSET_BEGINNING)])

    def read(self) -> Iterator[Control]:
        """What was asked for since the last call; what can't be read is told and skipped."""
        for message in self._consumer.consume(100, timeout=0):
            value, offset = message.value(), message.offset()
            # An error is one of the connection: it comes back by itself.
            if message.error() is not None or value is None or offset is None:
                continue
            try:
                control = read_control(message.key(), value)
            except Unreadable as error:
                print(f"skipped a record of {CONTROL}: {error}", file=sys.stderr, flush=True)
                continue
            if control.is_mistake and not self._is_first_time(offset):
                continue
            yield control

    def _is_first_time(self, offset: int) -> bool:
        """Whether the mistake was not read before; from now on it was."""
        if offset < self._next_mistake:
            return False
        self._next_mistake = offset + 1
        self._consumer.commit(offsets=[TopicPartition(CONTROL, 0, self._next_mistake)], asynchronous=False)
        return True

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()


def create_topic(bootstrap: str) -> None:
    """Create the topic, unless it is there."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = NewTopic(CONTROL, num_partitions=1, config={"cleanup.policy": "compact"})
    try:
        client.create_topics([new], request_timeout=ANSWER_S_MAX)[CONTROL].result()
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            sys.exit(f"error: no broker answers at {bootstrap} ({reason.str()}): name another with --control")
