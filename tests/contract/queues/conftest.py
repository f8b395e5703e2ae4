"""Every test here runs on the embedded server and on RabbitMQ, through the clients that people use.

RabbitMQ is started at its first use, once for each worker, and skipped with one line where it can't be had.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import AMQPError

from headrace.config import Address, BrokerConfig, QueueConfig
from headrace.errors import SetupError
from headrace.testing.process import BrokerProcess
from rabbitmq_server import RabbitMQ

SERVERS: Final = ("embedded", "rabbitmq")
ANY_PORT: Final = Address("127.0.0.1", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpServer:
    """A server under test."""

    kind: str
    url: str

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "amqp" in metafunc.fixturenames:
        metafunc.parametrize("amqp", [_param(name) for name in SERVERS], indirect=True)


def _param(name: str) -> Any:
    return pytest.param(name, marks=[pytest.mark.rabbitmq] if name == "rabbitmq" else [])


@pytest.fixture(scope="session")
def embedded_amqp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpServer]:
    config = BrokerConfig(listen=ANY_PORT, queues=QueueConfig(listen=ANY_PORT))
    with BrokerProcess(tmp_path_factory.mktemp("embedded-queues"), config=config) as broker:
        yield AmqpServer(kind="embedded", url=broker.amqp_url)


@pytest.fixture(scope="session")
def rabbitmq_amqp() -> Iterator[AmqpServer]:
    rabbitmq = RabbitMQ()
    try:
        rabbitmq.start()
    except SetupError as error:
        pytest.skip(f"no RabbitMQ here: {error}")
    try:
        yield AmqpServer(kind="rabbitmq", url=rabbitmq.url)
    finally:
        rabbitmq.stop()


@pytest.fixture
def amqp(request: pytest.FixtureRequest) -> AmqpServer:
    """The server under test."""
    server: AmqpServer = request.getfixturevalue(f"{request.param}_amqp")
    return server


@pytest.fixture
def connect(amqp: AmqpServer) -> Iterator[Callable[[], BlockingConnection]]:
    """Open a connection of pika; it is closed after the test."""
    opened: list[BlockingConnection] = []

    def connect() -> BlockingConnection:
        opened.append(pika.BlockingConnection(pika.URLParameters(amqp.url)))
        return opened[-1]

    yield connect
    for connection in opened:
        # A test may have lost it, which is noticed only now.
        with suppress(AMQPError):
            connection.close()


@pytest.fixture
def connection(connect: Callable[[], BlockingConnection]) -> BlockingConnection:
    """A connection of pika."""
    return connect()


@pytest.fixture
def channel(connection: BlockingConnection) -> BlockingChannel:
    """A channel of pika on which publishing returns when the message is in its queues."""
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


@pytest.fixture
def name() -> str:
    """A name that nobody has used yet."""
    return f"name-{secrets.token_hex(4)}"


@pytest.fixture
def new_queue(
    channel: BlockingChannel, connect: Callable[[], BlockingConnection]
) -> Iterator[Callable[..., str]]:
    """Declare a durable queue under a name of its own; it is deleted after the test."""
    names: list[str] = []

    def new_queue(**arguments: Any) -> str:
        name = f"queue-{secrets.token_hex(4)}"
        channel.queue_declare(
            name, durable=True, arguments={key.replace("_", "-"): value for key, value in arguments.items()}
        )
        names.append(name)
        return name

    yield new_queue
    if names:
        cleaner = connect().channel()
        for name in names:
            cleaner.queue_delete(name)
