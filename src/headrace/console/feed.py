"""Watches the broker: reads the alerts topic, measures the topics, and says when the broker is gone.

Threads of their own, so that a slow answer to a question never delays an alert:

    reader   owns the consumer. Assigns all partitions by hand and commits nothing: a console leaves no trace.
    meter    once a second asks where the topics end. It discovers topics and partitions, hands new ones to
             the reader through a queue, and is the judge of whether the broker answers. At the same moment
             it looks at the pipelines of the data directory.
    sampler  reads a little of the input, where the view says when its events happened.
    stores   looks at the stores that pipelines keep, and at what they follow: see stores_watch.py.
    lags     finds out how far these are behind.

Reading starts `recent_alert_count_max` records before the end of each partition, or at its beginning. What is
below the end at that moment is history: shown, but without a latency, since it lay there before the console
looked. After a broker restart the client library reconnects and goes on at its position by itself. When the
topic was made anew (another topic id, an end offset that went back, or a position that the broker no longer
knows), the meter plans the reading afresh; the reader never chooses an offset itself.

Thread safety: `start` and `stop` are called from one thread. `post` is called from all threads and waits
until the board has taken the observation, so at most one batch per thread is in flight.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition

from headrace.console.client_errors import ALL_BROKERS_DOWN, LOST_POSITION, reason
from headrace.console.decode import AlertRecord
from headrace.console.meter import Meter, Offsets, Stopped, TopicEnds, places
from headrace.console.observations import (
    BrokerLost,
    FeedFailed,
    InputSampled,
    Observation,
    RecordsRead,
    TopicsMeasured,
)
from headrace.console.pipelines import look, pipelines_of, topics_of
from headrace.console.sampler import Sampler
from headrace.console.samples import sample_of
from headrace.console.stores_watch import measure_lags, watch_stores
from headrace.console.view import plain_view
from headrace.errors import BrokerUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.clock import Clock
    from headrace.config import ConsoleConfig
    from headrace.console.view import View

MEASURE_EVERY_S: Final = 1.0
POLL_S: Final = 0.1
BATCH_RECORD_COUNT_MAX: Final = 500
TOPIC_COUNT_MAX: Final = 100
"""Of more topics that pipelines read and write, the rest is not measured."""

NO_TOPIC: Final = TopicEnds(topic_id="", ends={})

CLIENT_SETTINGS: Final[dict[str, str | int | float | bool]] = {
    "client.id": "headrace-console",
    # What the client would print to the terminal again and again, the page says in words.
    "log_level": 2,
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 1_000,
    "socket.nagle.disable": True,
}
CONSUMER_SETTINGS: Final[dict[str, str | int | float | bool]] = {
    # Required by the client, never joined: partitions are assigned by hand.
    "group.id": "headrace-console",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "allow.auto.create.topics": False,
    "auto.offset.reset": "error",
    "fetch.error.backoff.ms": 100,
}


def client_settings(config: ConsoleConfig) -> dict[str, str | int | float | bool]:
    """How the console's clients reach the broker."""
    return {**config.client_options, **CLIENT_SETTINGS, "bootstrap.servers": config.bootstrap}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where the reader begins a partition, and below which offset records are history."""

    partition: int
    first: int
    live_from: int


def starts(ends: Offsets, firsts: Offsets, record_count_max: int) -> list[Start]:
    """Begin so many records before the end of each partition, or at its beginning."""
    return [
        Start(partition=partition, first=max(firsts[partition], end - record_count_max), live_from=end)
        for partition, end in ends.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What the meter tells the reader to read."""

    starts: list[Start]
    anew: bool
    """Whether all earlier assignments are void."""


