"""Fetch sessions, held against a client that names all partitions in each fetch."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from headrace.kafka.fetch_sessions import (
    EVICTION_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INT_MAX,
    NO_SESSION,
    CachedPartition,
    FetchContext,
    FetchSessions,
    Told,
    Wanted,
    next_epoch,
)
from headrace.kafka.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

Key = tuple[str, int]
STEPS = 120


def sessions(count_max: int = 10, **limits: int) -> FetchSessions:
    numbers = count(1)
    return FetchSessions(count_max, new_id=lambda: UUID(int=next(numbers)), **limits)


def topics(offsets: dict[Key, int], ids: dict[str, UUID] | None = None) -> tuple[FetchTopic, ...]:
    return tuple(
        FetchTopic(
            topic="" if ids else topic,
            topic_id=ids[topic] if ids else None,
            partitions=(FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=100),),
        )
        for (topic, number), offset in offsets.items()
    )


def forgotten(keys: Iterable[Key], ids: dict[str, UUID] | None = None) -> tuple[ForgottenTopic, ...]:
    return tuple(
        ForgottenTopic(topic="" if ids else topic, topic_id=ids[topic] if ids else None, partitions=(number,))
        for topic, number in keys
    )


def a_request(
    session_id: int = NO_SESSION,
    epoch: int = INITIAL_EPOCH,
    offsets: dict[Key, int] | None = None,
    forget: Iterable[Key] = (),
    ids: dict[str, UUID] | None = None,
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=topics(offsets or {}, ids),
        session_id=session_id,
        session_epoch=epoch,
        forgotten_topics_data=forgotten(forget, ids),
    )


def opened(sessions: FetchSessions, request: FetchRequest, now_ms: int = 0) -> FetchContext:
    context = sessions.open(request, uses_topic_ids=False, now_ms=now_ms)
    assert isinstance(context, FetchContext)
    return context


def nothing(wanted: Wanted) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition.partition, high_watermark=0, last_stable_offset=0, log_start_offset=0
    )


def created(sessions: FetchSessions, partition_count: int = 1, now_ms: int = 0) -> int:
    """A new session with so many partitions."""
    context = opened(
        sessions, a_request(offsets={("t", number): 0 for number in range(partition_count)}), now_ms
    )
    context.answer([nothing(cached.wanted) for cached in context.partitions])
    return context.session_id


class World:
    """Partitions whose records are one byte each, and what a broker reads of them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.keys = [(topic, number) for topic in "ab" for number in range(3)]
        self.logs = {key: [0, 0, b""] for key in self.keys}
        """Start, last stable offset behind the end, records."""
        self.errors: set[Key] = set()

    def change(self) -> None:
        key = self.random.choice(self.keys)
        log: Any = self.logs[key]
        what = self.random.randrange(5)
        if what <= 1:
            log[2] += self.random.randbytes(self.random.randint(1, 5))
        elif what == 2:
            log[0] = self.random.randint(log[0], len(log[2]))
        elif what == 3:
            log[1] = self.random.randint(0, 2)
        else:
            self.errors ^= {key}

    def read(self, key: Key, offset: int, room: int) -> PartitionData:
        log: Any = self.logs[key]
        start, behind, records = log
        error_code = ErrorCode.not_leader_or_follower if key in self.errors else ErrorCode.none
        if error_code is ErrorCode.none and not start <= offset <= len(records):
            error_code = ErrorCode.offset_out_of_range
        has_error = error_code is not ErrorCode.none
        return PartitionData(
            partition_index=key[1],
            error_code=error_code,
            high_watermark=-1 if has_error else len(records),
            last_stable_offset=-1 if has_error else max(start, len(records) - behind),
            log_start_offset=-1 if has_error else start,
            records=b"" if has_error else records[offset : offset + room],
        )


