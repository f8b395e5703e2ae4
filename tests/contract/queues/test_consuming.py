"""Consuming: acknowledgements, what comes back and where to, prefetch, and who gets what."""

from __future__ import annotations

from collections.abc import Callable
from socket import SHUT_RDWR
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from queues.steps import (
    await_count,
    await_deliveries,
    consumed,
    count_of,
    drained,
    fetched,
    publish,
    refused_with,
    settle,
)

NewQueue = Callable[..., str]
Connect = Callable[[], BlockingConnection]


def test_deliveries_are_numbered_from_one_on_each_channel(
    connection: BlockingConnection, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, "a", "b", "c")
    deliveries = consumed(connection.channel(), queue, 3, consumer_tag="worker")
    assert [(method.delivery_tag, text) for method, _, text in deliveries] == [(1, "a"), (2, "b"), (3, "c")]
    assert {method.consumer_tag for method, _, _ in deliveries} == {"worker"}


def test_an_acknowledged_message_is_gone(
    connection: BlockingConnection, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, "a", "b", "c")
    worker = connection.channel()
    deliveries = consumed(worker, queue, 3)
    worker.basic_ack(deliveries[1][0].delivery_tag, multiple=True)
    worker.close()
    await_count(channel, queue, 1)
    assert drained(channel, queue) == ["c"]


def test_messages_come_back_to_where_they_were_when_their_channel_closes(
    connection: BlockingConnection, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, *"abcde")
    worker = connection.channel()
    worker.basic_qos(prefetch_count=3)
    consumed(worker, queue, 3)
    worker.close()
    await_count(channel, queue, 5)
    found = [channel.basic_get(queue, auto_ack=True) for _ in range(5)]
    assert [body.decode() for _, _, body in found] == list("abcde")
    assert [method.redelivered for method, _, _ in found] == [True, True, True, False, False]


def test_messages_come_back_when_their_connection_is_lost(
    connect: Connect, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, "a", "b")
    lost = connect()
    consumed(lost.channel(), queue, 2)
    lost._impl._transport._sock.shutdown(SHUT_RDWR)
    await_count(channel, queue, 2)
    assert drained(channel, queue) == ["a", "b"]


def test_rejected_messages_come_back_to_the_head_in_their_order(
    connection: BlockingConnection, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, *"abcd")
    worker = connection.channel()
    tags = [worker.basic_get(queue)[0].delivery_tag for _ in range(3)]
    worker.basic_nack(tags[2], requeue=True)
    worker.basic_reject(tags[0], requeue=True)
    worker.basic_nack(tags[1], requeue=True)
    settle(worker)
    await_count(channel, queue, 4)
    assert drained(channel, queue) == list("abcd")


def test_what_is_rejected_without_requeue_is_gone(
    connection: BlockingConnection, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, "a", "b", "c")
    worker = connection.channel()
    deliveries = consumed(worker, queue, 3)
    worker.basic_reject(deliveries[0][0].delivery_tag, requeue=False)
    worker.basic_nack(deliveries[2][0].delivery_tag, multiple=True, requeue=False)
    worker.close()
    assert count_of(channel, queue) == 0


def test_recovering_gives_back_everything_that_is_held(
    connection: BlockingConnection, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, "a", "b")
    worker = connection.channel()
    worker.basic_get(queue)
    worker.basic_get(queue)
    worker.basic_recover(requeue=True)
    await_count(channel, queue, 2)
    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert (method.redelivered, body) == (True, b"a")


def test_acknowledging_what_nobody_delivered_closes_the_channel(
    connection: BlockingConnection, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, "a")
    worker = connection.channel()
    method, _, _ = worker.basic_get(queue)

    def acknowledge_twice() -> None:
        worker.basic_ack(method.delivery_tag)
        worker.basic_ack(method.delivery_tag)
        settle(worker)

    assert refused_with(acknowledge_twice) == (406, "PRECONDITION_FAILED")


def test_without_acknowledgements_messages_are_gone_when_they_are_sent(
    connection: BlockingConnection, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, "a", "b")
    worker = connection.channel()
    consumed(worker, queue, 2, auto_ack=True)
    worker.close()
    assert count_of(channel, queue) == 0


def test_prefetch_limits_what_each_consumer_holds(
    connection: BlockingConnection, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, *"abcdef")
    worker = connection.channel()
    worker.basic_qos(prefetch_count=2)
    first = consumed(worker, queue, 2)
    second = consumed(worker, queue, 2)
    settle(channel)
    assert ([text for *_, text in first], [text for *_, text in second]) == (["a", "b"], ["c", "d"])
    assert count_of(channel, queue) == 2
    worker.basic_ack(first[0][0].delivery_tag)
    await_deliveries(worker, first, 3)
    assert first[2][2] == "e"
    assert count_of(channel, queue) == 1


def test_global_prefetch_limits_what_a_channel_holds(
    connection: BlockingConnection, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, *"abcdef")
    worker = connection.channel()
    worker.basic_qos(prefetch_count=3, global_qos=True)
    found = consumed(worker, queue, 3)
    worker.basic_consume(queue, lambda *arguments: found.append(arguments))
    settle(channel)
    worker.connection.process_data_events(0)
    assert len(found) == 3
    assert count_of(channel, queue) == 3


