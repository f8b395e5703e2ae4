"""The broker's numbers under Prometheus' names.

Nothing is counted here: the numbers are looked up when somebody asks. Asking happens on a thread, because a
broker with thousands of partitions has tens of thousands of numbers, and writing them down takes long. What
the event loop's thread owns is copied in one step each; numbers may be a moment older than their neighbours.

Each broker has a registry of its own, so that several in one process don't disturb each other.
"""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version
from math import inf
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder

from headrace.kafka.api import APIS
from headrace.kafka.groups.state import GroupState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import TypeVar

    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

    from headrace.kafka.engine import Engine
    from headrace.kafka.metrics.counters import Times
    from headrace.log.cleaner import CleanerCounts
    from headrace.log.partition import PartitionLog
    from headrace.log.topic import Topic

    Key = TypeVar("Key")
    Value = TypeVar("Value")
    Sample = tuple[tuple[str, ...], float]

PARTITION: Final = ("topic", "partition")


class BrokerMetrics:
    """What one broker shows. Safe to use from several threads."""

    def __init__(
        self,
        engine: Engine,
        sync_times: Times,
        cleaner_counts: CleanerCounts,
        others: Iterable[Collector] = (),
    ) -> None:
        """`others` are shown as well: those of servers beside this one."""
        self._registry = CollectorRegistry()
        self._registry.register(BrokerCollector(engine, sync_times, cleaner_counts))
        for collector in others:
            self._registry.register(collector)
        ProcessCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[str, bytes]:
        """The content type, as the client would have it, and all numbers. Takes a while."""
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)


class BrokerCollector:
    """Looks up numbers when it is asked to. Safe to use from several threads."""

    def __init__(self, engine: Engine, sync_times: Times, cleaner_counts: CleanerCounts) -> None:
        self._engine = engine
        self._services = engine.services
        self._sync_times = sync_times
        self._cleaner_counts = cleaner_counts

    def describe(self) -> Iterable[Metric]:
        """Nothing before it is asked for: registering must not collect."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All numbers."""
        yield _gauges("info", "The broker's version.", ("version",), [((version("headrace"),), 1)])
        is_writable = self._services.store.failed is None
        yield _gauge("writable", "1, or 0 once the disk has failed and no writes are taken.", is_writable)
        yield from self._requests()
        yield from self._connections()
        yield from self._topics()
        yield from self._groups()
        yield from self._transactions()
        yield from self._cleaning()
        yield _histogram(
            "sync_duration_seconds",
            "How long it takes to make appends durable.",
            (),
            [((), self._sync_times)],
        )

    def _requests(self) -> Iterator[Metric]:
        counters = self._services.counters
        requests = [(APIS[key].name, each) for key, each in _copied(counters.requests)]
        yield _histogram(
            "request_duration_seconds",
            "How long requests take until they are answered, by API; waiting for data included.",
            ("api",),
            [((name,), each.times) for name, each in requests],
        )
        errors = (
            ((name, code.name.upper()), count)
            for name, each in requests
            for code, count in _copied(each.errors)
        )
        yield _counters("request_errors", "Error codes in answers, by API.", ("api", "error"), errors)
        yield _counter("received_bytes", "Bytes from clients.", counters.received_bytes)
        yield _counter("sent_bytes", "Bytes of answers to clients.", counters.sent_bytes)

    def _connections(self) -> Iterator[Metric]:
        connections = self._engine.connections
        yield _gauge("connections", "Open connections.", len(connections))
        yield _counter("connections_opened", "Connections taken.", connections.opened_count)
        yield _counter("connections_refused", "Connections above a limit.", connections.refused_count)
        yield _gauge("in_flight_bytes", "Requests that are read or served.", self._engine.budgets.used_bytes)
        unsent_bytes = self._services.unsent_answers.size_bytes
        yield _gauge("unsent_bytes", "Answers in memory that clients have not taken yet.", unsent_bytes)
        held_files = self._services.unsent_answers.held_file_count
        given_up = self._services.counters.share_given_up
        yield _counter("share_records_given_up", "Records that share groups delivered in vain.", given_up)
        yield _gauge("unsent_files", "Files with answers that clients have not taken yet.", held_files)
        yield _gauge("parked_fetches", "Fetches that wait for data.", self._services.watchers.count)
        logins = self._services.logins
        if logins is not None:
            outcomes = (
                ((mechanism, "success" if succeeded else "failure"), count)
                for (mechanism, succeeded), count in _copied(logins.outcomes)
            )
            yield _counters("logins", "Log-ins that came to their end.", ("mechanism", "outcome"), outcomes)

    def _topics(self) -> Iterator[Metric]:
        topics = tuple(self._services.store.topics.values())
        logs = [
            ((topic.name, str(number)), log)
            for topic in topics
            for number, log in enumerate(topic.partitions)
        ]
        yield _gauge("topics", "Topics, internal ones included.", len(topics))
        yield _gauge("partitions", "Partitions of all topics.", len(logs))
        yield from _traffic(topics)
        yield from self._offsets(logs)

    def _offsets(self, logs: list[tuple[tuple[str, str], PartitionLog]]) -> Iterator[Metric]:
        commit = self._services.commit
        for name, documentation, look_up in (
            ("start_offset", "The first offset that is there.", lambda log: log.start_offset),
            ("end_offset", "The offset that the next record gets.", lambda log: log.end_offset),
            ("high_watermark", "The offset below which consumers may read.", commit.high_watermark),
            ("size_bytes", "Bytes of batches on disk.", lambda log: log.size_bytes),
        ):
            samples = [(labels, look_up(log)) for labels, log in logs]
            yield _gauges(f"partition_{name}", documentation, PARTITION, samples)

    def _cleaning(self) -> Iterator[Metric]:
        counts = self._cleaner_counts
        yield _counter("retention_deleted_bytes", "Bytes of files of deleted segments.", counts.deleted_bytes)
        yield _counter("compaction_saved_bytes", "Bytes that compaction removed.", counts.compacted_bytes)
        yield _counter(
            "cleaner_failures",
            "Retentions and compactions that failed; they are tried again.",
            counts.failures,
        )
        yield _gauge(
            "uncleanable_partitions",
            "Partitions that are not compacted, because a batch can't be read.",
            counts.uncleanable_partitions,
        )

    def _groups(self) -> Iterator[Metric]:
        coordinator = self._services.groups.coordinator
        classic, modern = _copied(coordinator.groups), _copied(coordinator.consumer_groups)
        states = Counter(group.state.value for _, group in classic)
        states.update(group.state.value for _, group in modern)
        # A group that has only offsets is empty.
        names = {name for name, _ in classic} | {name for name, _ in modern}
        states[GroupState.EMPTY.value] += len(set(coordinator.offsets) - names)
        counts = [((state,), count) for state, count in states.items()]
        yield _gauges("groups", "Consumer groups, by state.", ("state",), counts)
        share_states = Counter(group.state.value for _, group in _copied(coordinator.share_groups))
        share_counts = [((state,), count) for state, count in share_states.items()]
        yield _gauges("share_groups", "Share groups, by state.", ("state",), share_counts)
        lags = list(self._lags())
        yield _gauges("group_lag", "Records that a group has not read yet.", ("group", *PARTITION), lags)

    def _lags(self) -> Iterator[Sample]:
        """How far each group's committed offset is behind what consumers may read."""
        topics, commit = self._services.store.topics, self._services.commit
        for group_id, offsets in _copied(self._services.groups.coordinator.offsets):
            for (name, number), committed in _copied(offsets):
                topic = topics.get(name)
                if topic is not None and number < len(topic.partitions):
                    lag = commit.high_watermark(topic.partitions[number]) - committed.offset
                    yield (group_id, name, str(number)), max(0, lag)

    def _transactions(self) -> Iterator[Metric]:
        coordinator = self._services.transactions.coordinator
        states = Counter(each.state.value for each in tuple(coordinator.transactions.values()))
        counts = [((state,), count) for state, count in states.items()]
        yield _gauges("transactions", "Transactional ids, by state.", ("state",), counts)


