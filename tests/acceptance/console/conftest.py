"""The page in a real browser, served by `headrace console`, fed by a real client through a real broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace import Broker
from headrace.config import Address, BrokerConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


READY_WITHIN_S = 30.0


class RestartableBroker:
    """A broker that keeps its address and its data over a stop."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with Broker(directory, config=BrokerConfig(listen=Address("127.0.0.1", 0))) as broker:
            self._config = BrokerConfig(listen=broker.address)
        self.bootstrap = str(self._config.listen)
        self._broker = Broker(directory, config=self._config)

    def start(self) -> None:
        self._broker.start()

    def stop(self) -> None:
        self._broker.stop()


class Stream:
    """Writes transactions and alerts, as a producer and a pipeline would."""

    def __init__(self, bootstrap: str) -> None:
        self._settings: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._producer = Producer({**self._settings, "linger.ms": 0})

    def create_topics(self) -> None:
        self.create("transactions", "fraud-alerts")

    def create(self, *names: str) -> None:
        admin = AdminClient(self._settings)
        for made in admin.create_topics([NewTopic(name) for name in names]).values():
            made.result(READY_WITHIN_S)

    def send(self, topic: str, *values: bytes) -> None:
        for value in values:
            self._producer.produce(topic, value)
        assert self._producer.flush(READY_WITHIN_S) == 0

    def alert(self, alert_id: str, **fields: Any) -> None:
        whole = {
            "alert_id": alert_id,
            "rule": "velocity",
            "card_id": "card-004711",
            "tx_id": f"{alert_id}-tx-2",
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "count": 7,
            "evidence": [f"{alert_id}-tx-1", f"{alert_id}-tx-2"],
            "total": 1234.5,
            "sent_at": time.time_ns() // 10**6,
        }
        self.send("fraud-alerts", json.dumps({**whole, **fields}).encode())


@contextmanager
def console_process(bootstrap: str, listen: str = "127.0.0.1:0") -> Iterator[str]:
    """`headrace console`, until the block ends; yields its URL, without the token."""
    command = [sys.executable, "-m", "headrace", "console", "--bootstrap", bootstrap, "--listen", listen]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        watchdog = threading.Timer(READY_WITHIN_S, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            url, _, token = process.stdout.readline().rpartition(" ")[2].strip().partition("/?token=")
            assert token
            yield url
            process.terminate()
            assert process.wait(READY_WITHIN_S) == 0
        finally:
            watchdog.cancel()
            process.kill()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RestartableBroker]:
    broker = RestartableBroker(tmp_path / "data")
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def stream(broker: RestartableBroker) -> Stream:
    """Both topics, empty."""
    stream = Stream(broker.bootstrap)
    stream.create_topics()
    return stream


@pytest.fixture
def console_url(broker: RestartableBroker) -> Iterator[str]:
    with console_process(broker.bootstrap) as url:
        yield url


@pytest.fixture
def run_console() -> Callable[..., Any]:
    """For tests that start and stop the console themselves."""
    return console_process
