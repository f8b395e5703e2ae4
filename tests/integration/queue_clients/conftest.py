"""Queue servers of both kinds: what works by AMQP must work on the embedded server and on RabbitMQ."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from headrace.broker import Broker
from headrace.errors import SetupError
from headrace.queue_clients.connection import QueueConnection
from headrace.queue_clients.delivery import Delivery
from headrace.queue_clients.publishing import Publishing
from rabbitmq_server import RabbitMQ

Answer = TypeVar("Answer")


class Queues:
    """A queue server, and what a test wants to know of it. Each call has a connection of its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, work: Callable[[QueueConnection], Awaitable[Answer]]) -> Answer:
        """Do something on a connection."""

        async def run() -> Answer:
            async with await QueueConnection.open(self.url, name="test") as connection:
                return await work(connection)

        return asyncio.run(run())

    def declare(self, queue: str, **arguments: object) -> str:
        """Have a durable queue."""

        async def work(connection: QueueConnection) -> None:
            await (await connection.channel()).declare_queue(queue, arguments=arguments)

        self.run(work)
        return queue

    def publish(self, queue: str, *bodies: bytes, exchange: str = "", **headers: str) -> None:
        """Publish messages with ids, and wait until they are confirmed."""
        publishing = Publishing(routing_key=queue, exchange=exchange, headers=headers)
        self.run(lambda connection: publishing.publish_all(connection, bodies))

    def count(self, queue: str) -> int:
        """How many messages are ready."""

        async def work(connection: QueueConnection) -> int:
            count: int = (await (await connection.channel()).declare_queue(queue, passive=True)).message_count
            return count

        return self.run(work)

    def take(self, queue: str) -> list[Delivery]:
        """Take all messages out for good."""

        async def work(connection: QueueConnection) -> list[Delivery]:
            channel = await connection.channel()
            taken = []
            while (delivery := await channel.get(queue)) is not None:
                taken.append(delivery)
                channel.ack(delivery.tag)
            await channel.close()
            return taken

        return self.run(work)

    def kill_letters(self, queue: str, count: int) -> None:
        """Reject messages."""

        async def work(connection: QueueConnection) -> None:
            channel = await connection.channel()
            for _ in range(count):
                delivery = await channel.get(queue)
                assert delivery is not None
                channel.nack(delivery.tag, requeue=False)
            await channel.close()

        self.run(work)


class Command:
    """A command of ours in a process of its own."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def await_ready(self) -> None:
        """Return when it has said that it works; fails with what it has said instead."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, said = self.process.communicate()
            pytest.fail(f"the command ended with {self.process.returncode}: {said}")

    def await_killed(self) -> None:
        """Return when it was killed at a failpoint."""
        _, said = self.process.communicate(timeout=400)
        assert self.process.returncode == -signal.SIGKILL, said

    def end(self) -> str:
        """Stop it in good order, and return what it has said on standard error."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=400)
        return said

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.communicate()


@contextmanager
def running(*arguments: str, environment: dict[str, str] | None = None) -> Iterator[Command]:
    """A command that runs while the context is open."""
    command = Command(*arguments, environment=environment)
    try:
        yield command
    finally:
        command.kill()


@pytest.fixture(scope="session")
def command() -> Callable[..., object]:
    """Runs a command of ours while its context is open."""
    return running


@pytest.fixture(scope="session")
def rabbitmq_url() -> Iterator[str]:
    """One RabbitMQ for all tests of this process."""
    server = RabbitMQ()
    try:
        server.start()
    except SetupError as error:
        pytest.skip(str(error))
    try:
        yield server.url
    finally:
        server.stop()


@pytest.fixture(params=["embedded", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def queues(request: pytest.FixtureRequest) -> Queues:
    """A queue server of either kind."""
    name = "rabbitmq_url" if request.param == "rabbitmq" else "embedded_url"
    return Queues(request.getfixturevalue(name))


@pytest.fixture(scope="session")
def embedded_broker() -> Iterator[Broker]:
    """One broker for all tests of this process, with queues beside topics."""
    with Broker(amqp=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def embedded_url(embedded_broker: Broker) -> str:
    """Where its queues are."""
    return embedded_broker.amqp_url


@pytest.fixture
def bootstrap(embedded_broker: Broker) -> str:
    """Where its topics are."""
    return embedded_broker.bootstrap


@pytest.fixture
def name() -> str:
    """A name that no other test has: servers are shared."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def json_lines() -> Callable[[str], list[dict[str, object]]]:
    """Reads what a command prints with --json."""
    return lambda text: [json.loads(line) for line in text.splitlines()]
