"""The same order events through a queue with two workers and through the log with two groups.

    python examples/queue_or_log/queue_or_log.py python examples/queue_or_log/queue_or_log.py --url
    amqp://... --bootstrap host:9092     # servers of your own

In both worlds a worker is killed with kill -9 while it works on an event. What comes again, which order
survives, and what can be read once more? The answers are counted, not claimed, and printed as a table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pika
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from order_events import order_events
from order_worker import COMMIT_EVERY, QUEUE, TOPIC

WORKER: Final = Path(__file__).with_name("order_worker.py")
WITHIN_S: Final = 120.0
QUEUE_HOLD_AT: Final = 3
LOG_HOLD_AT: Final = COMMIT_EVERY + 3
"""Some events are handled after the last commit when the reader dies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """What a worker has done, from its journal."""

    events: tuple[dict[str, Any], ...]
    redelivered_count: int

    @property
    def numbers(self) -> list[int]:
        """The events by number, in the order in which they were handled."""
        return [event["number"] for event in self.events]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOutcome:
    """What was seen at the queue."""

    first: Handled
    """The worker that was killed."""
    second: Handled
    out_of_order: tuple[str, ...]
    """Orders whose steps were not handled in turn."""
    left_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOutcome:
    """What was seen at the log."""

    billing: Handled
    """The group whose reader was killed and started again."""
    search: Handled
    again_count: int
    """How many events billing has handled twice."""
    out_of_order: tuple[str, ...]
    left_count: int
    replayed: Handled
    """A third group that comes later, and reads everything from the start."""


def through_queue(url: str, directory: Path) -> QueueOutcome:
    """Two workers share a queue; one is killed while it holds a message."""
    events = order_events()
    _publish(url, events)
    journals = [directory / "first", directory / "second"]
    with _worker("queue", "first", url, journals[0], hold_at=QUEUE_HOLD_AT) as first:
        _until(lambda: _holds(journals[0]), "the first worker holds a message")
        with _worker("queue", "second", url, journals[1]):
            # The second one does all the rest first. Only then is what the first one holds given to it.
            rest = len(events) - QUEUE_HOLD_AT
            _until(lambda: len(_read(journals[1]).events) >= rest, "the second worker has done the rest")
            first.kill()
            _until(lambda: len(_read(journals[1]).events) > rest, "it has done what the first one held")
            left_count = _left_in_queue(url)
    done = [_read(journal) for journal in journals]
    return QueueOutcome(
        first=done[0],
        second=done[1],
        out_of_order=out_of_order([*done[0].events, *done[1].events]),
        left_count=left_count,
    )


def through_log(bootstrap: str, directory: Path) -> LogOutcome:
    """Two groups read a topic; the reader of one is killed while it works on an event, and started again."""
    events = order_events()
    _produce(bootstrap, events)
    billing, search, replay = (directory / name for name in ("billing", "search", "replay"))
    with _worker("log", "search", bootstrap, search):
        with _worker("log", "billing", bootstrap, billing, hold_at=LOG_HOLD_AT) as killed:
            _until(lambda: _holds(billing), "billing holds an event")
            killed.kill()
        before = len(_read(billing).events)
        with _worker("log", "billing", bootstrap, billing):
            _until(lambda: _has_all(billing, events), "billing has handled all")
        _until(lambda: _has_all(search, events), "search has handled all")
    with _worker("log", "replay", bootstrap, replay):
        _until(lambda: _has_all(replay, events), "a new group has read all")
    done = _read(billing)
    return LogOutcome(
        billing=done,
        search=_read(search),
        again_count=len(done.events) - len(events),
        # What the second run handles again is in turn as well: it goes on from a place, not from a heap.
        out_of_order=tuple(
            sorted({*out_of_order(done.events[:before]), *out_of_order(done.events[before:])})
        ),
        left_count=_left_in_topic(bootstrap),
        replayed=_read(replay),
    )


