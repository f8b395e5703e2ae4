"""Brokers in this process and in others, Kafka clients, and a client that speaks raw frames."""

from __future__ import annotations

import gc
import io
import select
import socket
import struct
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kio.index import load_request_schema, load_response_schema
from kio.schema.request_header.v1.header import RequestHeader as RequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeaderV2
from kio.serial import entity_reader, entity_writer

from headrace.broker import Broker
from headrace.testing.process import BrokerProcess
from headrace.testing.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DEADLINE_S = 30.0


class Kafka:
    """confluent-kafka against one broker. Everything that it makes is closed with it."""

    def __init__(self, bootstrap: str, stack: ExitStack, **settings: Any) -> None:
        """The settings are those of all clients."""
        self.bootstrap = bootstrap
        self._stack = stack
        self._settings = {"bootstrap.servers": bootstrap, "log_level": 0, **_dotted(settings)}

    @cached_property
    def admin(self) -> AdminClient:
        """An administrator that lives as long as this: its requests would end with it."""
        return AdminClient(self._settings)

    def create_topic(self, name: str, partition_count: int = 1) -> str:
        for future in self.admin.create_topics([NewTopic(name, partition_count, 1)]).values():
            future.result(DEADLINE_S)
        return name

    def producer(self, **settings: Any) -> Producer:
        return Producer({**self._settings, "linger.ms": 1, **_dotted(settings)})

    def produce(self, topic: str, values: list[bytes], partition: int = 0, **settings: Any) -> list[int]:
        """Produce values and return their offsets; any error fails the test."""
        producer = self.producer(**settings)
        offsets: list[int] = []
        errors: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offsets.append(message.offset() or 0)
            else:
                errors.append(error)

        for value in values:
            producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
        assert producer.flush(DEADLINE_S) == 0
        assert errors == []
        return offsets

    def consumer(self, group: str = "readers", **settings: Any) -> Consumer:
        consumer = Consumer(
            {
                **self._settings,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **_dotted(settings),
            }
        )
        self._stack.callback(consumer.close)
        return consumer

    def read(self, consumer: Consumer, count: int) -> list[Message]:
        """Read so many records; fail if they don't come."""
        messages: list[Message] = []

        def read_more() -> bool:
            for message in consumer.consume(count - len(messages), 0.1):
                assert message.error() is None, message.error()
                messages.append(message)
            return len(messages) >= count

        eventually(read_more, f"reading {count} records")
        return messages


def _dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}


@dataclass
class RawClient:
    """Speaks frames, and reads them with kio: an independent witness of what goes over the wire."""

    address: tuple[str, int]

    def __post_init__(self) -> None:
        self.socket = socket.create_connection(self.address, timeout=DEADLINE_S)
        self._correlation_id = 0

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self, api_key: int, version: int, body: bytes = b"", *, client_id: str | None = "raw") -> bytes:
        self._correlation_id += 1
        is_flexible = load_request_schema(api_key, version).__flexible__
        header_type: Any = RequestHeaderV2 if is_flexible else RequestHeaderV1
        header = header_type(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id=client_id,
        )
        data = _encode(header_type, header) + body
        return struct.pack(">i", len(data)) + data

    def encode(self, entity: Any) -> bytes:
        return _encode(type(entity), entity)

    def request_frame(self, api_key: int, version: int, **fields: Any) -> bytes:
        schema: Any = load_request_schema(api_key, version)
        return self.frame(api_key, version, _encode(schema, schema(**fields)))

    def request(self, api_key: int, version: int, **fields: Any) -> Any:
        self.send(self.request_frame(api_key, version, **fields))
        return self.receive(api_key, version)

    def receive(self, api_key: int, version: int) -> Any:
        schema: Any = load_response_schema(api_key, version)
        frame = self.receive_frame()
        has_tags = schema.__header_schema__.__version__ >= 1
        return entity_reader(schema)(frame, 5 if has_tags else 4)[0]

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self.receive_exactly(4))
        return self.receive_exactly(size)

    def receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise EOFError("the broker closed the connection")
            data += chunk
        return bytes(data)

    def is_closed_by_the_broker(self) -> bool:
        """Whether the broker closes the connection; waits for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def has_something_to_read(self) -> bool:
        return bool(select.select([self.socket], [], [], 0.1)[0])

    def close(self) -> None:
        self.socket.close()


def _encode(schema: Any, entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, entity)
    return buffer.getvalue()


@pytest.fixture(autouse=True)
def clients_end_with_their_test() -> Iterator[None]:
    """Collects clients that a traceback keeps alive: else a later broker's thread might have to end them."""
    yield
    gc.collect()


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    return eventually


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker with the default durability: an acknowledgement means on disk."""
    with Broker(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def kafka(broker: Broker, stack: ExitStack) -> Kafka:
    return Kafka(broker.bootstrap, stack)


@pytest.fixture
def kafka_at(stack: ExitStack) -> Callable[..., Kafka]:
    """confluent-kafka against any broker, with settings for all of its clients."""
    return lambda bootstrap, **settings: Kafka(bootstrap, stack, **settings)


@pytest.fixture
def raw_at(stack: ExitStack) -> Callable[[str], RawClient]:
    """A raw client of any broker."""

    def connect(bootstrap: str) -> RawClient:
        host, port = bootstrap.rsplit(":", 1)
        client = RawClient((host, int(port)))
        stack.callback(client.close)
        return client

    return connect


@pytest.fixture
def raw(raw_at: Callable[[str], RawClient], broker: Broker) -> RawClient:
    return raw_at(broker.bootstrap)


@pytest.fixture
def broker_process(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "process-data") as broker:
        yield broker
