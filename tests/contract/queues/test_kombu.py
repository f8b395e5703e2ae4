"""Kombu: producers, consumers, simple queues, and priorities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue

from queues.conftest import AmqpServer


@pytest.fixture
def kombu_connection(amqp: AmqpServer) -> Iterator[Any]:
    with Connection(amqp.url) as connection:
        yield connection


def test_a_simple_queue_works(kombu_connection: Any, name: str) -> None:
    queue = kombu_connection.SimpleQueue(name, queue_opts={"auto_delete": True})
    queue.put({"hello": "world"})
    message = queue.get(block=True, timeout=30)
    assert message.payload == {"hello": "world"}
    message.ack()
    queue.close()


def test_a_producer_and_a_consumer_meet_at_an_exchange(kombu_connection: Any, name: str) -> None:
    exchange = Exchange(name, type="topic", auto_delete=True, durable=False)
    queue = Queue(name, exchange, routing_key="order.#", exclusive=True)
    found: list[Any] = []

    def take(body: Any, message: Any) -> None:
        found.append(body)
        message.ack()

    channel = kombu_connection.channel()
    with Consumer(channel, [queue], callbacks=[take]):
        producer = Producer(kombu_connection.channel(), exchange)
        for number in range(5):
            producer.publish({"number": number}, routing_key=f"order.{number}", serializer="json")
        while len(found) < 5:
            kombu_connection.drain_events(timeout=30)
    assert [each["number"] for each in found] == [0, 1, 2, 3, 4]


def test_a_queue_with_priorities_is_declared_and_obeyed(kombu_connection: Any, name: str) -> None:
    channel = kombu_connection.channel()
    queue = Queue(name, exclusive=True, max_priority=10)(channel)
    queue.declare()
    producer = Producer(kombu_connection.channel())
    for priority in (1, 9, 5):
        producer.publish(priority, routing_key=name, priority=priority, declare=[])
    found: list[Any] = []
    while len(found) < 3:
        message = queue.get(no_ack=True)
        if message is not None:
            found.append(message.payload)
    assert found == [9, 5, 1]
