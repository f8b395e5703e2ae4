"""Serves Produce requests that are like an earlier one of their connection without decoding them.

A producer's requests to one topic begin with the same bytes over and over, but for the correlation id:

    key, version | correlation id | client id ... topic | count, then for each partition:
    the head                        the prefix            index, length, records, [tags]

So a request that was decoded leaves a template: its head and prefix, and what they mean. One that begins with
the same bytes means the same, whoever decodes it: what remains is to append its records and to fill five
numbers per partition into an answer whose other bytes are known. With one record in a request, decoding and
encoding cost three times as much as appending.

What must hold, because a client may not be able to tell both ways apart (a test compares them):
- A template is only made of a request to one topic, with an answer, without a transaction and without tags. A
  request that is like it up to the partitions, but not as plain after that, is not served here.
- A template counts as long as its topic is the very same object: who deletes, makes or grows a topic puts
  another one in its place.
- What may be refused before the log is asked is not served here. What the log refuses is answered with what
  the handler would say.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from headrace.errors import HeadraceError
from headrace.failpoints import hit
from headrace.kafka.answer import Pending
from headrace.kafka.api import PRODUCE_KEY
from headrace.kafka.codec.frame import response_writer
from headrace.kafka.dispatch import Started
from headrace.kafka.handlers.produce import refused
from headrace.kafka.handlers.transactional_batches import ATTRIBUTES_AT
from headrace.kafka.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from headrace.kafka.produce_shape import ACKS_ALL, FLEXIBLE_FROM, PREFIX_AT, read_records, read_shape
from headrace.kafka.services import INTERNAL_TOPICS
from headrace.log.batch import CONTROL, HEADER_BYTES, TRANSACTIONAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.kafka.codec.writer import Parts
    from headrace.kafka.produce_shape import Records, Shape
    from headrace.kafka.services import Services
    from headrace.log.appending import Appended
    from headrace.log.partition import PartitionLog
    from headrace.log.topic import Topic

    _Wait = tuple[int, PartitionLog, int]
    """The place of a partition in its request, and below which offset all must be durable."""

TEMPLATES_MAX: Final = 64
"""How many a connection keeps; what is like none of them is decoded."""
START_OFFSET_FROM: Final = 5

_HEAD: Final = Struct(">hh")
_NEVER_SERVED: Final = TRANSACTIONAL | CONTROL
_SAMPLE_INDEX: Final = -0x01020304
_SAMPLE: Final = -0x0102030405060708
"""Numbers whose bytes are in no topic's name."""


class _AnswerLayout:
    """An answer in which so many partitions have taken their records."""

    __slots__ = ("_before", "_between", "_pack", "_rest", "_size")

    def __init__(self, sample: bytes, partition_count: int, *, has_start_offset: bool) -> None:
        numbers = "ihqqq" if has_start_offset else "ihqq"
        outcome = Struct(">" + numbers).pack(_SAMPLE_INDEX, 0, *[_SAMPLE] * (len(numbers) - 2))
        self._size = sample[:4]
        self._before, *between, rest = sample[8:].split(outcome)
        self._between = between[0] if between else b""
        self._rest = rest
        layout = f"{len(self._between)}s".join([numbers] * partition_count)
        self._pack = Struct(f">4s4s{len(self._before)}s{layout}{len(rest)}s").pack

    def fill(self, correlation_id: bytes, outcomes: list[tuple[int, ...]]) -> bytes:
        """The answer, with the numbers of each partition."""
        if len(outcomes) == 1:
            return self._pack(self._size, correlation_id, self._before, *outcomes[0], self._rest)
        fields: list[Any] = [self._size, correlation_id, self._before]
        for outcome in outcomes:
            fields += outcome
            fields.append(self._between)
        fields[-1] = self._rest
        return self._pack(*fields)


