"""What tests of queues do again and again with pika."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from headrace.testing.waiting import eventually

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def publish(channel: BlockingChannel, queue: str, *bodies: str, **properties: Any) -> None:
    """Publish texts to a queue, persistent unless said otherwise."""
    for body in bodies:
        channel.basic_publish(
            "", queue, body.encode(), pika.BasicProperties(**{"delivery_mode": 2, **properties})
        )


def fetched(channel: BlockingChannel, queue: str) -> str | None:
    """The next text of a queue, acknowledged; None if there is none."""
    method, _, body = channel.basic_get(queue, auto_ack=True)
    return None if method is None or body is None else body.decode()


def drained(channel: BlockingChannel, queue: str) -> list[str]:
    """All texts that a queue has at once, acknowledged."""
    found = []
    while (text := fetched(channel, queue)) is not None:
        found.append(text)
    return found


def drained_of(channel: BlockingChannel, queue: str, count: int) -> list[str]:
    """So many texts of a queue, acknowledged, once they are there."""
    await_count(channel, queue, count)
    return drained(channel, queue)


def count_of(channel: BlockingChannel, queue: str) -> int:
    """How many messages are ready."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def await_count(channel: BlockingChannel, queue: str, count: int) -> None:
    """Wait until a queue has so many messages ready."""
    eventually(lambda: count_of(channel, queue) == count, f"{queue} having {count} messages")


def consumed(channel: BlockingChannel, queue: str, count: int, **options: Any) -> list[tuple[Any, Any, str]]:
    """So many deliveries of a new consumer: method, properties, text. It is not cancelled."""
    found: list[tuple[Any, Any, str]] = []
    channel.basic_consume(
        queue,
        lambda _c, method, properties, body: found.append((method, properties, body.decode())),
        **options,
    )
    await_deliveries(channel, found, count)
    return found


def await_deliveries(channel: BlockingChannel, found: list[Any], count: int) -> None:
    """Let the connection work until so many things have come."""

    def has_come() -> bool:
        channel.connection.process_data_events(0.01)
        return len(found) >= count

    eventually(has_come, lambda: f"{count} deliveries; there are {found}")


def settle(channel: BlockingChannel, rounds: int = 5) -> None:
    """Let the connection take what is on its way: each round asks the server something and hears of it."""
    for _ in range(rounds):
        channel.basic_qos()
        channel.connection.process_data_events(0)


def refused_with(call: Callable[[], object]) -> tuple[int, str]:
    """The code and the name of the code with which a call closes its channel."""
    try:
        call()
    except ChannelClosedByBroker as closed:
        return closed.reply_code, closed.reply_text.partition(" - ")[0]
    raise AssertionError("nothing was refused")