def _traffic(topics: tuple[Topic, ...]) -> Iterator[Metric]:
    for name, documentation in (
        ("produced_record_count", "Records that producers have written, since the broker started."),
        ("produced_bytes", "Bytes of batches that producers have written, since the broker started."),
        ("fetched_bytes", "Bytes of batches that consumers have read, since the broker started."),
    ):
        samples = [
            ((topic.name,), sum(getattr(log.traffic, name) for log in topic.partitions)) for topic in topics
        ]
        metric = f"topic_{name.replace('record_count', 'records')}"
        yield _counters(metric, documentation, ("topic",), samples)


def _copied(mapping: Mapping[Key, Value]) -> tuple[tuple[Key, Value], ...]:
    """The items as they are now, whatever another thread does to the mapping meanwhile."""
    return tuple(mapping.items())


def _gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(f"headrace_{name}", documentation, value=value)


def _gauges(name: str, documentation: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> Metric:
    family = GaugeMetricFamily(f"headrace_{name}", documentation, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _counter(name: str, documentation: str, value: float) -> Metric:
    return CounterMetricFamily(f"headrace_{name}", documentation, value=value)


def _counters(name: str, documentation: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> Metric:
    family = CounterMetricFamily(f"headrace_{name}", documentation, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _histogram(
    name: str, documentation: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], Times]]
) -> Metric:
    family = HistogramMetricFamily(f"headrace_{name}", documentation, labels=labels)
    for values, times in samples:
        buckets = [("+Inf" if bound == inf else repr(bound), count) for bound, count in times.cumulative()]
        family.add_metric(values, buckets, sum_value=times.total_s)
    return family
