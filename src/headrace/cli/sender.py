"""Sends records one after the other, at a pace, and knows which were acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from headrace.cli.record_json import Header, OutgoingRecord

FLUSH_TIMEOUT_S: Final = 30.0


class Pace:
    """Keeps to a rate on average: after a pause of the reader it does not hurry to catch up."""

    def __init__(
        self,
        per_second: float,
        *,
        now_s: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._interval_s = 1 / per_second
        self._now_s = now_s
        self._wait = wait
        self._next_s = now_s()

    def keep(self) -> None:
        """Wait until the next record is due."""
        now_s = self._now_s()
        if now_s < self._next_s:
            self._wait(self._next_s - now_s)
        self._next_s = max(self._next_s, now_s) + self._interval_s


class Sender:
    """Sends records to a topic, counts what was acknowledged, and keeps the first error."""

    def __init__(
        self,
        client: Producer,
        topic: str,
        *,
        headers: tuple[Header, ...] = (),
        partition: int | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._client = client
        self._topic = topic
        self._headers = headers
        self._partition = partition
        self._pace = pace
        self.sent_count = 0
        self.acknowledged_count = 0
        self.first_error: KafkaError | None = None

    def send_all(self, records: Iterator[OutgoingRecord], show: Callable[[int], None]) -> None:
        """Send until the records end or one can't be delivered. A bad line does not lose those before it."""
        try:
            for record in records:
                if self._pace is not None:
                    self._client.poll(0)
                    self._pace.keep()
                self._send(record)
                show(self.sent_count)
                if self.first_error is not None:
                    return
        finally:
            self._client.flush(FLUSH_TIMEOUT_S)

    def _send(self, record: OutgoingRecord) -> None:
        """Hand one record to the producer, waiting while its buffer is full."""
        options: dict[str, Any] = {"headers": [*self._headers, *record.headers]}
        partition = self._partition if self._partition is not None else record.partition
        if partition is not None:
            options["partition"] = partition
        if record.timestamp_ms is not None:
            options["timestamp"] = record.timestamp_ms
        while True:
            try:
                self._client.produce(
                    self._topic, record.value, record.key, on_delivery=self._on_delivery, **options
                )
            except BufferError:
                self._client.poll(0.1)
            else:
                self.sent_count += 1
                self._client.poll(0)
                return

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged_count += 1
        elif self.first_error is None:
            self.first_error = error