def out_of_order(events: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Orders with a step that was handled after a later one."""
    last: dict[str, int] = {}
    found = set()
    for event in events:
        if event["step"] < last.get(event["order"], -1):
            found.add(event["order"])
        last[event["order"]] = max(event["step"], last.get(event["order"], -1))
    return tuple(sorted(found))


def table(queue: QueueOutcome, log: LogOutcome) -> str:
    """What was seen, side by side."""
    count = len(order_events())
    rows = [
        ("", "queue, two workers", "log, two groups"),
        (
            f"{count} events are handled",
            f"{len(queue.first.events)} by the first, {len(queue.second.events)} by the second worker",
            f"{len(log.search.events)} by search, {len(log.billing.events)} by billing",
        ),
        (
            "a worker is killed in mid-event",
            f"{queue.second.redelivered_count} message comes again, flagged as redelivered",
            f"{log.again_count} events since the last commit come again, not flagged",
        ),
        ("who goes on", "the other worker, at once", "the group's next reader, from the last commit"),
        (
            "orders whose steps were mixed up",
            f"{len(queue.out_of_order)}: {', '.join(queue.out_of_order) or 'none'}",
            f"{len(log.out_of_order)}: {', '.join(log.out_of_order) or 'none'}",
        ),
        ("what is left afterwards", f"{queue.left_count} messages", f"{log.left_count} records"),
        ("a new reader gets", "nothing", f"all {len(log.replayed.events)} events"),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def _publish(url: str, events: Sequence[dict[str, object]]) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare(QUEUE, durable=True)
    channel.queue_purge(QUEUE)
    channel.confirm_delivery()
    for event in events:
        properties = pika.BasicProperties(delivery_mode=2, message_id=f"event-{event['number']}")
        channel.basic_publish("", QUEUE, json.dumps(event).encode(), properties, mandatory=True)
    connection.close()


def _produce(bootstrap: str, events: Sequence[dict[str, object]]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC].result()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for event in events:
        # Events of one order have one key, so they are in one partition, where order is kept.
        producer.produce(TOPIC, json.dumps(event).encode(), str(event["order"]).encode())
    producer.flush()


def _left_in_queue(url: str) -> int:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    count: int = connection.channel().queue_declare(QUEUE, passive=True).method.message_count
    connection.close()
    return count


def _left_in_topic(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "count"})
    ranges = [consumer.get_watermark_offsets(TopicPartition(TOPIC, number)) for number in (0, 1)]
    consumer.close()
    return sum(end - first for first, end in ranges)


@contextmanager
def _worker(
    kind: str, name: str, address: str, journal: Path, *, hold_at: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    options = [] if hold_at is None else ["--hold-at", str(hold_at)]
    process = subprocess.Popen([sys.executable, str(WORKER), kind, name, address, str(journal), *options])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _lines(journal: Path) -> list[dict[str, Any]]:
    if not journal.exists():
        return []
    # The last line may be half written.
    return [json.loads(line) for line in journal.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _read(journal: Path) -> Handled:
    lines = [line for line in _lines(journal) if "event" in line]
    return Handled(
        events=tuple(line["event"] for line in lines),
        redelivered_count=sum(line["redelivered"] for line in lines),
    )


def _holds(journal: Path) -> bool:
    return any("holds" in line for line in _lines(journal))


def _has_all(journal: Path, events: Sequence[dict[str, object]]) -> bool:
    return len(set(_read(journal).numbers)) == len(events)


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise SystemExit(f"it did not happen that {what}")
        time.sleep(0.02)


def main() -> None:
    """Show both worlds side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", help="a queue server of your own, such as RabbitMQ")
    parser.add_argument("--bootstrap", help="a broker of your own, such as Kafka, without a topic `orders`")
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(headrace.Broker(amqp=True))
        queue = through_queue(options.url or broker.amqp_url, directory)
        log = through_log(options.bootstrap or broker.bootstrap, directory)
        print(table(queue, log))


if __name__ == "__main__":
    main()