class ProduceTemplate:
    """What the requests to one topic have in common, and their answers."""

    __slots__ = (
        "_has_start_offset",
        "_is_flexible",
        "_layouts",
        "_topic",
        "_topic_key",
        "_topics",
        "_version",
        "head",
        "logs",
        "waits",
    )

    def __init__(self, shape: Shape, topic: Topic, topics: Mapping[Any, Topic]) -> None:
        """`topics` are those that there are, now and later."""
        self.head = _HEAD.pack(PRODUCE_KEY, shape.version)
        self.waits = shape.acks == ACKS_ALL
        """Whether requests are answered when they are durable."""
        self.logs = topic.partitions
        self._version = shape.version
        self._is_flexible = shape.version >= FLEXIBLE_FROM
        self._topics = topics
        self._topic_key = shape.topic
        self._topic = topic
        self._has_start_offset = shape.version >= START_OFFSET_FROM
        self._layouts: dict[int, _AnswerLayout] = {}

    @property
    def is_valid(self) -> bool:
        """Whether the topic is still the one of which the template was made."""
        return self._topics.get(self._topic_key) is self._topic

    def records(self, frame: bytes, position: int) -> Records | None:
        """The records of each partition, whose count is at the position, if all of it is plain."""
        found = read_records(frame, position, is_flexible=self._is_flexible)
        partition_count = len(self.logs)
        for index, records in found or ():
            if (
                not 0 <= index < partition_count
                or len(records) < HEADER_BYTES
                or records[ATTRIBUTES_AT] & _NEVER_SERVED
            ):
                return None
        return found

    def numbers(self, index: int, appended: Appended) -> tuple[int, ...]:
        """What an answer says of a partition that has taken its records."""
        base_offset, time_ms = appended.base_offset, appended.log_append_time_ms
        if self._has_start_offset:
            return index, 0, base_offset, time_ms, self.logs[index].start_offset
        return index, 0, base_offset, time_ms

    def acknowledge(self, correlation_id: bytes, outcomes: list[tuple[int, ...]]) -> ReadyAnswer:
        """The answer to a request whose records have all been appended."""
        layout = self._layouts.get(len(outcomes))
        if layout is None:
            layout = self._layouts[len(outcomes)] = self._layout(len(outcomes))
        return ReadyAnswer(layout.fill(correlation_id, outcomes))

    def refuse(
        self, correlation_id: bytes, outcomes: list[tuple[int, ...]], errors: Mapping[int, HeadraceError]
    ) -> ReadyAnswer:
        """The answer to a request some of whose records, by their place in it, are not to be relied on."""
        told = tuple(
            refused(numbers[0], errors[place]) if place in errors else _accepted(*numbers)
            for place, numbers in enumerate(outcomes)
        )
        return ReadyAnswer(self._encode(correlation_id, told), told)

    def _layout(self, partition_count: int) -> _AnswerLayout:
        sample = _accepted(_SAMPLE_INDEX, 0, _SAMPLE, _SAMPLE, _SAMPLE)
        frame = self._encode(bytes(4), (sample,) * partition_count)
        return _AnswerLayout(frame, partition_count, has_start_offset=self._has_start_offset)

    def _encode(self, correlation_id: bytes, outcomes: tuple[PartitionProduceResponse, ...]) -> bytes:
        """Any answer, as it is written for the handler."""
        key = self._topic_key
        topic = TopicProduceResponse(
            name=key if isinstance(key, str) else "",
            topic_id=key if isinstance(key, UUID) else None,
            partition_responses=outcomes,
        )
        parts = response_writer(PRODUCE_KEY, self._version).write(
            int.from_bytes(correlation_id, "big", signed=True), ProduceResponse(responses=(topic,))
        )
        return b"".join(parts)


def _accepted(
    index: int, _error_code: int, base_offset: int, log_append_time_ms: int, log_start_offset: int = -1
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )


@dataclass(slots=True)
class ReadyAnswer:
    """An answer that has been written already."""

    frame: bytes
    outcomes: tuple[PartitionProduceResponse, ...] = ()
    """What it says of each partition, where some were refused."""


class ReadyAnswerWriter:
    """Hands on what has been written."""

    __slots__ = ()

    def write(self, _correlation_id: int, answer: ReadyAnswer) -> Parts:
        """Return the frame."""
        return [answer.frame]


_WRITER: Final = ReadyAnswerWriter()


