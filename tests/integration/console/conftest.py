"""A console in a thread, real clients, and a way to read a stream of events."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.config import Address, ConsoleConfig
from headrace.console.server import ConsoleServer
from headrace.testing.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from confluent_kafka import KafkaError, Message

    from headrace import Broker

WITHIN_S = 30.0


class RunningConsole:
    """A console that serves in a thread of the test's process."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.url = f"http://{address}"

    def get(self, path: str) -> Any:
        """The JSON at a path, whatever the status."""
        return httpx.get(self.url + path).json()

    def stats(self) -> Any:
        return self.get("/api/stats")

    def alerts(self) -> list[Any]:
        """The retained rows, oldest first."""
        return list(reversed(self.get("/api/alerts")["alerts"]))

    def alert_ids(self) -> list[str]:
        return [row["alert_id"] for row in self.alerts() if row["kind"] == "alert"]


@contextmanager
def running_console(config: ConsoleConfig) -> Iterator[RunningConsole]:
    server, ready, found = ConsoleServer(config), threading.Event(), list[Address]()

    def on_ready(address: Address) -> None:
        found.append(address)
        ready.set()

    thread = threading.Thread(target=server.run, args=(on_ready,))
    thread.start()
    try:
        assert ready.wait(WITHIN_S), "the console did not start"
        yield RunningConsole(found[0])
    finally:
        server.stop()
        thread.join(WITHIN_S)
    assert not thread.is_alive(), "the console did not stop"


class Topics:
    """A producer of alerts and transactions on one broker."""

    def __init__(self, bootstrap: str) -> None:
        settings: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.admin = AdminClient(settings)
        self._producer = Producer({**settings, "linger.ms": 0})

    def create(self, topic: str, partition_count: int = 1) -> None:
        made = self.admin.create_topics([NewTopic(topic, num_partitions=partition_count)])
        made[topic].result(WITHIN_S)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(WITHIN_S)

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Write the values; returns when the broker has them."""
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        for value in values:
            self._producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
        assert self._producer.flush(WITHIN_S) == 0
        assert not failures

    def alert(self, *alert_ids: str, partition: int = 0, **fields: Any) -> None:
        """Write alerts that say they were caused just now."""
        for alert_id in alert_ids:
            alert = {"alert_id": alert_id, "rule": "velocity", "sent_at": time.time_ns() // 10**6, **fields}
            self.send("fraud-alerts", json.dumps(alert).encode(), partition=partition)


@pytest.fixture
def topics(headrace_broker: Broker) -> Topics:
    """Both topics, empty, on a fresh broker."""
    topics = Topics(headrace_broker.bootstrap)
    topics.create("transactions")
    topics.create("fraud-alerts")
    return topics


@pytest.fixture
def topics_of() -> type[Topics]:
    """Make a producer for a broker."""
    return Topics


@pytest.fixture
def config(headrace_broker: Broker) -> ConsoleConfig:
    return ConsoleConfig(listen=Address("127.0.0.1", 0), bootstrap=headrace_broker.bootstrap)


@pytest.fixture(name="eventually")
def waiting() -> Callable[..., Any]:
    """Ask until the answer is true."""
    return eventually


@pytest.fixture
def console() -> Callable[[ConsoleConfig], AbstractContextManager[RunningConsole]]:
    """Run a console for a while."""
    return running_console


@pytest.fixture
def nowhere() -> ConsoleConfig:
    """A console whose broker does not exist."""
    return ConsoleConfig(listen=Address("127.0.0.1", 0), bootstrap="127.0.0.1:1")
