"""Requests that are served by a template, beside the same requests that are decoded."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from struct import pack
from typing import Any
from uuid import UUID

import pytest

from headrace.config import BrokerConfig, LogConfig
from headrace.kafka.client_connection import ClientConnection
from headrace.kafka.engine import Engine
from headrace.kafka.produce_shape import read_shape
from headrace.kafka.produce_template import TEMPLATES_MAX, ProduceTemplates
from headrace.kafka.services import OFFSETS_TOPIC
from headrace.log.batch import APPEND_TIME, CONTROL, TRANSACTIONAL, encode_batch
from headrace.log.partition import PartitionLog
from headrace.log.record import Record
from headrace.log.segment import Segment
from headrace.log.store import LogStore
from headrace.testing.clock import ManualClock
from headrace.testing.disk import SimulatedDisk
from headrace.testing.partition import delete_records

DATA_DIR = Path("/data")
VERSIONS = range(3, 14)
TOPIC, STAMPED, COMPACTED = "plain", "stamped", "compacted"
SETTINGS = {
    TOPIC: {"max.message.bytes": "1000", "segment.ms": "100"},
    STAMPED: {"message.timestamp.type": "LogAppendTime"},
    COMPACTED: {"cleanup.policy": "compact"},
    OFFSETS_TOPIC: {},
}


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_aborted = False

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return None if name == "socket" else ("127.0.0.1", 9_092)

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def writelines(self, parts: list[bytes]) -> None:
        self.written.append(b"".join(parts))

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


class Bench:
    """A broker in memory whose syncs happen when the test says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop, durability: Any) -> None:
        self.clock = ManualClock()
        self.disk = SimulatedDisk(self.clock)
        self.log_config = LogConfig()
        ids = random.Random(2)
        self.store = LogStore.open(
            DATA_DIR,
            self.log_config,
            self.clock,
            disk=self.disk,
            new_id=lambda: UUID(int=ids.getrandbits(128)),
        )
        for name, settings in SETTINGS.items():
            self.store.catalog.begin_creation(name, 2, settings).at_once()
        self.syncing: list[tuple[PartitionLog, ...]] = []
        self.engine = Engine(
            BrokerConfig(durability=durability),
            self.store,
            self.clock,
            loop,
            start_sync=self.syncing.append,
            submit=lambda _work, _then: None,
        )

    def connect(self) -> tuple[ClientConnection, Transport]:
        connection = self.engine.new_connection()
        transport: Any = Transport()
        connection.connection_made(transport)
        return connection, transport

    def sync(self) -> None:
        while self.syncing:
            logs = self.syncing.pop(0)
            for log in logs:
                log.sync()
            self.engine.synced(logs, None)

    def state(self) -> Any:
        """All that a request could have changed."""
        counters = self.engine.services.counters
        produced = counters.of_api(0)
        return (
            [
                (log.extent, log.size_bytes, log.producers(), [_content(each) for each in log.segments])
                for log in self.store.partitions()
            ],
            [
                (log.traffic.produced_record_count, log.traffic.produced_bytes)
                for log in self.store.partitions()
            ],
            (sum(produced.times.buckets), produced.errors),
            (counters.received_bytes, counters.sent_bytes),
            self.engine.budgets.used_bytes,
        )


def _content(segment: Segment) -> bytes:
    return segment.read(segment.base_offset, size_bytes_max=1 << 30, below_offset=segment.next_offset)


