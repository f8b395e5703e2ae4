"""The queues' numbers under Prometheus' names.

Nothing is counted here: the numbers are looked up when somebody asks, which happens on a thread. They belong
to the event loop's thread, so they are copied there in one go, and written down on the other.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from headrace.queue.amqp.refusals import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric

    from headrace.queue.metrics import QueueInfo
    from headrace.queue.server import QueueServer

COPY_S_MAX: Final = 10.0
"""How long the event loop may take to get to it."""
QUEUE: Final = ("vhost", "queue")
_GAUGES: Final = {
    "ready_count": ("messages_ready", "Messages that wait to be delivered."),
    "unacked_count": ("messages_unacknowledged", "Messages that consumers hold."),
    "delayed_count": ("messages_delayed", "Messages that were given back and wait to be tried again."),
    "ready_bytes": ("ready_bytes", "Bytes of the bodies that wait to be delivered."),
    "consumer_count": ("consumers", "Consumers of the queue."),
}
_COUNTERS: Final = {
    "published_count": ("published", "Messages that came to the queue."),
    "delivered_count": ("delivered", "Deliveries to consumers, fetched messages included."),
    "redelivered_count": ("redelivered", "Deliveries of messages that had been delivered before."),
    "acked_count": ("acknowledged", "Messages that were acknowledged."),
    "expired_count": ("expired", "Messages that got too old."),
    "dropped_count": ("dropped", "Messages that were dropped because the queue was full."),
    "dead_lettered_count": ("dead_lettered", "Messages that died and came to another queue."),
}


class QueueCollector:
    """Looks up numbers when it is asked to. Safe to use from several threads, but not on the event loop's."""

    def __init__(self, server: QueueServer) -> None:
        self._server = server

    def describe(self) -> Iterable[Metric]:
        """Nothing before it is asked for: registering must not collect."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All numbers."""
        infos = self._infos()
        yield from _clients(self._server)
        yield _gauge("queues", "Queues of all virtual hosts.", len(infos))
        alarm = self._server.broker.alarm
        yield _gauge("publishing_blocked", "1 while publishers are blocked by an alarm.", alarm is not None)
        for field, (name, documentation) in _GAUGES.items():
            gauge = GaugeMetricFamily(f"headrace_queue_{name}", documentation, labels=QUEUE)
            for info in infos:
                gauge.add_metric(_labels(info), getattr(info, field))
            yield gauge
        for field, (name, documentation) in _COUNTERS.items():
            counter = CounterMetricFamily(f"headrace_queue_{name}", documentation, labels=QUEUE)
            for info in infos:
                counter.add_metric(_labels(info), getattr(info, field))
            yield counter
        yield _dropped_dead_letters(infos)
        yield _ages(infos)

    def _infos(self) -> list[QueueInfo]:
        copied: Future[list[QueueInfo]] = Future()

        def copy() -> None:
            try:
                copied.set_result(self._server.broker.queue_infos())
            except BaseException as error:
                copied.set_exception(error)
                raise

        self._server.call_soon_threadsafe(copy)
        return copied.result(COPY_S_MAX)


def _clients(server: QueueServer) -> Iterator[Metric]:
    clients = server.clients
    yield _gauge("amqp_connections", "Open connections of AMQP.", len(clients))
    channel_count = sum(client.session.channel_count for client in clients)
    yield _gauge("amqp_channels", "Open channels of AMQP.", channel_count)
    yield _counter("amqp_connections_opened", "Connections of AMQP taken.", clients.opened_count)
    yield _counter("amqp_connections_refused", "Connections of AMQP above a limit.", clients.refused_count)
    yield _counter("amqp_received_bytes", "Bytes from clients of AMQP.", clients.received_bytes)
    yield _counter("amqp_sent_bytes", "Bytes to clients of AMQP.", clients.sent_bytes)
    logins = CounterMetricFamily(
        "headrace_amqp_logins", "Log-ins that came to their end.", labels=("mechanism", "outcome")
    )
    for (mechanism, succeeded), count in tuple(server.logins.outcomes.items()):
        logins.add_metric((mechanism, "success" if succeeded else "failure"), count)
    yield logins
    closed = CounterMetricFamily(
        "headrace_amqp_connections_closed", "Connections closed by an error, by its name.", labels=("error",)
    )
    for code, count in tuple(clients.closed_by_code.items()):
        closed.add_metric((NAMES.get(code, str(code)),), count)
    yield closed


def _dropped_dead_letters(infos: list[QueueInfo]) -> Metric:
    dropped = CounterMetricFamily(
        "headrace_queue_dead_letters_dropped",
        "Messages that died and came to no other queue, by why that is.",
        labels=(*QUEUE, "reason"),
    )
    for info in infos:
        for reason, count in info.dead_letters_dropped.items():
            dropped.add_metric((*_labels(info), reason), count)
    return dropped


def _ages(infos: list[QueueInfo]) -> Metric:
    ages = GaugeMetricFamily(
        "headrace_queue_oldest_age_seconds", "How long the oldest ready message has waited.", labels=QUEUE
    )
    for info in infos:
        if info.oldest_age_ms is not None:
            ages.add_metric(_labels(info), info.oldest_age_ms / 1000)
    return ages


def _labels(info: QueueInfo) -> tuple[str, str]:
    """Names may have bytes that are not UTF-8, which can't be written down."""
    return info.vhost, info.name.encode(errors="surrogateescape").decode(errors="replace")


def _gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(f"headrace_{name}", documentation, value=float(value))


def _counter(name: str, documentation: str, value: float) -> Metric:
    return CounterMetricFamily(f"headrace_{name}", documentation, value=float(value))