class Client:
    """A consumer with a session that knows what it was told."""

    def __init__(self, sessions: FetchSessions, world: World, *, ids: dict[str, UUID] | None) -> None:
        self.sessions = sessions
        self.world = world
        self.ids = ids
        self.names = {topic_id: name for name, topic_id in (ids or {}).items()}
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.offsets: dict[Key, int] = {}
        self.in_session: dict[Key, int] = {}
        self.view: dict[Key, PartitionData] = {}

    def change(self) -> None:
        random = self.world.random
        key = random.choice(self.world.keys)
        if key in self.offsets and random.random() < 0.5:
            del self.offsets[key]
        else:
            self.offsets[key] = random.randint(0, len(self.world.logs[key][2]) + 1)  # type: ignore[arg-type]  # bytes

    def key_of(self, wanted: Wanted) -> Key:
        topic = wanted.topic if wanted.topic_id is None else self.names[wanted.topic_id]
        return topic, wanted.partition.partition

    def fetch(self, now_ms: int) -> None:
        """Fetch once, and check that nothing is known otherwise than if all had been asked for."""
        is_full = self.epoch == INITIAL_EPOCH
        changed = {
            key: offset
            for key, offset in self.offsets.items()
            if is_full or self.in_session.get(key) != offset
        }
        gone = [] if is_full else [key for key in self.in_session if key not in self.offsets]
        request = a_request(self.session_id, self.epoch, changed, gone, self.ids)
        context = self.sessions.open(request, uses_topic_ids=self.ids is not None, now_ms=now_ms)
        if isinstance(context, ErrorCode):
            assert context is ErrorCode.fetch_session_id_not_found
            self.begin_anew()
            return
        wanted = [cached.wanted for cached in context.partitions]
        keys = [self.key_of(each) for each in wanted]
        asked = {key: each.partition.fetch_offset for key, each in zip(keys, wanted, strict=True)}
        assert asked == self.offsets, "what is read is what the client wants"
        room = self.world.random.randint(0, 3)
        answer = context.answer([self.read(cached, room) for cached in context.partitions])
        assert not isinstance(answer, ErrorCode)
        self.learn({self.key_of(wanted): data for wanted, data in answer}, is_full=is_full)
        expected = {key: self.world.read(key, offset, room) for key, offset in self.offsets.items()}
        assert self.view == expected
        self.session_id = context.session_id
        self.in_session = dict(self.offsets)
        self.epoch = INITIAL_EPOCH if self.session_id == NO_SESSION else next_epoch(self.epoch)
        self.consume()

    def read(self, cached: CachedPartition, room: int) -> PartitionData | None:
        """What a broker reads; mostly nothing of a partition of which it finds nothing new."""
        data = self.world.read(self.key_of(cached.wanted), cached.wanted.partition.fetch_offset, room)
        told = Told(data.high_watermark, data.last_stable_offset, data.log_start_offset)
        is_new = data.records or data.error_code is not ErrorCode.none or told != cached.told
        return data if is_new or self.world.random.random() < 0.2 else None

    def learn(self, told: dict[Key, PartitionData], *, is_full: bool) -> None:
        if is_full:
            assert set(told) == set(self.offsets), "a full fetch tells everything"
        self.view = {
            key: told.get(key) or replace(self.view[key], records=b"", error_code=ErrorCode.none)
            for key in self.offsets
        }

    def consume(self) -> None:
        for key, data in self.view.items():
            self.offsets[key] += len(data.records or b"")
            if data.error_code is ErrorCode.offset_out_of_range:
                self.offsets[key] = self.world.logs[key][0]  # type: ignore[assignment]  # the start

    def begin_anew(self) -> None:
        self.session_id = NO_SESSION if self.world.random.random() < 0.5 else self.session_id
        self.epoch = INITIAL_EPOCH


