"""aio-pika: confirms, consumers, robust connections, remote calls."""

from __future__ import annotations

import asyncio

import aio_pika
import pytest
from aio_pika.patterns import RPC

from queues.conftest import AmqpServer

WITHIN_S = 60.0


async def _round_trip(url: str, name: str) -> list[tuple[bytes, bool]]:
    connection = await aio_pika.connect_robust(url)
    async with connection:
        channel = await connection.channel(publisher_confirms=True)
        await channel.set_qos(prefetch_count=10)
        queue = await channel.declare_queue(name, durable=True)
        for number in range(50):
            message = aio_pika.Message(
                b"%d" % number, delivery_mode=aio_pika.DeliveryMode.PERSISTENT, headers={"number": number}
            )
            await channel.default_exchange.publish(message, routing_key=name)
        found: list[tuple[bytes, bool]] = []
        async with queue.iterator() as messages:
            async for incoming in messages:
                async with incoming.process():
                    found.append((incoming.body, incoming.headers["number"] == int(incoming.body)))
                if len(found) == 50:
                    break
        await queue.delete(if_unused=False, if_empty=False)
    return found


def test_messages_go_round_with_confirms_and_a_consumer(amqp: AmqpServer, name: str) -> None:
    found = asyncio.run(asyncio.wait_for(_round_trip(amqp.url, name), WITHIN_S))
    assert found == [(b"%d" % number, True) for number in range(50)]


async def _remote_call(url: str) -> object:
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel()
        rpc = await RPC.create(channel)

        async def multiply(*, x: int, y: int) -> int:
            return x * y

        await rpc.register("multiply", multiply, auto_delete=True)
        result: object = await rpc.call("multiply", {"x": 6, "y": 7})
        await rpc.close()
    return result


def test_remote_calls_are_answered(amqp: AmqpServer) -> None:
    assert asyncio.run(asyncio.wait_for(_remote_call(amqp.url), WITHIN_S)) == 42


async def _unroutable(url: str, name: str) -> None:
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        await channel.default_exchange.publish(aio_pika.Message(b"x"), routing_key=name, mandatory=True)


def test_a_message_that_no_queue_takes_comes_back(amqp: AmqpServer, name: str) -> None:
    with pytest.raises(aio_pika.exceptions.PublishError):
        asyncio.run(asyncio.wait_for(_unroutable(amqp.url, name), WITHIN_S))


async def _transaction(url: str, name: str) -> int:
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue(name, exclusive=True)
        async with channel.transaction():
            await channel.default_exchange.publish(aio_pika.Message(b"x"), routing_key=name)
        declared = await channel.declare_queue(name, exclusive=True, passive=True)
        assert queue.name == declared.name
        return int(declared.declaration_result.message_count or 0)


def test_transactions_are_committed(amqp: AmqpServer, name: str) -> None:
    assert asyncio.run(asyncio.wait_for(_transaction(amqp.url, name), WITHIN_S)) == 1