class ProduceTemplates:
    """The templates of one connection. Belongs to the event loop's thread."""

    def __init__(self, services: Services) -> None:
        self._store = services.store
        self._commit = services.commit
        self._counters = services.counters.of_api(PRODUCE_KEY)
        self._templates: dict[bytes, ProduceTemplate] = {}
        """By prefix."""
        self._prefix_ends: list[int] = []

    def learn(self, frame: bytes) -> None:
        """Take a request that has been decoded for a template, if it can be one."""
        shape = read_shape(frame)
        if shape is None:
            return
        if len(self._templates) >= TEMPLATES_MAX:
            self._forget_invalid()
            if len(self._templates) >= TEMPLATES_MAX:
                return
        by_id = isinstance(shape.topic, UUID)
        topics: Mapping[Any, Topic] = self._store.topics_by_id if by_id else self._store.topics
        topic = topics.get(shape.topic)
        if topic is None or topic.name in INTERNAL_TOPICS:
            return
        self._templates[frame[PREFIX_AT : shape.end]] = ProduceTemplate(shape, topic, topics)
        if shape.end not in self._prefix_ends:
            self._prefix_ends.append(shape.end)

    def _forget_invalid(self) -> None:
        """Make room: a topic that is gone is never written again."""
        for prefix in [prefix for prefix, template in self._templates.items() if not template.is_valid]:
            del self._templates[prefix]

    def start(self, frame: bytes) -> Started | None:
        """Start a request; None, and nothing has been done, if it is like no other."""
        for end in self._prefix_ends:
            template = self._templates.get(frame[PREFIX_AT:end])
            if template is not None:
                break
        else:
            return None
        if not frame.startswith(template.head):
            return None
        if not template.is_valid:
            del self._templates[frame[PREFIX_AT:end]]
            return None
        records = template.records(frame, end)
        if records is None:
            return None
        began_ns = perf_counter_ns()
        outcome = self._append(template, frame[4:PREFIX_AT], records)
        return Started(outcome, _WRITER, 0, self._counters, began_ns)

    def _append(
        self, template: ProduceTemplate, correlation_id: bytes, records: Records
    ) -> ReadyAnswer | Pending[ReadyAnswer]:
        outcomes: list[tuple[int, ...]] = []
        errors: dict[int, HeadraceError] = {}
        waits: list[_Wait] = []
        for index, data in records:
            log = template.logs[index]
            try:
                appended = log.append(data, size_bytes_max=log.settings.max_message_bytes)
            except HeadraceError as error:
                errors[len(outcomes)] = error
                outcomes.append((index, 0, -1, -1))
                continue
            self._commit.appended(log)
            if not appended.duplicate:
                traffic = log.traffic
                traffic.produced_record_count += appended.last_offset - appended.base_offset + 1
                traffic.produced_bytes += len(data)
            end_offset = appended.last_offset + 1
            if template.waits and not self._commit.is_durable(log, end_offset):
                waits.append((len(outcomes), log, end_offset))
            outcomes.append(template.numbers(index, appended))
        if errors and self._store.failed is not None:
            self._commit.fail(self._store.failed)
        if waits:
            return self._when_durable(template, correlation_id, outcomes, errors, waits)
        if errors:
            return template.refuse(correlation_id, outcomes, errors)
        return template.acknowledge(correlation_id, outcomes)

    def _when_durable(
        self,
        template: ProduceTemplate,
        correlation_id: bytes,
        outcomes: list[tuple[int, ...]],
        errors: dict[int, HeadraceError],
        waits: list[_Wait],
    ) -> Pending[ReadyAnswer]:
        pending: Pending[ReadyAnswer] = Pending()
        remaining = len(waits)

        def on_end(place: int, error: HeadraceError | None) -> None:
            nonlocal remaining
            remaining -= 1
            if error is not None:
                errors[place] = error
            if remaining:
                return
            hit("kafka.produce.durable")
            if errors:
                pending.resolve(template.refuse(correlation_id, outcomes, errors))
            else:
                pending.resolve(template.acknowledge(correlation_id, outcomes))

        for place, log, end_offset in waits:
            self._commit.when_durable(log, end_offset, partial(on_end, place))
        return pending
