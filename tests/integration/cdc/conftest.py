"""A database, a broker, captures between them, and a reader that folds topics into tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from headrace.broker import Broker
from headrace.cdc.capture import Capture
from headrace.config import CaptureConfig
from headrace.postgres import EmbeddedPostgres
from headrace.postgres.programs import find_programs
from headrace.testing.failpoints import kill_at
from headrace.testing.postgres import TestDatabase, fresh_database, postgres_server
from headrace.testing.waiting import eventually

WITHIN_S = 120.0

RUN = """
import sys, json, signal
from pathlib import Path
from headrace.cdc.capture import Capture
from headrace.config import CaptureConfig, failpoints_to_arm
from headrace.failpoints import arm_all
arm_all(failpoints_to_arm())
told = json.loads(sys.argv[1])
capture = Capture(CaptureConfig(**{**told, "data_dir": Path(told["data_dir"])}))
signal.signal(signal.SIGTERM, lambda *_: capture.stop())
capture.run()
"""


@dataclass
class Event:
    """A record of a topic."""

    topic: str
    key: Any
    value: Any


class Follower:
    """Reads topics from their beginning, as a committed reader."""

    def __init__(self, bootstrap: str, *topics: str) -> None:
        self._topics = topics
        self.events: list[Event] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "follower",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "log_level": 0,
            }
        )
        self._next: dict[tuple[str, int], int] = {}

    def read(self) -> list[Event]:
        """All that is there now, what was read before included."""
        known = self._consumer.list_topics(timeout=30).topics
        for topic in self._topics:
            for number in known[topic].partitions if topic in known else ():
                self._next.setdefault((topic, number), 0)
        # Anew each time: that a partition was read to its end is told once.
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in self._next.items()])
        left = set(self._next)
        while left:
            message = self._consumer.poll(30)
            assert message is not None
            place = (str(message.topic()), int(message.partition() or 0))
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(place)
                continue
            self._next[place] = int(message.offset() or 0) + 1
            key, value = message.key(), message.value()
            self.events.append(
                Event(
                    topic=place[0],
                    key=None if key is None else json.loads(key),
                    value=None if value is None else json.loads(value),
                )
            )
        return self.events

    def table(self, topic: str, key: str = "id") -> dict[Any, dict[str, Any]]:
        """The topic folded into a table, by one column of its key."""
        rows: dict[Any, dict[str, Any]] = {}
        for event in self.read():
            if event.topic != topic:
                continue
            if event.value is not None and event.value["op"] == "t":
                rows.clear()
            elif event.value is None or event.value["op"] == "d":
                rows.pop(event.key[key], None)
            else:
                rows[event.key[key]] = event.value["after"]
        return rows

    def close(self) -> None:
        self._consumer.close()


class World:
    """A database and a broker, and what may happen between them."""

    def __init__(self, database: TestDatabase, broker: Broker, directory: Path) -> None:
        self.database = database
        self.bootstrap = broker.bootstrap
        # Slots belong to the server, which all tests share.
        self.config = CaptureConfig(
            name="shop",
            dsn=database.dsn,
            bootstrap=broker.bootstrap,
            data_dir=directory,
            slot=f"headrace_{database.execute('SELECT current_database()')[0][0]}",
            publication="shop",
            heartbeat_s=0.2,
            chunk_rows_max=50,
        )
        self._followers: list[Follower] = []

    def follow(self, *topics: str) -> Follower:
        follower = Follower(self.bootstrap, *topics)
        self._followers.append(follower)
        return follower

    @contextmanager
    def running(self, **settings: Any) -> Iterator[Capture]:
        """A capture on a thread of its own; what it fails with is raised at the end."""
        capture = Capture(replace(self.config, **settings))
        failures: list[BaseException] = []

        def run() -> None:
            try:
                capture.run()
            except BaseException as failure:  # noqa: BLE001  # raised again below
                failures.append(failure)

        thread = threading.Thread(target=run, name="capture")
        thread.start()
        try:
            yield capture
        finally:
            capture.stop()
            thread.join(WITHIN_S)
        if failures:
            raise failures[0]

    def run_to_end(self, **settings: Any) -> None:
        """A capture on this thread, which ends by itself."""
        Capture(replace(self.config, **settings)).run()

    def process(
        self, failpoint: str | None = None, *, after: int = 0, **settings: Any
    ) -> subprocess.Popen[str]:
        """A capture in a process of its own, which may kill itself at a failpoint."""
        config = replace(self.config, **settings)
        told = {name: getattr(config, name) for name in CaptureConfig.__slots__}
        environment = {} if failpoint is None else kill_at(failpoint, after=after)
        return subprocess.Popen(
            [sys.executable, "-c", RUN, json.dumps({**told, "data_dir": str(config.data_dir)})],
            env={**os.environ, **environment},
            text=True,
        )

    def await_streaming(self) -> None:
        """Return when a capture reads from the slot."""
        active = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
        eventually(lambda: self.database.execute(active, self.config.slot), "the stream", within_s=WITHIN_S)

    def drop_slot(self) -> None:
        """Drop the slot, which is in use until the server has noticed that its reader has ended."""
        in_use = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
        eventually(
            lambda: not self.database.execute(in_use, self.config.slot), "an idle slot", within_s=WITHIN_S
        )
        self.database.execute("SELECT pg_drop_replication_slot(%s)", self.config.slot)

    def eventually_equal(self, follower: Follower, topic: str, table: str) -> None:
        """The topic, folded, becomes the table."""

        def is_equal() -> bool:
            return follower.table(topic) == self.rows(table)

        eventually(
            is_equal,
            lambda: f"{topic} = {table}: {follower.table(topic)} and {self.rows(table)}",
            within_s=WITHIN_S,
        )

    def rows(self, table: str) -> dict[Any, dict[str, Any]]:
        """The table's rows, by id."""
        question = f"SELECT row_to_json(t) FROM {table} t"  # noqa: S608  # a name of the test's own
        return {row["id"]: row for (row,) in self.database.execute(question)}

    def close(self) -> None:
        for follower in self._followers:
            follower.close()


@pytest.fixture(scope="session")
def postgres_16() -> Iterator[EmbeddedPostgres]:
    """An older server, whose programs are in the same wheel."""
    with postgres_server(programs_dir=find_programs(None, 16).directory) as server:
        yield server


@pytest.fixture
def database_16(postgres_16: EmbeddedPostgres) -> Iterator[TestDatabase]:
    """A fresh database of the older server."""
    with fresh_database(postgres_16) as database:
        yield database


@pytest.fixture
def world(request: pytest.FixtureRequest, headrace_broker: Broker, tmp_path: Path) -> Iterator[World]:
    """A database and a broker, and what may happen between them.

    The server is the newest, unless a test names the fixture of another one's database.
    """
    database: TestDatabase = request.getfixturevalue(getattr(request, "param", "headrace_postgres"))
    world = World(database, headrace_broker, tmp_path)
    yield world
    world.close()
