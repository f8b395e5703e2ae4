"""What leaves a queue without being consumed: too old, too many, refused; and where it goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from headrace.testing.waiting import eventually
from queues.steps import await_count, consumed, count_of, drained, fetched, publish, settle

NewQueue = Callable[..., str]


def x_death(channel: BlockingChannel, queue: str) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
    """The next message of a queue: its text, where it has been, and all of its headers."""
    _, properties, body = channel.basic_get(queue, auto_ack=True)
    assert body is not None
    return body.decode(), properties.headers["x-death"], properties.headers


def test_messages_older_than_their_queue_allows_are_gone(
    channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue(x_message_ttl=50)
    publish(channel, queue, "a", "b")
    await_count(channel, queue, 0)
    assert fetched(channel, queue) is None


def test_a_message_may_have_a_time_of_its_own(channel: BlockingChannel, new_queue: NewQueue) -> None:
    queue = new_queue(x_message_ttl=60_000)
    publish(channel, queue, "short", expiration="20")
    publish(channel, queue, "long", expiration="600000")
    await_count(channel, queue, 1)
    assert drained(channel, queue) == ["long"]


def test_a_queue_that_nobody_uses_is_deleted(connection: BlockingConnection, name: str) -> None:
    connection.channel().queue_declare(name, arguments={"x-expires": 100})

    def is_gone() -> bool:
        # Looking at it would count as a use if it were done by declaring.
        channel = connection.channel()
        try:
            channel.queue_declare(name, passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            return True
        channel.close()
        return False

    eventually(is_gone, pause_s=0.5)


def test_a_full_queue_drops_its_oldest_messages(channel: BlockingChannel, new_queue: NewQueue) -> None:
    queue = new_queue(x_max_length=2)
    publish(channel, queue, *"abcd")
    assert drained(channel, queue) == ["c", "d"]


def test_a_queue_may_be_full_by_bytes(channel: BlockingChannel, new_queue: NewQueue) -> None:
    queue = new_queue(x_max_length_bytes=10)
    publish(channel, queue, "aaaa", "bbbb", "cccc")
    assert drained(channel, queue) == ["bbbb", "cccc"]


def test_a_full_queue_may_refuse_what_comes(channel: BlockingChannel, new_queue: NewQueue) -> None:
    queue = new_queue(x_max_length=2, x_overflow="reject-publish")
    publish(channel, queue, "a", "b")
    with pytest.raises(pika.exceptions.NackError):
        publish(channel, queue, "c")
    assert drained(channel, queue) == ["a", "b"]


def test_what_a_full_queue_refuses_may_be_dead_lettered(
    channel: BlockingChannel, new_queue: NewQueue
) -> None:
    dead = new_queue()
    queue = new_queue(
        x_max_length=1,
        x_overflow="reject-publish-dlx",
        x_dead_letter_exchange="",
        x_dead_letter_routing_key=dead,
    )
    publish(channel, queue, "a")
    with pytest.raises(pika.exceptions.NackError):
        publish(channel, queue, "b")
    await_count(channel, dead, 1)
    text, deaths, _ = x_death(channel, dead)
    assert (text, deaths[0]["reason"], deaths[0]["queue"]) == ("b", "maxlen", queue)


@pytest.mark.parametrize("reason", ["rejected", "expired", "maxlen"])
def test_dead_letters_say_why_and_where_they_died(
    connection: BlockingConnection, channel: BlockingChannel, new_queue: NewQueue, reason: str
) -> None:
    dead = new_queue()
    arguments: dict[str, Any] = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": dead}
    if reason == "expired":
        arguments["x_message_ttl"] = 10
    if reason == "maxlen":
        arguments["x_max_length"] = 1
    queue = new_queue(**arguments)
    publish(channel, queue, "a", headers={"mine": 7})
    if reason == "rejected":
        worker = connection.channel()
        worker.basic_reject(worker.basic_get(queue)[0].delivery_tag, requeue=False)
        settle(worker)
    if reason == "maxlen":
        publish(channel, queue, "b")
    await_count(channel, dead, 1)
    text, deaths, headers = x_death(channel, dead)
    assert text == "a"
    assert headers["mine"] == 7
    (death,) = deaths
    assert death.pop("time") is not None
    assert death == {"count": 1, "reason": reason, "queue": queue, "exchange": "", "routing-keys": [queue]}
    assert headers["x-first-death-reason"] == reason
    assert headers["x-first-death-queue"] == queue
    assert headers["x-first-death-exchange"] == ""


def test_a_message_with_a_time_of_its_own_dies_once(channel: BlockingChannel, new_queue: NewQueue) -> None:
    dead = new_queue()
    queue = new_queue(x_dead_letter_exchange="", x_dead_letter_routing_key=dead)
    publish(channel, queue, "a", expiration="10")
    await_count(channel, dead, 1)
    _, properties, _ = channel.basic_get(dead, auto_ack=True)
    assert properties.expiration is None
    assert properties.headers["x-death"][0]["original-expiration"] == "10"


def test_dying_again_counts_and_the_latest_death_comes_first(
    connection: BlockingConnection, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    # The way in which people retry with a pause: rejected to a queue where messages expire, and back.
    work = new_queue()
    pause = new_queue(x_message_ttl=10, x_dead_letter_exchange="", x_dead_letter_routing_key=work)
    channel.queue_delete(work)
    channel.queue_declare(
        work, durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": pause}
    )
    publish(channel, work, "a")
    worker = connection.channel()
    for attempt in range(3):
        (method, properties, _), *_ = consumed(worker, work, 1, consumer_tag=f"attempt-{attempt}")
        worker.basic_cancel(f"attempt-{attempt}")
        deaths = (properties.headers or {}).get("x-death", [])
        assert [(death["queue"], death["reason"], death["count"]) for death in deaths] == (
            [(pause, "expired", attempt), (work, "rejected", attempt)] if attempt else []
        )
        worker.basic_reject(method.delivery_tag, requeue=False)


def test_a_message_that_only_expires_does_not_go_round_for_ever(
    channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue(x_message_ttl=10)
    channel.queue_delete(queue)
    channel.queue_declare(
        queue,
        durable=True,
        arguments={"x-message-ttl": 10, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue},
    )
    publish(channel, queue, "a")
    await_count(channel, queue, 0)


def test_dead_letters_go_by_their_own_key_where_no_other_is_named(
    connection: BlockingConnection, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    dead = new_queue()
    channel.queue_bind(dead, "amq.topic", "order.*")
    queue = new_queue(x_dead_letter_exchange="amq.topic")
    channel.queue_bind(queue, "amq.direct", "order.new")
    channel.basic_publish("amq.direct", "order.new", b"a")
    worker = connection.channel()
    worker.basic_reject(worker.basic_get(queue)[0].delivery_tag, requeue=False)
    await_count(channel, dead, 1)
    method, properties, _ = channel.basic_get(dead, auto_ack=True)
    assert (method.exchange, method.routing_key) == ("amq.topic", "order.new")
    assert properties.headers["x-death"][0]["exchange"] == "amq.direct"


def test_dead_letters_without_an_exchange_are_gone(
    channel: BlockingChannel, new_queue: NewQueue, name: str
) -> None:
    queue = new_queue(x_dead_letter_exchange=name, x_message_ttl=10)
    publish(channel, queue, "a")
    await_count(channel, queue, 0)
    assert count_of(channel, queue) == 0