class KafkaFeed:
    """The feed of a real broker; see the top of this file."""

    def __init__(self, config: ConsoleConfig, clock: Clock, view: View | None = None) -> None:
        self._config = config
        self._clock = clock
        self._view = view or plain_view(config)
        self._settings = client_settings(config)
        self._input_ends: queue.SimpleQueue[Offsets] = queue.SimpleQueue()
        self._assignments: queue.SimpleQueue[Assignment] = queue.SimpleQueue()
        self._position_lost = threading.Event()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._post: Callable[[Observation], None]

    def start(self, post: Callable[[Observation], None]) -> None:
        """Begin to watch; `post` is called from its threads until `stop` has returned."""
        self._post = post
        works = [("reader", self._read), ("meter", self._measure)]
        if self._view.event_time is not None:
            works.append(("sampler", self._sample))
        if (data_dir := self._config.data_dir) is not None:
            works += [
                (
                    "stores",
                    lambda: watch_stores(data_dir, self._settings, CONSUMER_SETTINGS, self._stop, post),
                ),
                ("lags", lambda: measure_lags(self._config, data_dir, self._stop, post)),
            ]
        for name, work in works:
            thread = threading.Thread(
                target=self._guarded, args=(work,), name=f"headrace-console-{name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Stop watching; may be called more than once."""
        self._stop.set()
        while self._threads:
            self._threads.pop().join()

    def _guarded(self, work: Callable[[], None]) -> None:
        """A thread that ends of an error must not leave a page that looks alive."""
        try:
            work()
        except Exception as error:
            self._post(FeedFailed(reason=f"{type(error).__name__}: {error}"))
            raise

    # ---- the meter's thread

    def _measure(self) -> None:
        meter = Meter(self._settings, self._stop)
        planned = NO_TOPIC
        while not self._stop.is_set():
            try:
                planned = self._measure_once(meter, planned)
            except BrokerUnavailable as error:
                self._post(BrokerLost(reason=str(error)))
            except Stopped:
                return
            self._stop.wait(MEASURE_EVERY_S)

    def _measure_once(self, meter: Meter, planned: TopicEnds) -> TopicEnds:
        """Measure, plan what has not been planned, and return what is planned now."""
        statuses = look(self._config.data_dir) if self._config.data_dir else []
        topics = dict.fromkeys((*self._view.topics, *topics_of(statuses)))
        measured = meter.ends(tuple(topics)[:TOPIC_COUNT_MAX])
        alerts = measured.get(self._config.alerts_topic, NO_TOPIC)
        anew = self._position_lost.is_set() or (planned != NO_TOPIC and alerts.is_other_than(planned))
        unplanned = {p: end for p, end in alerts.ends.items() if anew or p not in planned.ends}
        if unplanned or anew:
            firsts = meter.firsts(self._config.alerts_topic, list(unplanned))
            self._position_lost.clear()
            new_starts = starts(unplanned, firsts, self._config.recent_alert_count_max)
            self._assignments.put(Assignment(starts=new_starts, anew=anew))
        input_end, alerts_end = (
            sum(measured[topic].ends.values()) if topic in measured else None
            for topic in (self._config.input_topic, self._config.alerts_topic)
        )
        others = {
            topic: sum(found.ends.values())
            for topic, found in measured.items()
            if topic not in {self._config.input_topic, self._config.alerts_topic}
        }
        self._post(
            TopicsMeasured(
                input_end=input_end,
                alerts_end=alerts_end,
                others=others,
                pipelines=pipelines_of(statuses, places(measured)),
            )
        )
        if self._config.input_topic in measured and self._input_ends.empty():
            self._input_ends.put(measured[self._config.input_topic].ends)
        return alerts

    # ---- the sampler's thread

    def _sample(self) -> None:
        sampler = Sampler({**self._settings, **CONSUMER_SETTINGS}, self._config.input_topic)
        try:
            while not self._stop.is_set():
                try:
                    ends = self._input_ends.get(timeout=POLL_S)
                except queue.Empty:
                    continue
                records = sampler.sample(ends)
                if records:
                    samples = tuple(sample_of(record, self._view) for record in records)
                    self._post(InputSampled(samples=samples))
        finally:
            sampler.close()

    # ---- the reader's thread

    def _read(self) -> None:
        consumer = Consumer({**self._settings, **CONSUMER_SETTINGS, "error_cb": self._on_client_error})
        live_from: dict[int, int] = {}
        try:
            while not self._stop.is_set():
                self._take_assignments(consumer, live_from)
                records = self._poll(consumer, live_from)
                if records:
                    self._post(RecordsRead(records=records))
        finally:
            consumer.close()

    def _take_assignments(self, consumer: Consumer, live_from: dict[int, int]) -> None:
        while not self._assignments.empty():
            assignment = self._assignments.get()
            if assignment.anew:
                consumer.unassign()
            live_from.update({start.partition: start.live_from for start in assignment.starts})
            if assignment.starts:
                consumer.incremental_assign(
                    [
                        TopicPartition(self._config.alerts_topic, start.partition, start.first)
                        for start in assignment.starts
                    ]
                )

    def _poll(self, consumer: Consumer, live_from: dict[int, int]) -> tuple[AlertRecord, ...]:
        """Wait for one record, then take what else is there without waiting."""
        records: list[AlertRecord] = []
        message = consumer.poll(POLL_S)
        while message is not None:
            if (error := message.error()) is None:
                records.append(self._record(message, live_from))
            else:
                self._on_partition_error(error)
            message = consumer.poll(0) if len(records) < BATCH_RECORD_COUNT_MAX else None
        return tuple(records)

    def _record(self, message: Message, live_from: dict[int, int]) -> AlertRecord:
        kind, timestamp_ms = message.timestamp()
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        return AlertRecord(
            partition=partition,
            offset=offset,
            key=message.key(),
            value=message.value(),
            timestamp_ms=timestamp_ms if kind != TIMESTAMP_NOT_AVAILABLE else None,
            received_ms=self._clock.now_ms(),
            live=offset >= live_from[partition],
        )

    def _on_partition_error(self, error: KafkaError) -> None:
        if error.code() in LOST_POSITION:
            self._position_lost.set()
        else:
            self._post(BrokerLost(reason=reason(error)))

    def _on_client_error(self, error: KafkaError) -> None:
        """Report that no broker answers at once; all else the client retries, and the meter judges."""
        if error.code() == ALL_BROKERS_DOWN:
            self._post(BrokerLost(reason=""))
