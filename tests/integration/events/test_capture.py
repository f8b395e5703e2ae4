"""Change capture publishes events to topics in the order of their commits, which is that of positions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import Consumer, Message

from headrace.broker import Broker
from headrace.cdc.capture import Capture
from headrace.config import CaptureConfig
from headrace.events import EventStore
from headrace.testing.accounts import Deposited, Open
from headrace.testing.postgres import TestDatabase
from headrace.testing.waiting import eventually

WITHIN_S = 120.0
WRITERS, APPENDS = 5, 12
COUNT = 1 + WRITERS * APPENDS * 2


@contextmanager
def capturing(database: TestDatabase, broker: Broker, directory: Path, **settings: Any) -> Iterator[None]:
    """A capture of the events on a thread of its own."""
    (name,) = database.execute("SELECT current_database()")[0]
    capture = Capture(
        CaptureConfig(
            name="bank",
            dsn=database.dsn,
            bootstrap=broker.bootstrap,
            data_dir=directory,
            slot=f"headrace_{name}",
            publication="bank",
            heartbeat_s=0.2,
            include_tables=("headrace_events.events",),
            **settings,
        )
    )
    thread = Thread(target=capture.run)
    thread.start()
    try:
        active = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
        eventually(lambda: database.execute(active, f"headrace_{name}"), "the stream", within_s=WITHIN_S)
        yield
    finally:
        capture.stop()
        thread.join(WITHIN_S)


def consumed(broker: Broker, topic: str, count: int) -> list[Message]:
    """The first records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "topic.metadata.refresh.interval.ms": 200,
            "allow.auto.create.topics": False,
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([topic])
        found: list[Message] = []

        def is_all() -> bool:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message)
            return len(found) >= count

        eventually(is_all, lambda: f"{count} records, not {len(found)}", within_s=WITHIN_S, pause_s=0)
        return found
    finally:
        consumer.close()


def write_at_once(store: EventStore) -> None:
    """Several write at the same time."""

    def fill(writer: int) -> None:
        for _ in range(APPENDS):
            store.append(f"account-{writer}", [Deposited(amount=writer), Deposited(amount=1)])

    store.execute("account-0", Open(customer="c1", owner="Ada Lovelace"), command_id="o", actor="teller")
    with ThreadPoolExecutor(WRITERS) as threads:
        list(threads.map(fill, range(WRITERS)))


@pytest.mark.parametrize("is_outbox", [True, False])
def test_topics_have_the_events_in_the_order_of_their_commits(
    store: EventStore,
    headrace_postgres: TestDatabase,
    headrace_broker: Broker,
    tmp_path: Path,
    is_outbox: bool,
) -> None:
    settings = {"outbox_table": "headrace_events.events"} if is_outbox else {}
    topic = "outbox.event.account" if is_outbox else "bank.headrace_events.events"
    with capturing(headrace_postgres, headrace_broker, tmp_path, **settings):
        write_at_once(store)
        records = consumed(headrace_broker, topic, COUNT)

    told = [_of_outbox(each) if is_outbox else _of_table(each) for each in records]
    kept = store.journal.read_all()
    assert [each[:3] for each in told] == [(event.position, event.stream, event.version) for event in kept]
    assert [json.loads(each[3]) for each in told] == [json.loads(event.data) for event in kept]
    assert all(b"Lovelace" not in (each.value() or b"") for each in records)


def _of_outbox(record: Message) -> tuple[int, str, int, bytes]:
    given: Any = record.headers()
    headers = {name: value.decode() for name, value in given}
    key = record.key()
    assert isinstance(key, bytes)
    assert headers["type"] in {"AccountOpened", "Deposited"}
    return int(headers["position"]), key.decode(), int(headers["version"]), record.value() or b""


def _of_table(record: Message) -> tuple[int, str, int, bytes]:
    row = json.loads(record.value() or b"{}")["after"]
    return row["position"], row["aggregateid"], row["version"], row["payload"]