@pytest.fixture
def new_bench() -> Iterator[Callable[[str], Bench]]:
    loop = asyncio.new_event_loop()
    yield lambda durability: Bench(loop, durability)
    loop.close()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each request that was held against templates was served by one."""
    outcomes: list[bool] = []
    start = ProduceTemplates.start

    def noting(self: ProduceTemplates, frame: bytes) -> Any:
        started = start(self, frame)
        outcomes.append(started is not None)
        return started

    monkeypatch.setattr(ProduceTemplates, "start", noting)
    return outcomes


@dataclass(frozen=True, kw_only=True)
class Request:
    """A Produce request to one partition, or to one and again the same, and to others of its topic."""

    version: int = 9
    correlation_id: int = 1
    client_id: bytes | None = b"me"
    transactional_id: bytes | None = None
    acks: int = -1
    topic: bytes = TOPIC.encode()
    partition: int = 0
    records: bytes | None = b""
    tags: bytes = b"\0"
    repeats: int = 1
    others: tuple[tuple[int, bytes], ...] = ()
    rest: bytes = b""
    flipped_at: int | None = None

    def encode(self, store: LogStore) -> bytes:
        is_flexible = self.version >= 9
        tags = self.tags if is_flexible else b""
        wanted = [(self.partition, self.records)] * self.repeats + list(self.others)
        partitions = b"".join(
            pack(">i", partition) + _field(records, "i", is_flexible) + tags for partition, records in wanted
        )
        if self.version < 13:
            topic = _field(self.topic, "h", is_flexible)
        else:
            known = store.topics.get(self.topic.decode(errors="replace"))
            topic = UUID(int=7).bytes if known is None else known.topic_id.bytes
        topics = topic + _count(len(wanted), is_flexible) + partitions + tags
        body = b"".join(
            (
                pack(">hhi", 0, self.version, self.correlation_id),
                _field(self.client_id, "h", is_flexible=False),
                tags,
                _field(self.transactional_id, "h", is_flexible),
                pack(">hi", self.acks, 30_000),
                _count(1, is_flexible) + topics + tags,
                self.rest,
            )
        )
        if self.flipped_at is not None:
            damaged = bytearray(body)
            damaged[self.flipped_at] ^= 1
            body = bytes(damaged)
        return pack(">i", len(body)) + body


def _field(value: bytes | None, length_format: str, is_flexible: bool) -> bytes:
    if is_flexible:
        return b"\0" if value is None else _varint(len(value) + 1) + value
    return pack(">" + length_format, -1) if value is None else pack(">" + length_format, len(value)) + value


def _count(count: int, is_flexible: bool) -> bytes:
    return _varint(count + 1) if is_flexible else pack(">i", count)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


class Producer:
    """Batches as a producer makes them, most of them good."""

    def __init__(self, chance: random.Random, clock: ManualClock) -> None:
        self._chance = chance
        self._clock = clock
        self._sequences: dict[tuple[bytes, int, int], int] = {}
        self._last = b""

    def batch(self, topic: bytes, partition: int) -> bytes:
        chance = self._chance
        count = chance.choice((1, 1, 1, 3))
        records = [
            Record(
                timestamp_ms=self._clock.now_ms() + chance.choice((0, 0, -5, 7)),
                key=chance.choice((None, b"k")),
                value=chance.randbytes(chance.choice((0, 10, 200))),
            )
            for _ in range(count)
        ]
        if chance.random() < 0.5:
            return self._spoilt(encode_batch(records))
        producer_id = chance.randrange(2)
        place = topic, partition, producer_id
        sequence = self._sequences.get(place, 0)
        batch = encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        if chance.random() < 0.9:
            self._sequences[place] = sequence + count
        return self._spoilt(batch)

    def _spoilt(self, batch: bytes) -> bytes:
        chance = self._chance
        last, self._last = self._last, batch
        kind = chance.randrange(30)
        now_ms = self._clock.now_ms()
        at = chance.randrange(len(batch))
        attributes = chance.choice((TRANSACTIONAL, CONTROL, APPEND_TIME, TRANSACTIONAL | CONTROL, 5))
        kinds = (
            batch[:at] + bytes((batch[at] ^ 1 << chance.randrange(8),)) + batch[at + 1 :],
            batch[:at],
            batch + last,
            last or batch,
            encode_batch([Record(timestamp_ms=now_ms, key=b"k", value=b"v")], attributes=attributes),
            encode_batch([Record(timestamp_ms=now_ms + 2 * 3_600_000, key=b"k", value=b"v")]),
            encode_batch([Record(timestamp_ms=now_ms, key=b"k", value=bytes(2_000))]),
        )
        return kinds[kind] if kind < len(kinds) else batch


def _any_request(chance: random.Random, producer: Producer, version: int) -> Request:
    topic = chance.choice([name.encode() for name in SETTINGS] + [TOPIC.encode()] * 6)
    partition = chance.choice((0, 0, 0, 1))
    request = Request(
        version=version,
        correlation_id=chance.randrange(-(2**31), 2**31),
        topic=topic,
        partition=partition,
        records=producer.batch(topic, partition),
    )
    if chance.random() < 0.4:
        numbers = [chance.choice((1, 0, 1 - partition)) for _ in range(chance.choice((1, 1, 1, 2, 5)))]
        more = tuple((number, producer.batch(topic, number)) for number in numbers)
        request = replace(request, others=more)
    if chance.random() > 0.15:
        return request
    others: list[dict[str, Any]] = [
        {"client_id": chance.choice((None, b"", b"other", b"\xff"))},
        {"version": chance.choice((2, 3, 8, 9, 13, 14))},
        {"transactional_id": chance.choice((b"t", b""))},
        {"acks": chance.choice((0, 1, 1, 1, 2))},
        {"topic": chance.choice((b"", b"unknown", b"\xff"))},
        {"partition": chance.choice((-1, 2))},
        {"others": ((chance.choice((-1, 2)), request.records or b""),)},
        {
            "others": tuple(
                (number % 2, request.records or b"") for number in range(chance.choice((98, 99, 130)))
            )
        },
        {"records": chance.choice((None, b""))},
        {"tags": chance.choice((b"\1\x63\1x", b"\x80\0"))},
        {"repeats": chance.choice((0, 2))},
        {"rest": chance.choice((b"\0", b"\0\0\0", b"more"))},
        {"flipped_at": chance.randrange(-4, 0)},
    ]
    return replace(request, **chance.choice(others))


@pytest.mark.parametrize("durability", ["os", "sync"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_template_answers_and_appends_what_decoding_the_request_does(
    new_bench: Callable[[str], Bench], served: list[bool], version: int, durability: str
) -> None:
    decoding, templating = new_bench(durability), new_bench(durability)
    for seed in range(4):
        chance = random.Random(f"{version} {durability} {seed}")
        producer = Producer(chance, decoding.clock)
        connection, transport = templating.connect()
        for _ in range(150):
            request = _any_request(chance, producer, version)
            # A connection's first request is always decoded.
            expected_connection, expected = decoding.connect()
            expected_connection.data_received(request.encode(decoding.store))
            frame = request.encode(templating.store)
            cut = chance.choice((0, 0, 0, chance.randrange(len(frame))))
            for part in filter(None, (frame[:cut], frame[cut:])):
                connection.data_received(part)
            assert transport.written == expected.written
            decoding.sync()
            templating.sync()
            assert (transport.written, transport.is_aborted) == (expected.written, expected.is_aborted)
            transport.written.clear()
            expected_connection.connection_lost(None)
            if transport.is_aborted:
                connection.connection_lost(None)
                connection, transport = templating.connect()
            for bench in (decoding, templating):
                bench.clock.advance(1)
        connection.connection_lost(None)
        assert templating.state() == decoding.state()
        for bench in (decoding, templating):
            _change_topics(bench, seed)
    assert served.count(True) > 200


def _change_topics(bench: Bench, seed: int) -> None:
    if seed == 0:
        bench.store.catalog.begin_deletion(TOPIC).at_once()
        bench.store.catalog.begin_creation(TOPIC, 2, SETTINGS[TOPIC]).at_once()
    elif seed == 1:
        bench.store.catalog.begin_growth(TOPIC, 3).at_once()
    else:
        delete_records(bench.store.topics[TOPIC].partitions[0], 3)


def _request(bench: Bench, **fields: Any) -> bytes:
    record = Record(timestamp_ms=bench.clock.now_ms(), key=None, value=b"v")
    return Request(records=encode_batch([record]), **fields).encode(bench.store)


@pytest.mark.parametrize("comes_between", [True, False])
@pytest.mark.parametrize("version", [3, 13])
def test_a_template_does_not_outlive_its_topic(
    new_bench: Callable[[str], Bench], served: list[bool], version: int, comes_between: bool
) -> None:
    bench = new_bench("os")
    connection, _ = bench.connect()
    before = _request(bench, version=version)
    for _ in range(2):
        connection.data_received(before)
    assert served == [True]
    old = bench.store.topics[TOPIC].partitions[0]
    bench.store.catalog.begin_deletion(TOPIC).at_once()
    if comes_between:
        connection.data_received(before)
    bench.store.catalog.begin_creation(TOPIC, 1).at_once()
    connection.data_received(_request(bench, version=version))
    connection.data_received(_request(bench, version=version))
    new = bench.store.topics[TOPIC].partitions[0]
    assert (old.end_offset, new.end_offset) == (2, 2)
    assert served[1] is False
    assert served[-1] is True


def test_a_disk_that_fails_is_told_to_the_producer_and_to_all_who_wait(
    new_bench: Callable[[str], Bench], served: list[bool]
) -> None:
    failures = []
    for is_templated in (False, True):
        bench = new_bench("sync")
        connection, transport = bench.connect()
        connection.data_received(_request(bench))
        bench.sync()
        waiting, waited = bench.connect()
        waiting.data_received(_request(bench, topic=STAMPED.encode()))
        if not is_templated:
            connection, transport = bench.connect()
        bench.disk.fail("append")
        connection.data_received(_request(bench))
        failures.append((transport.written[-1], waited.written[-1]))
    assert failures[0] == failures[1]
    assert served == [True]


def test_requests_that_come_together_are_answered_in_their_order(
    new_bench: Callable[[str], Bench], served: list[bool]
) -> None:
    for durability in ("os", "sync"):
        bench = new_bench(durability)
        connection, transport = bench.connect()
        frames = [_request(bench, correlation_id=number) for number in range(20)]
        connection.data_received(b"".join(frames[:7]))
        connection.data_received(frames[7])
        connection.data_received(frames[8] + frames[9][:10])
        connection.data_received(frames[9][10:])
        connection.data_received(b"".join(frames[10:]))
        bench.sync()
        answers = b"".join(transport.written)
        size = len(answers) // 20
        assert [
            int.from_bytes(answers[at + 4 : at + 8], "big") for at in range(0, len(answers), size)
        ] == list(range(20))
        assert bench.engine.budgets.used_bytes == 0
    assert served.count(True) == len(served) == 38


@pytest.mark.parametrize("requests_before", [0, 1, 2])
@pytest.mark.parametrize("size", range(10))
def test_what_is_too_short_for_a_request_ends_its_connection_as_ever(
    new_bench: Callable[[str], Bench], size: int, requests_before: int
) -> None:
    bench = new_bench("os")
    connection, transport = bench.connect()
    for _ in range(requests_before):
        connection.data_received(_request(bench))
    connection.data_received(pack(">i", size) + bytes(size))
    assert transport.is_aborted
    assert len(transport.written) == requests_before


def test_a_connection_keeps_no_more_templates_than_it_may(new_bench: Callable[[str], Bench]) -> None:
    bench = new_bench("os")
    templates = ProduceTemplates(bench.engine.services)
    frames = [_request(bench, client_id=str(number).encode())[4:] for number in range(TEMPLATES_MAX + 1)]
    for frame in frames:
        templates.learn(frame)
    assert [templates.start(frame) is not None for frame in frames] == [True] * TEMPLATES_MAX + [False]


def test_no_beginning_of_a_request_has_a_shape_that_the_request_has_not(
    new_bench: Callable[[str], Bench],
) -> None:
    bench = new_bench("os")
    for version in VERSIONS:
        frame = _request(bench, version=version)[4:]
        shape = read_shape(frame)
        assert shape is not None
        assert (shape.version, shape.acks) == (version, -1)
        for end in range(len(frame)):
            assert read_shape(frame[:end]) in {None, shape}
