"""Serves Produce requests that are like an earlier one of their connection without decoding them.

A producer's requests to one partition are the same bytes over and over, but for the correlation id and the
records:

    key, version | correlation id | client id ... partition index | length | records | [tags]
    the head                        the prefix

So a request that was decoded leaves a template: its head and prefix, and what they mean. One that begins with
the same bytes means the same, whoever decodes it: what remains is to append its records and to fill four
numbers into an answer whose other bytes are known. With one record in a request, decoding and encoding cost
three times as much as appending.

What must hold, because a client may not be able to tell both ways apart (a test compares them):
- A template is only made of a request to one partition, with an answer, without a transaction and without
  tags. A request that is like it up to the records, but not as plain after them, is not served here.
- A template counts as long as its topic is the very same object: who deletes, makes or grows a topic puts
  another one in its place.
- What may be refused before the log is asked is not served here. What the log refuses is answered with what
  the handler would say.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError, ProtocolError
from headrace.failpoints import hit
from headrace.kafka.answer import Pending
from headrace.kafka.api import APIS, PRODUCE_KEY
from headrace.kafka.codec.frame import response_writer
from headrace.kafka.codec.reader import read_nullable_string, read_varint
from headrace.kafka.dispatch import Started
from headrace.kafka.handlers.produce import refused
from headrace.kafka.handlers.transactional_batches import ATTRIBUTES_AT
from headrace.kafka.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from headrace.kafka.services import INTERNAL_TOPICS
from headrace.log.batch import CONTROL, HEADER_BYTES, TRANSACTIONAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.kafka.codec.writer import Parts
    from headrace.kafka.services import Services
    from headrace.log.topic import Topic

TEMPLATES_MAX: Final = 64
"""How many a connection keeps; what is like none of them is decoded."""
FLEXIBLE_FROM: Final = 9
START_OFFSET_FROM: Final = 5
TOPIC_ID_FROM: Final = 13
PREFIX_AT: Final = 8
"""After the head and the correlation id."""
ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1

_HEAD: Final = Struct(">hh")
_START: Final = Struct(">hhii")
_FLEXIBLE_START: Final = Struct(">bbhib")
_NAME_SIZE: Final = Struct(">h")
_PARTITION: Final = Struct(">ii")
_FLEXIBLE_PARTITION: Final = Struct(">bi")
_LENGTH: Final = Struct(">i")
_NO_TAGS: Final = b"\0\0\0"
_UUID_BYTES: Final = 16
_NEVER_SERVED: Final = TRANSACTIONAL | CONTROL
_SAMPLE: Final = -0x0102030405060708
"""A number whose bytes are in no topic's name."""


class Shape(NamedTuple):
    """What a request to one partition says before its records, and where these begin with their length."""

    version: int
    acks: int
    topic: str | UUID
    partition: int
    end: int


def read_shape(frame: bytes) -> Shape | None:
    """The shape of a Produce request; None if it is not of the plain kind."""
    try:
        _, version = _HEAD.unpack_from(frame)
        if not APIS[PRODUCE_KEY].offers(version):
            return None
        _, position = read_nullable_string(frame, PREFIX_AT)
        shape = (_flexible_shape if version >= FLEXIBLE_FROM else _shape)(frame, version, position)
    except (struct_error, IndexError, UnicodeDecodeError, ProtocolError):
        return None
    return shape if shape is not None and shape.acks in {ACKS_ALL, ACKS_LEADER} else None


def _shape(frame: bytes, version: int, position: int) -> Shape | None:
    transactional_size, acks, _, topic_count = _START.unpack_from(frame, position)
    position += _START.size
    (name_size,) = _NAME_SIZE.unpack_from(frame, position)
    if (transactional_size, topic_count) != (-1, 1) or name_size < 0:
        return None
    position += _NAME_SIZE.size
    name = frame[position : position + name_size].decode()
    position += name_size
    partition_count, partition = _PARTITION.unpack_from(frame, position)
    end = position + _PARTITION.size
    return Shape(version, acks, name, partition, end) if partition_count == 1 else None


def _flexible_shape(frame: bytes, version: int, position: int) -> Shape | None:
    # A length is written as one more than it is, and nothing as 0.
    tag_count, transactional_size, acks, _, topic_count = _FLEXIBLE_START.unpack_from(frame, position)
    if (tag_count, transactional_size, topic_count) != (0, 0, 2):
        return None
    position += _FLEXIBLE_START.size
    topic: str | UUID
    if version >= TOPIC_ID_FROM:
        topic = UUID(bytes=frame[position : position + _UUID_BYTES].ljust(_UUID_BYTES, b"\0"))
        position += _UUID_BYTES
    else:
        name_size, position = read_varint(frame, position)
        name_end = position + name_size - 1
        topic = frame[position:name_end].decode()
        position = name_end
    partition_count, partition = _FLEXIBLE_PARTITION.unpack_from(frame, position)
    end = position + _FLEXIBLE_PARTITION.size
    return Shape(version, acks, topic, partition, end) if partition_count == 2 else None


