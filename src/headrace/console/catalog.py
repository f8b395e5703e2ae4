"""What a broker has, for the pages of topics and groups: asked when a page asks, by protocol.

Answers are kept for CACHE_S, so that many open pages ask the broker no more often than one does. Nothing is
created, committed or joined. A topic's rate is known from its second answer on.

Safe to call from several threads; one question is asked at a time.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TypeVar

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.console.client_errors import PARTITION_END, reason
from headrace.console.messages import HEADER_COUNT_MAX, TopicRecord, as_text, newest
from headrace.console.rates import GrowthWindow
from headrace.errors import BrokerUnavailable, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import Message

T = TypeVar("T")
Settings = dict[str, str | int | float | bool]

CACHE_S: Final = 1.0
REQUEST_S_MAX: Final = 5.0
READ_S_MAX: Final = 3.0
RECOUNT_S_MAX: Final = 60.0
RATE_WINDOW_S: Final = 10.0
TOPIC_COUNT_MAX: Final = 1_000
GROUP_COUNT_MAX: Final = 200
PARTITION_COUNT_MAX: Final = 64
"""Of more partitions, records of the first ones are shown."""
RECORD_COUNT_MAX: Final = 200


class KafkaCatalog:
    """Asks one broker."""

    def __init__(self, settings: Mapping[str, str | int | float | bool]) -> None:
        self._settings: Settings = dict(settings)
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None
        self._kept: dict[str, tuple[float, Any]] = {}
        self._growth: dict[str, GrowthWindow] = {}
        self._is_closed = threading.Event()

    def close(self) -> None:
        """Let whoever reads now read no further."""
        self._is_closed.set()

    def topics(self) -> list[dict[str, Any]]:
        """All topics, by name: partitions, records and how fast they grow."""
        return self._cached("topics", self._ask_topics)

    def topic(self, name: str) -> dict[str, Any]:
        """One topic, with its partitions. Raises ConfigError where there is none."""
        return self._cached(f"topic {name}", lambda: self._ask_topic(name))

    def groups(self) -> list[dict[str, Any]]:
        """The consumer groups, by name, and how far behind they are."""
        return self._cached("groups", self._ask_groups)

    def messages(self, name: str, count: int) -> list[dict[str, Any]]:
        """The newest records of a topic, newest first."""
        count = max(1, min(count, RECORD_COUNT_MAX))
        partitions = self.topic(name)["partitions"][:PARTITION_COUNT_MAX]
        starts = [
            TopicPartition(name, each["partition"], max(each["first"], each["end"] - count))
            for each in partitions
            if each["first"] < each["end"]
        ]
        found: list[TopicRecord] = []
        self._read(starts, lambda message: found.append(_record(message)), READ_S_MAX)
        return [asdict(record) for record in newest(found, count)]

    def read_all(self, name: str, take: Callable[[Message], None]) -> bool:
        """Call for each record of a topic; False where that took too long to be done."""
        partitions = self.topic(name)["partitions"]
        starts = [TopicPartition(name, each["partition"], each["first"]) for each in partitions]
        return self._read(starts, take, RECOUNT_S_MAX)

    # ---- questions

    def _cached(self, name: str, ask: Callable[[], T]) -> T:
        with self._lock:
            now_s = time.monotonic()
            self._kept = {each: kept for each, kept in self._kept.items() if now_s - kept[0] < CACHE_S}
            if name not in self._kept:
                try:
                    self._kept[name] = now_s, ask()
                except KafkaException as error:
                    raise BrokerUnavailable(reason(error.args[0]) or "the broker does not answer") from error
            answer: T = self._kept[name][1]
            return answer

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(self._settings)
        return self._admin

    def _ask_topics(self) -> list[dict[str, Any]]:
        found = self._client().list_topics(timeout=REQUEST_S_MAX).topics
        names = sorted(found)[:TOPIC_COUNT_MAX]
        places = [(name, number) for name in names for number in found[name].partitions]
        firsts, ends = (
            self._offsets(places, OffsetSpec.earliest()),
            self._offsets(places, OffsetSpec.latest()),
        )
        self._growth = {name: self._growth.get(name, _new_growth()) for name in names}
        return [self._topic_row(name, list(found[name].partitions), firsts, ends) for name in names]

    def _topic_row(
        self,
        name: str,
        partitions: list[int],
        firsts: dict[tuple[str, int], int],
        ends: dict[tuple[str, int], int],
    ) -> dict[str, Any]:
        end = sum(ends.get((name, number), 0) for number in partitions)
        growth, now_s = self._growth[name], time.monotonic()
        growth.add(now_s, end)
        per_s = growth.per_second(now_s)
        return {
            "name": name,
            "is_internal": name.startswith("__"),
            "partition_count": len(partitions),
            "record_count": end - sum(firsts.get((name, number), 0) for number in partitions),
            "per_s": None if per_s is None else round(per_s, 2),
        }

    def _ask_topic(self, name: str) -> dict[str, Any]:
        found = self._client().list_topics(timeout=REQUEST_S_MAX).topics.get(name)
        if found is None or found.error is not None:
            raise ConfigError(f"there is no topic {name}")
        places = [(name, number) for number in sorted(found.partitions)]
        firsts, ends = (
            self._offsets(places, OffsetSpec.earliest()),
            self._offsets(places, OffsetSpec.latest()),
        )
        return {
            "name": name,
            "partitions": [
                {"partition": number, "first": firsts[name, number], "end": ends[name, number]}
                for _, number in places
                if (name, number) in firsts and (name, number) in ends
            ],
        }

    def _offsets(self, places: list[tuple[str, int]], spec: OffsetSpec) -> dict[tuple[str, int], int]:
        if not places:
            return {}
        wanted = {TopicPartition(*place): spec for place in places}
        answers = self._client().list_offsets(wanted, request_timeout=REQUEST_S_MAX)
        found = {}
        for place, answer in answers.items():
            try:
                found[place.topic, place.partition] = int(_result(answer).offset)
            except KafkaException:
                # It was deleted since it was listed.
                continue
        return found

    def _ask_groups(self) -> list[dict[str, Any]]:
        admin = self._client()
        listed = _result(admin.list_consumer_groups(request_timeout=REQUEST_S_MAX)).valid
        names = sorted(group.group_id for group in listed)[:GROUP_COUNT_MAX]
        if not names:
            return []
        described = admin.describe_consumer_groups(names, request_timeout=REQUEST_S_MAX)
        committed = {name: self._committed(name) for name in names}
        places = list({place for offsets in committed.values() for place in offsets})
        ends = self._offsets(places, OffsetSpec.latest())
        return [
            {
                "name": name,
                "state": _result(described[name]).state.name.lower(),
                "members": [
                    {"client": member.client_id, "host": member.host}
                    for member in _result(described[name]).members
                ],
                "partitions": [
                    {
                        "topic": topic,
                        "partition": number,
                        "committed": offset,
                        "lag": max(0, ends[topic, number] - offset) if (topic, number) in ends else None,
                    }
                    for (topic, number), offset in sorted(committed[name].items())
                ],
            }
            for name in names
        ]

    def _committed(self, group: str) -> dict[tuple[str, int], int]:
        asked = [ConsumerGroupTopicPartitions(group)]
        answer = self._client().list_consumer_group_offsets(asked, request_timeout=REQUEST_S_MAX)[group]
        found = _result(answer).topic_partitions or []
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def _read(self, starts: list[TopicPartition], take: Callable[[Message], None], within_s: float) -> bool:
        """Read each partition from where it starts to where it ends now; False if time ran out."""
        if not starts:
            return True
        consumer = Consumer(
            {
                **self._settings,
                "group.id": "headrace-console",
                "enable.auto.commit": False,
                "allow.auto.create.topics": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
            }
        )
        deadline_s = time.monotonic() + within_s
        unfinished = {each.partition for each in starts}
        try:
            consumer.assign(starts)
            while unfinished and time.monotonic() < deadline_s and not self._is_closed.is_set():
                for message in consumer.consume(500, 0.1):
                    error = message.error()
                    if error is None:
                        take(message)
                    elif error.code() == PARTITION_END:
                        unfinished.discard(message.partition())
        finally:
            consumer.close()
        return not unfinished


def _new_growth() -> GrowthWindow:
    return GrowthWindow(window_s=RATE_WINDOW_S, fresh_s=RATE_WINDOW_S)


def _result(answer: Future[Any]) -> Any:
    try:
        return answer.result(REQUEST_S_MAX + 1)
    except TimeoutError as error:
        raise BrokerUnavailable("the broker does not answer") from error


def _record(message: Message) -> TopicRecord:
    kind, timestamp_ms = message.timestamp()
    key, value = message.key(), message.value()
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return TopicRecord(
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms if kind != TIMESTAMP_NOT_AVAILABLE else None,
        key=as_text(key),
        value=as_text(value),
        size_bytes=len(key or b"") + len(value or b""),
        headers=tuple((name[:100], as_text(content)) for name, content in _headers(message)),
    )


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    """The library's own types also allow what only producers may give it."""
    found: Any = message.headers()
    headers: list[tuple[str, bytes | None]] = found or []
    return headers[:HEADER_COUNT_MAX]
