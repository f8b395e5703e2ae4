"""Dramatiq: actors, retries with a delay, and dead letters."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from headrace.testing.waiting import eventually
from queues.conftest import AmqpServer


@pytest.fixture
def rabbitmq_broker(amqp: AmqpServer) -> Iterator[Any]:
    broker = RabbitmqBroker(url=amqp.url, confirm_delivery=True, middleware=[dramatiq.middleware.Retries()])
    yield broker
    broker.close()


def test_actors_are_retried_with_a_delay_and_then_dead_lettered(rabbitmq_broker: Any, name: str) -> None:
    attempts: list[int] = []
    done = threading.Event()

    def twice(number: int) -> None:
        attempts.append(number)
        if len(attempts) < 3:
            raise ValueError("once more")
        done.set()

    def never() -> None:
        raise ValueError("never")

    # What is allowed besides is decided by middleware, which its types don't know.
    declare: Any = dramatiq.actor
    declare(twice, broker=rabbitmq_broker, queue_name=name, max_retries=5, min_backoff=10, max_backoff=20)
    declare(never, broker=rabbitmq_broker, queue_name=name, max_retries=0)
    worker = dramatiq.Worker(rabbitmq_broker, worker_threads=2, worker_timeout=100)
    worker.start()
    try:
        rabbitmq_broker.enqueue(rabbitmq_broker.get_actor("twice").message(7))
        rabbitmq_broker.enqueue(rabbitmq_broker.get_actor("never").message())
        assert done.wait(60)
        assert attempts == [7, 7, 7]
        eventually(
            lambda: rabbitmq_broker.get_queue_message_counts(name)[2] == 1,
            "what never works being kept",
        )
    finally:
        worker.stop()
        for queue in (name, f"{name}.DQ", f"{name}.XQ"):
            rabbitmq_broker.channel.queue_delete(queue)