def test_consumers_take_turns(connect: Connect, channel: BlockingChannel, new_queue: NewQueue) -> None:
    queue = new_queue()
    found: list[tuple[int, str]] = []
    for number in range(3):
        channel.basic_consume(
            queue,
            lambda _c, _m, _p, body, number=number: found.append((number, body.decode())),
            auto_ack=True,
        )
    publish(connect().channel(), queue, *"abcdef")
    await_deliveries(channel, found, 6)
    assert sorted(number for number, _ in found) == [0, 0, 1, 1, 2, 2]
    assert [text for _, text in found] == list("abcdef")


def test_a_consumer_of_higher_priority_is_served_first(
    connect: Connect, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    found: list[tuple[str, str]] = []
    worker = connect().channel()
    worker.basic_qos(prefetch_count=2)
    for name, priority in (("low", 0), ("high", 10)):
        worker.basic_consume(
            queue,
            lambda _c, _m, _p, body, name=name: found.append((name, body.decode())),
            arguments={"x-priority": priority},
        )
    publish(channel, queue, "a", "b", "c")
    await_deliveries(worker, found, 3)
    assert found == [("high", "a"), ("high", "b"), ("low", "c")]


def test_only_one_consumer_is_active_where_one_is_asked_for(
    connect: Connect, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue(x_single_active_consumer=True)
    first, second = connect().channel(), connect().channel()
    served_first: list[Any] = consumed(first, queue, 0)
    served_second: list[Any] = consumed(second, queue, 0)
    publish(channel, queue, "a", "b")
    await_deliveries(first, served_first, 2)
    settle(second)
    assert served_second == []
    for method, _, _ in served_first:
        first.basic_ack(method.delivery_tag)
    first.connection.close()
    publish(channel, queue, "c")
    await_deliveries(second, served_second, 1)
    assert [text for *_, text in served_second] == ["c"]


def test_an_exclusive_consumer_keeps_others_out(connection: BlockingConnection, new_queue: NewQueue) -> None:
    queue = new_queue()
    connection.channel().basic_consume(queue, lambda *_: None, exclusive=True)
    channel = connection.channel()
    refused = refused_with(lambda: channel.basic_consume(queue, lambda *_: None))
    assert refused == (403, "ACCESS_REFUSED")


def test_a_cancelled_consumer_gets_no_more_and_keeps_what_it_holds(
    connection: BlockingConnection, channel: BlockingChannel, new_queue: NewQueue
) -> None:
    queue = new_queue()
    publish(channel, queue, "a")
    worker = connection.channel()
    deliveries = consumed(worker, queue, 1, consumer_tag="worker")
    worker.basic_cancel("worker")
    publish(channel, queue, "b")
    assert count_of(channel, queue) == 1
    worker.basic_ack(deliveries[0][0].delivery_tag)
    worker.close()
    assert drained(channel, queue) == ["b"]


def test_a_consumer_hears_that_its_queue_is_gone(
    connect: Connect, channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name)
    cancelled: list[Any] = []
    worker = connect().channel()
    worker.add_on_cancel_callback(cancelled.append)
    worker.basic_consume(name, lambda *_: None, consumer_tag="worker")
    channel.queue_delete(name)
    await_deliveries(worker, cancelled, 1)
    assert cancelled[0].method.consumer_tag == "worker"
    assert worker.is_open


def test_a_tag_can_be_used_once_on_a_channel(connection: BlockingConnection, new_queue: NewQueue) -> None:
    queue = new_queue()
    # pika itself keeps a tag from being used twice, so this is what it would send.
    channel = connection.channel()
    channel.basic_consume(queue, lambda *_: None, consumer_tag="worker")
    channel._impl._send_method(pika.spec.Basic.Consume(queue=queue, consumer_tag="worker"))
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        settle(channel)
    assert closed.value.reply_code == 530


def test_fetching_tells_how_many_are_left(channel: BlockingChannel, new_queue: NewQueue) -> None:
    queue = new_queue()
    publish(channel, queue, "a", "b", "c")
    method, _, _ = channel.basic_get(queue, auto_ack=True)
    assert method.message_count == 2
    assert (fetched(channel, queue), fetched(channel, queue), fetched(channel, queue)) == ("b", "c", None)


def test_a_message_of_higher_priority_overtakes(channel: BlockingChannel, new_queue: NewQueue) -> None:
    queue = new_queue(x_max_priority=5)
    for text, priority in (
        ("low", 1),
        ("high", 5),
        ("none", None),
        ("higher than there is", 9),
        ("middle", 3),
    ):
        publish(channel, queue, text, priority=priority)
    assert drained(channel, queue) == ["high", "higher than there is", "middle", "low", "none"]


def test_a_large_backlog_comes_whole_and_in_order(
    connection: BlockingConnection, new_queue: NewQueue
) -> None:
    queue = new_queue()
    writer = connection.channel()
    texts = [f"{number:05}" for number in range(5_000)]
    publish(writer, queue, *texts)
    found = consumed(connection.channel(), queue, 5_000, auto_ack=True)
    assert [text for *_, text in found] == texts
