"""A worker in a process of its own, so that it can be killed: takes events from a queue, or from a topic.

    python order_worker.py queue NAME URL JOURNAL
    python order_worker.py log NAME BOOTSTRAP JOURNAL       # NAME is the group

It writes a line to its journal for each event that it has handled: that is its work. With `--hold-at 5`,
it takes the fifth event and does nothing with it until somebody kills it.
"""

from __future__ import annotations

import argparse
import json
import signal
from pathlib import Path
from typing import Any, Final

import pika
from confluent_kafka import Consumer

QUEUE: Final = "orders"
TOPIC: Final = "orders"
COMMIT_EVERY: Final = 5
"""After so many events a reader of the log writes down how far it is."""


class Journal:
    """What a worker has done, a line each. Another process may read it meanwhile."""

    def __init__(self, path: Path, hold_at: int | None) -> None:
        self._path = path
        self._hold_at = hold_at
        self._taken_count = 0

    def take(self, event: dict[str, Any], *, redelivered: bool) -> None:
        """Handle an event, or hold it for ever."""
        self._taken_count += 1
        if self._taken_count == self._hold_at:
            self._write({"holds": event})
            signal.pause()
        self._write({"event": event, "redelivered": redelivered})

    def _write(self, line: dict[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def work_on_queue(url: str, journal: Journal) -> None:
    """Take one message at a time, and acknowledge it when it is handled."""
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.basic_qos(prefetch_count=1)
    for method, _properties, body in channel.consume(QUEUE):
        journal.take(json.loads(body), redelivered=method.redelivered)
        channel.basic_ack(method.delivery_tag)


def follow_log(group: str, bootstrap: str, journal: Journal) -> None:
    """Read from where the group was, and write down every few events how far it is."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            # One that is started again takes its own place at once; else the group waits for the dead one.
            "group.instance.id": f"{group}-1",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    count = 0
    while True:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        journal.take(json.loads(message.value() or b""), redelivered=False)
        count += 1
        if count % COMMIT_EVERY == 0:
            consumer.commit(asynchronous=False)


def main() -> None:
    """Work until killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("kind", choices=("queue", "log"))
    parser.add_argument("name")
    parser.add_argument("address")
    parser.add_argument("journal", type=Path)
    parser.add_argument("--hold-at", type=int)
    options = parser.parse_args()
    journal = Journal(options.journal, options.hold_at)
    if options.kind == "queue":
        work_on_queue(options.address, journal)
    else:
        follow_log(options.name, options.address, journal)


if __name__ == "__main__":
    main()
