"""The client beneath all of this: answers, refusals, confirms, transactions, and servers that are gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pika.spec import BasicProperties

from headrace.errors import ConfigError, QueueServerRefused, QueueServerUnavailable
from headrace.queue_clients.connection import QueueConnection

PLAIN = BasicProperties(delivery_mode=2)


def test_a_message_comes_out_as_it_went_in(queues: Any, name: str) -> None:
    queues.declare(name)
    headers = {"text": "ä", "number": 2**40, "yes": True, "table": {"list": [1, "x"]}, "none": None}
    properties = BasicProperties(headers=headers, message_id="m", priority=3, timestamp=5, type="t")

    async def work(connection: QueueConnection) -> None:
        channel = await connection.channel(confirms=True)
        await channel.publish(b"\x00\xff", properties=properties, routing_key=name)

    queues.run(work)
    [taken] = queues.take(name)
    assert (taken.body, taken.headers, taken.routing_key) == (b"\x00\xff", headers, name)
    assert (taken.message_id, taken.properties.priority, taken.properties.timestamp) == ("m", 3, 5)


def test_each_publish_hears_of_its_own_fate(queues: Any, name: str) -> None:
    queues.declare(name)

    async def work(connection: QueueConnection) -> list[BaseException | None]:
        channel = await connection.channel(confirms=True)
        targets = [name if number % 3 else f"{name}.nowhere" for number in range(30)]
        sent = [
            channel.publish(str(number).encode(), properties=PLAIN, routing_key=target)
            for number, target in enumerate(targets)
        ]
        return await asyncio.gather(*sent, return_exceptions=True)

    fates = queues.run(work)
    for number, fate in enumerate(fates):
        assert (fate is None) == bool(number % 3)
        assert fate is None or fate.reply_code == 312
    assert queues.count(name) == 20


def test_a_full_queue_refuses_and_says_so(queues: Any, name: str) -> None:
    queues.declare(name, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    queues.publish(name, b"1")
    with pytest.raises(QueueServerRefused, match="may be full"):
        queues.publish(name, b"2")


def test_what_waits_for_a_channel_fails_with_it(queues: Any, name: str) -> None:
    async def work(connection: QueueConnection) -> None:
        channel = await connection.channel(confirms=True)
        lost = channel.publish(b"", properties=PLAIN, routing_key="k", exchange=f"{name}.nowhere")
        with pytest.raises(QueueServerRefused) as refusal:
            await lost
        assert refusal.value.reply_code == 404
        with pytest.raises(QueueServerRefused):
            channel.publish(b"", properties=PLAIN, routing_key="k")
        with pytest.raises(QueueServerRefused):
            await channel.declare_queue(name)
        # The connection is still good for others.
        await (await connection.channel()).declare_queue(name)

    queues.run(work)


def test_a_transaction_counts_when_it_is_committed(queues: Any, name: str) -> None:
    queues.declare(name)
    queues.publish(name, b"old")

    async def work(connection: QueueConnection) -> None:
        channel = await connection.channel()
        await channel.select_transaction()
        old = await channel.get(name)
        assert old is not None
        channel.publish(b"new", properties=PLAIN, routing_key=name)
        channel.ack(old.tag)
        other = await connection.channel()
        assert await other.get(name) is None
        await channel.commit()
        new = await other.get(name)
        assert new is not None
        assert new.body == b"new"
        other.ack(new.tag)
        await other.close()

    queues.run(work)
    assert queues.take(name) == []


def test_a_transaction_that_is_not_committed_leaves_nothing(queues: Any, name: str) -> None:
    queues.declare(name)
    queues.publish(name, b"old")

    async def work(connection: QueueConnection) -> None:
        channel = await connection.channel()
        await channel.select_transaction()
        old = await channel.get(name)
        assert old is not None
        channel.publish(b"new", properties=PLAIN, routing_key=name)
        channel.ack(old.tag)

    queues.run(work)
    assert [each.body for each in queues.take(name)] == [b"old"]


def test_a_consumer_hears_that_its_queue_is_gone(queues: Any, name: str) -> None:
    queues.declare(name)

    async def work(connection: QueueConnection) -> None:
        channel = await connection.channel()
        consumer = await channel.consume(name)
        assert await consumer.next(0.01) is None
        await (await connection.channel()).delete_queue(name)
        for _ in range(2):
            with pytest.raises(QueueServerUnavailable, match="cancelled"):
                await consumer.next(30)

    queues.run(work)


def test_an_exclusive_queue_keeps_others_out_until_its_connection_ends(queues: Any, name: str) -> None:
    async def declare(connection: QueueConnection) -> None:
        await (await connection.channel()).declare_queue(name, durable=False, exclusive=True)

    async def work(connection: QueueConnection) -> None:
        await declare(connection)
        async with await QueueConnection.open(queues.url, name="other") as other:
            with pytest.raises(QueueServerRefused) as refusal:
                await declare(other)
        assert refusal.value.reply_code == 405

    queues.run(work)
    queues.run(declare)


def test_a_wrong_password_is_refused_in_words(queues: Any) -> None:
    async def open_wrongly() -> None:
        await QueueConnection.open(queues.url.replace("guest:guest", "guest:wrong"), name="test")

    with pytest.raises(ConfigError, match="refused the log-in"):
        asyncio.run(open_wrongly())


def test_an_unknown_virtual_host_is_refused_in_words(queues: Any) -> None:
    async def open_wrongly() -> None:
        await QueueConnection.open(f"{queues.url}nowhere", name="test")

    with pytest.raises(ConfigError, match="nowhere"):
        asyncio.run(open_wrongly())


def test_a_server_that_is_not_there_is_said_with_what_to_do() -> None:
    async def open_nowhere() -> None:
        await QueueConnection.open("amqp://guest:guest@127.0.0.1:1/", name="test")

    with pytest.raises(QueueServerUnavailable, match=r"127\.0\.0\.1:1 .*refused.*--amqp-listen"):
        asyncio.run(open_nowhere())
