"""Publishing: confirms, returns and transactions."""

from __future__ import annotations

from collections.abc import Callable

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from queues.steps import await_count, count_of, drained, publish, refused_with

NewQueue = Callable[..., str]
Connect = Callable[[], BlockingConnection]


def test_all_properties_come_back_as_they_were_sent(channel: BlockingChannel, new_queue: NewQueue) -> None:
    queue = new_queue()
    sent = pika.BasicProperties(
        content_type="application/json",
        content_encoding="utf-8",
        headers={"a": 1, "b": "text", "c": None, "d": [1, "x", {"e": True}], "f": 2**40},
        delivery_mode=2,
        priority=3,
        correlation_id="correlation",
        reply_to="reply",
        expiration="60000",
        message_id="message",
        timestamp=1_700_000_000,
        type="order",
        user_id="guest",
        app_id="shop",
    )
    channel.basic_publish("", queue, b"{}", sent)
    method, received, body = channel.basic_get(queue, auto_ack=True)
    assert body == b"{}"
    assert received == sent
    assert (method.exchange, method.routing_key, method.redelivered) == ("", queue, False)


@pytest.mark.parametrize("size_bytes", [0, 1, 131_064, 131_065, 1_000_000])
def test_bodies_of_any_size_come_back(channel: BlockingChannel, new_queue: NewQueue, size_bytes: int) -> None:
    queue = new_queue()
    body = bytes(n % 251 for n in range(1000)) * (size_bytes // 1000 + 1)
    channel.basic_publish("", queue, body[:size_bytes])
    assert channel.basic_get(queue, auto_ack=True)[2] == body[:size_bytes]


def test_a_confirm_comes_for_each_message_even_if_no_queue_takes_it(
    connection: BlockingConnection, new_queue: NewQueue, name: str
) -> None:
    queue = new_queue()
    channel = connection.channel()
    channel.confirm_delivery()
    # These return when the confirm has come, and raise if it is a refusal.
    for _ in range(20):
        channel.basic_publish("", queue, b"hello")
    channel.basic_publish("", name, b"nobody")
    assert count_of(channel, queue) == 20


def test_a_mandatory_message_that_no_queue_takes_comes_back(channel: BlockingChannel, name: str) -> None:
    with pytest.raises(pika.exceptions.UnroutableError) as unroutable:
        channel.basic_publish("amq.direct", name, b"hello", pika.BasicProperties(app_id="me"), mandatory=True)
    (message,) = unroutable.value.messages
    assert (message.method.reply_code, message.method.reply_text) == (312, "NO_ROUTE")
    assert (message.method.exchange, message.method.routing_key) == ("amq.direct", name)
    assert (message.properties.app_id, message.body) == ("me", b"hello")


def test_a_message_of_another_user_is_refused(channel: BlockingChannel, new_queue: NewQueue) -> None:
    queue = new_queue()
    properties = pika.BasicProperties(user_id="somebody-else")
    refused = refused_with(lambda: channel.basic_publish("", queue, b"hello", properties))
    assert refused == (406, "PRECONDITION_FAILED")


@pytest.mark.parametrize("expiration", ["soon", "-1", "1.5", ""])
def test_a_time_to_live_that_is_no_number_is_refused(
    channel: BlockingChannel, new_queue: NewQueue, expiration: str
) -> None:
    queue = new_queue()
    properties = pika.BasicProperties(expiration=expiration)
    refused = refused_with(lambda: channel.basic_publish("", queue, b"hello", properties))
    assert refused == (406, "PRECONDITION_FAILED")


def test_what_a_transaction_publishes_is_there_when_it_is_committed(
    connection: BlockingConnection, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    writer = connection.channel()
    writer.tx_select()
    publish(writer, queue, "one", "two")
    assert count_of(channel, queue) == 0
    writer.tx_commit()
    assert drained(channel, queue) == ["one", "two"]


def test_what_a_transaction_does_is_undone_by_a_rollback(
    connection: BlockingConnection, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, "kept")
    worker = connection.channel()
    worker.tx_select()
    method, _, _ = worker.basic_get(queue)
    worker.basic_ack(method.delivery_tag)
    publish(worker, queue, "never")
    worker.tx_rollback()
    worker.basic_ack(method.delivery_tag)
    worker.tx_commit()
    worker.close()
    assert count_of(channel, queue) == 0


def test_what_a_transaction_acknowledged_comes_back_if_it_is_not_committed(
    connection: BlockingConnection, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, "kept")
    worker = connection.channel()
    worker.tx_select()
    method, _, _ = worker.basic_get(queue)
    worker.basic_ack(method.delivery_tag)
    worker.close()
    await_count(channel, queue, 1)
    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert (method.redelivered, body) == (True, b"kept")


def test_a_channel_either_confirms_or_has_transactions(connection: BlockingConnection) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    assert refused_with(channel.tx_select) == (406, "PRECONDITION_FAILED")
    channel = connection.channel()
    channel.tx_select()
    assert refused_with(channel.confirm_delivery) == (406, "PRECONDITION_FAILED")
    channel = connection.channel()
    assert refused_with(channel.tx_commit) == (406, "PRECONDITION_FAILED")


def test_transient_and_persistent_messages_share_a_queue(
    channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, "one", delivery_mode=1)
    publish(channel, queue, "two", delivery_mode=2)
    assert drained(channel, queue) == ["one", "two"]


def test_names_and_keys_may_be_any_text(channel: BlockingChannel, name: str) -> None:
    queue = channel.queue_declare(f"{name} ü € %&/", exclusive=True).method.queue
    channel.queue_bind(queue, "amq.direct", "ключ 🔑")
    channel.basic_publish("amq.direct", "ключ 🔑", b"hello")
    method, _, _ = channel.basic_get(queue, auto_ack=True)
    assert method.routing_key == "ключ 🔑"