@pytest.mark.parametrize("seed", range(60))
def test_a_client_in_a_session_knows_what_it_would_know_without_one(seed: int) -> None:
    random = Random(seed)
    world = World(random)
    shared = sessions(random.randint(0, 3), partition_count_max=random.choice([8, 100]))
    ids = {"a": UUID(int=1), "b": UUID(int=2)} if random.random() < 0.5 else None
    clients = [Client(shared, world, ids=ids) for _ in range(3)]
    now_ms = 0
    for _ in range(STEPS):
        now_ms += random.choice([0, 10, EVICTION_MS // 3])
        for _ in range(random.randint(0, 3)):
            world.change()
        client = random.choice(clients)
        for _ in range(random.randint(0, 2)):
            client.change()
        if random.random() < 0.05:
            client.begin_anew()
        client.fetch(now_ms)
        assert shared.partition_count <= 100


def told(context: FetchContext, **fields: Any) -> list[int]:
    """Of which partitions the client is told, when all have the same to tell."""
    answer = context.answer([replace(nothing(cached.wanted), **fields) for cached in context.partitions])
    assert not isinstance(answer, ErrorCode)
    return [wanted.partition.partition for wanted, _ in answer]


def test_an_incremental_answer_is_empty_when_nothing_has_changed() -> None:
    shared = sessions()
    session_id = created(shared, 3)
    assert told(opened(shared, a_request(session_id, 1))) == []
    assert told(opened(shared, a_request(session_id, 2)), high_watermark=1) == [0, 1, 2]
    assert told(opened(shared, a_request(session_id, 3)), high_watermark=1) == []
    assert told(opened(shared, a_request(session_id, 4)), high_watermark=1, last_stable_offset=1) == [0, 1, 2]


def test_a_partition_that_gave_records_is_read_last_the_next_time() -> None:
    shared = sessions()
    session_id = created(shared, 3)
    context = opened(shared, a_request(session_id, 1))
    data = [nothing(cached.wanted) for cached in context.partitions]
    context.answer([replace(data[0], records=b"x"), *data[1:]])
    again = opened(shared, a_request(session_id, 2))
    assert [cached.wanted.partition.partition for cached in again.partitions] == [1, 2, 0]


def test_an_error_is_told_each_time_and_everything_is_told_after_it() -> None:
    shared = sessions()
    session_id = created(shared)
    error = {"error_code": ErrorCode.unknown_topic_or_partition}
    assert told(opened(shared, a_request(session_id, 1)), **error) == [0]
    assert told(opened(shared, a_request(session_id, 2)), **error) == [0]
    assert told(opened(shared, a_request(session_id, 3))) == [0]
    assert told(opened(shared, a_request(session_id, 4))) == []


@pytest.mark.parametrize(
    ("session_id", "epoch", "error_code"),
    [
        (1, 2, ErrorCode.invalid_fetch_session_epoch),
        (1, 5, ErrorCode.invalid_fetch_session_epoch),
        (1, -5, ErrorCode.invalid_fetch_session_epoch),
        (99, 1, ErrorCode.fetch_session_id_not_found),
        (NO_SESSION, 1, ErrorCode.fetch_session_id_not_found),
    ],
)
def test_a_fetch_of_another_session_or_epoch_is_refused(
    session_id: int, epoch: int, error_code: ErrorCode
) -> None:
    shared = sessions()
    assert created(shared) == 1
    assert shared.open(a_request(session_id, epoch), uses_topic_ids=False, now_ms=0) is error_code


def test_a_session_keeps_to_names_or_to_ids() -> None:
    shared = sessions()
    request = a_request(created(shared), 1)
    assert shared.open(request, uses_topic_ids=True, now_ms=0) is ErrorCode.fetch_session_topic_id_error


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_a_full_fetch_ends_the_session_that_it_names(epoch: int) -> None:
    shared = sessions()
    session_id = created(shared, 5)
    context = opened(shared, a_request(session_id, epoch, {("t", 0): 0}))
    assert told(context) == [0]
    assert (context.session_id == NO_SESSION) == (epoch == FINAL_EPOCH)
    assert shared.partition_count == len(shared) == (epoch == INITIAL_EPOCH)


def test_a_session_without_partitions_ends() -> None:
    shared = sessions()
    context = opened(shared, a_request(created(shared), 1, forget=[("t", 0)]))
    assert (told(context), context.session_id, len(shared)) == ([], NO_SESSION, 0)


def test_an_answer_that_another_fetch_has_overtaken_is_refused() -> None:
    shared = sessions()
    session_id = created(shared)
    late = opened(shared, a_request(session_id, 1))
    opened(shared, a_request(session_id, 2))
    assert late.answer([nothing(late.partitions[0].wanted)]) is ErrorCode.invalid_fetch_session_epoch
    assert late.session_id == NO_SESSION


def test_after_the_highest_epoch_comes_the_first() -> None:
    assert [next_epoch(0), next_epoch(1), next_epoch(INT_MAX)] == [1, 2, 1]


def test_the_session_that_was_idle_longest_makes_room() -> None:
    shared = sessions(2)
    first, second = created(shared), created(shared)
    opened(shared, a_request(first, 1), EVICTION_MS)
    assert created(shared, now_ms=EVICTION_MS) == NO_SESSION, "both are in use"
    assert created(shared, now_ms=EVICTION_MS + 1) != NO_SESSION
    found = shared.open(a_request(second, 1), uses_topic_ids=False, now_ms=EVICTION_MS + 1)
    assert found is ErrorCode.fetch_session_id_not_found


def test_an_old_session_makes_room_for_a_larger_one_but_not_for_an_equal_one() -> None:
    shared = sessions(2)
    small, large = created(shared, 1), created(shared, 5)
    for session_id in (small, large):
        opened(shared, a_request(session_id, 1), EVICTION_MS)
    assert created(shared, 1, now_ms=EVICTION_MS + 1) == NO_SESSION
    assert created(shared, 2, now_ms=EVICTION_MS + 1) != NO_SESSION
    context = shared.open(a_request(large, 2), uses_topic_ids=False, now_ms=EVICTION_MS + 1)
    assert isinstance(context, FetchContext)


def test_all_sessions_together_have_a_maximum_of_partitions() -> None:
    shared = sessions(partition_count_max=10)
    session_id = created(shared, 8)
    assert created(shared, 3) == NO_SESSION
    more = {("more", number): 0 for number in range(3)}
    context = opened(shared, a_request(session_id, 1, more))
    assert len(told(context)) == 11, "the last answer tells everything, and ends the session"
    assert (context.session_id, shared.partition_count, len(shared)) == (NO_SESSION, 0, 0)
