"""Queues: how they are declared, checked, purged and deleted, and whose they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from queues.steps import count_of, drained, fetched, publish, refused_with

Connect = Callable[[], BlockingConnection]
NewQueue = Callable[..., str]


def test_messages_come_in_the_order_in_which_they_were_published(
    channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, "one", "two", "three")
    assert drained(channel, queue) == ["one", "two", "three"]


def test_a_server_names_a_queue_that_has_no_name(channel: BlockingChannel) -> None:
    first = channel.queue_declare("", exclusive=True).method.queue
    second = channel.queue_declare("", exclusive=True).method.queue
    assert first.startswith("amq.gen-")
    assert first != second


def test_an_empty_name_stands_for_the_queue_that_was_declared_last(channel: BlockingChannel) -> None:
    name = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind("", "amq.direct", "key")
    channel.basic_publish("amq.direct", "key", b"hello")
    assert fetched(channel, name) == "hello"


def test_declaring_again_tells_how_many_messages_and_consumers_there_are(
    channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, "one", "two")
    declared = channel.queue_declare(queue, durable=True).method
    assert (declared.queue, declared.message_count, declared.consumer_count) == (queue, 2, 0)
    channel.basic_consume(queue, lambda *_: None)
    assert channel.queue_declare(queue, durable=True).method.consumer_count == 1


def test_a_queue_that_is_not_there_is_not_found(connection: BlockingConnection, name: str) -> None:
    for call in (
        lambda channel: channel.queue_declare(name, passive=True),
        lambda channel: channel.queue_purge(name),
        lambda channel: channel.basic_get(name),
        lambda channel: channel.basic_consume(name, lambda *_: None),
        lambda channel: channel.queue_bind(name, "amq.direct", "key"),
    ):
        channel = connection.channel()
        assert refused_with(partial(call, channel)) == (404, "NOT_FOUND")
        assert channel.is_closed


def test_deleting_a_queue_that_is_not_there_is_no_error(channel: BlockingChannel, name: str) -> None:
    assert channel.queue_delete(name).method.message_count == 0


@pytest.mark.parametrize(
    "other",
    [
        {"durable": False},
        {"durable": True, "auto_delete": True},
        {"durable": True, "arguments": {"x-max-length": 2}},
        {"durable": True, "arguments": {"x-message-ttl": 100}},
    ],
    ids=str,
)
def test_a_queue_can_not_be_declared_as_another(
    channel: BlockingChannel, new_queue: NewQueue, other: dict[str, object]
) -> None:
    queue = new_queue(x_max_length=1)
    assert refused_with(lambda: channel.queue_declare(queue, **other)) == (406, "PRECONDITION_FAILED")


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": -1},
        {"x-message-ttl": "soon"},
        {"x-expires": 0},
        {"x-max-length": -5},
        {"x-max-priority": 256},
        {"x-overflow": "explode"},
        {"x-dead-letter-exchange": 7},
        {"x-dead-letter-routing-key": "key"},
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_are_refused(
    channel: BlockingChannel, name: str, arguments: dict[str, object]
) -> None:
    assert refused_with(lambda: channel.queue_declare(name, arguments=arguments)) == (
        406,
        "PRECONDITION_FAILED",
    )


def test_names_of_the_server_are_kept_for_it(channel: BlockingChannel) -> None:
    assert refused_with(lambda: channel.queue_declare("amq.mine")) == (403, "ACCESS_REFUSED")


def test_an_exclusive_queue_is_locked_for_others_and_goes_with_its_connection(
    connect: Connect, name: str
) -> None:
    owner, other = connect(), connect()
    owner.channel().queue_declare(name, exclusive=True)
    for call in (
        lambda channel: channel.queue_declare(name, exclusive=True),
        lambda channel: channel.queue_declare(name, passive=True),
        lambda channel: channel.basic_consume(name, lambda *_: None),
        lambda channel: channel.queue_delete(name),
    ):
        channel = other.channel()
        assert refused_with(partial(call, channel)) == (405, "RESOURCE_LOCKED")
    owner.close()
    assert refused_with(lambda: other.channel().queue_declare(name, passive=True)) == (404, "NOT_FOUND")


def test_an_auto_delete_queue_goes_with_its_last_consumer(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, auto_delete=True)
    first = channel.basic_consume(name, lambda *_: None)
    second = channel.basic_consume(name, lambda *_: None)
    channel.basic_cancel(first)
    assert channel.queue_declare(name, passive=True).method.consumer_count == 1
    channel.basic_cancel(second)
    assert refused_with(lambda: channel.queue_declare(name, passive=True)) == (404, "NOT_FOUND")


def test_purging_takes_what_is_ready_and_nothing_that_somebody_holds(
    channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, "held", "ready", "ready")
    method, _, _ = channel.basic_get(queue)
    assert channel.queue_purge(queue).method.message_count == 2
    channel.basic_nack(method.delivery_tag, requeue=True)
    assert fetched(channel, queue) == "held"


def test_deleting_tells_how_many_messages_there_were(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    publish(channel, name, "one", "two")
    assert channel.queue_delete(name).method.message_count == 2


def test_a_queue_in_use_or_with_messages_can_be_kept_from_deletion(
    connection: BlockingConnection, new_queue: NewQueue
) -> None:
    queue = new_queue()
    user, channel = connection.channel(), connection.channel()
    user.confirm_delivery()
    publish(user, queue, "one")
    assert refused_with(lambda: channel.queue_delete(queue, if_empty=True)) == (406, "PRECONDITION_FAILED")
    assert count_of(user, queue) == 1
    user.basic_consume(queue, lambda *_: None)
    channel = connection.channel()
    assert refused_with(lambda: channel.queue_delete(queue, if_unused=True)) == (406, "PRECONDITION_FAILED")


def test_what_was_not_acknowledged_does_not_count_as_ready(
    channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, "one", "two")
    channel.basic_get(queue)
    assert count_of(channel, queue) == 1