class ProduceTemplate:
    """What the requests to one partition have in common, and their answers."""

    __slots__ = (
        "_after",
        "_answer",
        "_before",
        "_has_start_offset",
        "_partition",
        "_size",
        "_topic",
        "_topic_key",
        "_topics",
        "_version",
        "head",
        "is_flexible",
        "log",
        "waits",
    )

    def __init__(self, shape: Shape, topic: Topic, topics: Mapping[Any, Topic]) -> None:
        """`topics` are those that there are, now and later."""
        self.head = _HEAD.pack(PRODUCE_KEY, shape.version)
        self.is_flexible = shape.version >= FLEXIBLE_FROM
        self.waits = shape.acks == ACKS_ALL
        """Whether requests are answered when they are durable."""
        self.log = topic.partitions[shape.partition]
        self._version = shape.version
        self._partition = shape.partition
        self._topics = topics
        self._topic_key = shape.topic
        self._topic = topic
        self._has_start_offset = shape.version >= START_OFFSET_FROM
        numbers = "qqq" if self._has_start_offset else "qq"
        sample = PartitionProduceResponse(
            index=shape.partition, base_offset=_SAMPLE, log_append_time_ms=_SAMPLE, log_start_offset=_SAMPLE
        )
        frame = self._encode(bytes(4), sample)
        self._size = frame[:4]
        self._before, self._after = frame[8:].split(Struct(">" + numbers).pack(*[_SAMPLE] * len(numbers)))
        self._answer = Struct(f">4s4s{len(self._before)}s{numbers}{len(self._after)}s")

    @property
    def is_valid(self) -> bool:
        """Whether the topic is still the one of which the template was made."""
        return self._topics.get(self._topic_key) is self._topic

    def acknowledge(self, correlation_id: bytes, base_offset: int, append_time_ms: int) -> ReadyAnswer:
        """The answer to a request whose records have been appended."""
        size, before, after = self._size, self._before, self._after
        if self._has_start_offset:
            start_offset = self.log.start_offset
            frame = self._answer.pack(
                size, correlation_id, before, base_offset, append_time_ms, start_offset, after
            )
        else:
            frame = self._answer.pack(size, correlation_id, before, base_offset, append_time_ms, after)
        return ReadyAnswer(frame)

    def refuse(self, correlation_id: bytes, error: HeadraceError) -> ReadyAnswer:
        """The answer to a request whose records are not to be relied on."""
        outcome = refused(self._partition, error)
        return ReadyAnswer(self._encode(correlation_id, outcome), outcome.error_code)

    def _encode(self, correlation_id: bytes, outcome: PartitionProduceResponse) -> bytes:
        """Any answer, as it is written for the handler."""
        key = self._topic_key
        topic = TopicProduceResponse(
            name=key if isinstance(key, str) else "",
            topic_id=key if isinstance(key, UUID) else None,
            partition_responses=(outcome,),
        )
        parts = response_writer(PRODUCE_KEY, self._version).write(
            int.from_bytes(correlation_id, "big", signed=True), ProduceResponse(responses=(topic,))
        )
        return b"".join(parts)


@dataclass(slots=True)
class ReadyAnswer:
    """An answer that has been written already."""

    frame: bytes
    error_code: ErrorCode = ErrorCode.none


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
        if 0 <= shape.partition < len(topic.partitions):
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
        records = _records(frame, end, is_flexible=template.is_flexible)
        if records is None:
            return None
        began_ns = perf_counter_ns()
        outcome = self._append(template, frame[4:PREFIX_AT], records)
        return Started(outcome, _WRITER, 0, self._counters, began_ns)

    def _append(
        self, template: ProduceTemplate, correlation_id: bytes, records: memoryview
    ) -> ReadyAnswer | Pending[ReadyAnswer]:
        log = template.log
        try:
            appended = log.append(records, size_bytes_max=log.settings.max_message_bytes)
        except HeadraceError as error:
            if self._store.failed is not None:
                self._commit.fail(self._store.failed)
            return template.refuse(correlation_id, error)
        self._commit.appended(log)
        if not appended.duplicate:
            traffic = log.traffic
            traffic.produced_record_count += appended.last_offset - appended.base_offset + 1
            traffic.produced_bytes += len(records)
        answer = template.acknowledge(correlation_id, appended.base_offset, appended.log_append_time_ms)
        end_offset = appended.last_offset + 1
        if not template.waits or self._commit.is_durable(log, end_offset):
            return answer
        return self._when_durable(template, correlation_id, end_offset, answer)

    def _when_durable(
        self, template: ProduceTemplate, correlation_id: bytes, end_offset: int, answer: ReadyAnswer
    ) -> Pending[ReadyAnswer]:
        pending: Pending[ReadyAnswer] = Pending()

        def on_end(error: HeadraceError | None) -> None:
            hit("kafka.produce.durable")
            pending.resolve(answer if error is None else template.refuse(correlation_id, error))

        self._commit.when_durable(template.log, end_offset, on_end)
        return pending


def _records(frame: bytes, position: int, *, is_flexible: bool) -> memoryview | None:
    """The records, whose length is at the position, if they and what follows them are plain."""
    end = len(frame)
    if end - position < HEADER_BYTES:
        return None
    if is_flexible:
        try:
            length, position = read_varint(frame, position)
        except ProtocolError:
            return None
        length -= 1
        end -= len(_NO_TAGS)
        if not frame.endswith(_NO_TAGS):
            return None
    else:
        (length,) = _LENGTH.unpack_from(frame, position)
        position += _LENGTH.size
    if position + length != end or length < HEADER_BYTES or frame[position + ATTRIBUTES_AT] & _NEVER_SERVED:
        return None
    return memoryview(frame)[position:end]
