"""Share groups at work, on a disk that loses what was not synced, with syncs and time moved by hand."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from headrace.kafka.answer import Pending, Silence
from headrace.kafka.api import APIS
from headrace.kafka.groups import coordinator
from headrace.kafka.groups.consumer.state import ConsumerGroup
from headrace.kafka.groups.coordinator import GroupChanged
from headrace.kafka.handlers.internal_topic import needing
from headrace.kafka.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from headrace.kafka.messages.delete_groups import DeleteGroupsRequest
from headrace.kafka.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from headrace.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from headrace.kafka.messages.share_acknowledge import (
    AcknowledgementBatch as Said,
)
from headrace.kafka.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from headrace.kafka.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from headrace.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from headrace.kafka.services import SHARE_STATE_TOPIC
from headrace.kafka.share import reading
from headrace.kafka.share.records import ShareKey, encode_key
from headrace.log.batch import decode_records, encode_batch, read_header
from headrace.log.record import Record
from headrace.testing.engine_by_hand import EngineByHand

HEARTBEAT, FETCH, ACKNOWLEDGE, DESCRIBE, ALTER, DELETE = 76, 78, 79, 90, 91, 92
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
LOCK_MS = 30_000
SIZE_MAX = 1_000_000
GROUP = "workers"


class Got(NamedTuple):
    """What a member was given of one partition."""

    partition: int
    first: int
    last: int
    delivery_count: int


class Bench(EngineByHand):
    """A broker with topic `t` of two partitions, and a share group that reads it from its beginning."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.store.catalog.begin_creation("t", 2).at_once()
        self.set_group({"share.auto.offset.reset": "earliest"})
        self.epochs: dict[str, int] = {}
        self.join("m")

    def set_group(self, texts: dict[str, str]) -> None:
        """Give the group settings, beside those that it has."""
        overrides = self.store.overrides
        groups = {**overrides.groups, GROUP: {**overrides.groups.get(GROUP, {}), **texts}}
        self.store.begin_override(replace(overrides, groups=groups)).at_once()

    def fail_sync(self) -> None:
        """Have the sync fail that has been asked for."""
        (logs,) = self.syncs
        self.syncs.clear()
        self.engine.synced(logs, logs[0].fail("syncing", OSError(5, "Input/output error")))

    def join(self, member: str) -> None:
        answer = self.tell(
            HEARTBEAT,
            1,
            ShareGroupHeartbeatRequest(
                group_id=GROUP, member_id=member, member_epoch=0, subscribed_topic_names=("t",)
            ),
        )
        assert answer.error_code is ErrorCode.none, answer

    def produce(self, partition: int, *values: str, **batch: Any) -> None:
        """Write one batch, durably."""
        records = [
            Record(timestamp_ms=self.clock.now_ms(), key=None, value=value.encode()) for value in values
        ]
        log = self.store.topics["t"].partitions[partition]
        log.append(encode_batch(records, **batch), size_bytes_max=SIZE_MAX)
        self.services.commit.appended(log)
        self.settle()

    def fetch_request(
        self,
        member: str = "m",
        *,
        epoch: int | None = None,
        said: dict[int, list[tuple[int, int, int]]] | None = None,
        **fields: Any,
    ) -> ShareFetchRequest:
        """The next fetch of a member, of both partitions; `said` is first, last and type by partition."""
        if epoch is None:
            epoch = self.epochs.get(member, 0)
            self.epochs[member] = epoch + 1
        topic = self.store.topics["t"]
        wanted: dict[str, Any] = {
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_records": 500,
            "batch_size": 500,
            "forgotten_topics_data": (),
            "topics": (
                FetchTopic(
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=tuple(
                                AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=(kind,)
                                )
                                for first, last, kind in (said or {}).get(index, [])
                            ),
                        )
                        for index in range(len(topic.partitions))
                    ),
                ),
            ),
        }
        return ShareFetchRequest(
            group_id=GROUP, member_id=member, share_session_epoch=epoch, **{**wanted, **fields}
        )

    def fetch(self, member: str = "m", *, port: int = 1, **fields: Any) -> Any:
        return self.tell(FETCH, 2, self.fetch_request(member, **fields), port=port)

    def got(self, member: str = "m", **fields: Any) -> list[Got]:
        return given(self.fetch(member, **fields))

    def acknowledge(self, member: str, partition: int, *said: tuple[int, int, int], **fields: Any) -> Any:
        return self.tell(ACKNOWLEDGE, 2, self.acknowledge_request(member, partition, *said, **fields))

    def acknowledge_request(
        self,
        member: str,
        partition: int,
        *said: tuple[int, int, int],
        epoch: int | None = None,
        **fields: Any,
    ) -> ShareAcknowledgeRequest:
        if epoch is None:
            epoch = self.epochs[member]
            self.epochs[member] = epoch + 1
        batches = tuple(
            Said(first_offset=first, last_offset=last, acknowledge_types=(kind,))
            for first, last, kind in said
        )
        topics = (
            AcknowledgeTopic(
                topic_id=self.store.topics["t"].topic_id,
                partitions=(
                    AcknowledgePartition(partition_index=partition, acknowledgement_batches=batches),
                ),
            ),
        )
        return ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=member,
            share_session_epoch=epoch,
            topics=topics if said else (),
            **fields,
        )

    def start_offsets(self) -> dict[int, tuple[int, int]]:
        """By partition, where the group stands, and how much is left."""
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
        (group,) = self.tell(DESCRIBE, 1, DescribeShareGroupOffsetsRequest(groups=(asked,))).groups
        return {
            each.partition_index: (each.start_offset, each.lag)
            for topic in group.topics
            for each in topic.partitions
        }

    def leave(self, member: str = "m") -> None:
        request = ShareGroupHeartbeatRequest(group_id=GROUP, member_id=member, member_epoch=-1)
        assert self.tell(HEARTBEAT, 1, request).error_code is ErrorCode.none


def given(answer: Any) -> list[Got]:
    assert answer.error_code is ErrorCode.none, answer
    return [
        Got(partition.partition_index, each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]


def values(answer: Any) -> list[str]:
    """What is in the batches of an answer, given to the member or not."""
    found = []
    for topic in answer.responses:
        for partition in topic.partitions:
            position = 0
            while position < len(partition.records):
                size_bytes = read_header(partition.records, position).size_bytes
                batch = bytes(partition.records[position : position + size_bytes])
                found += [(record.value or b"").decode() for record in decode_records(batch)]
                position += size_bytes
    return found


def verdict(answer: Any) -> ErrorCode:
    ((partition,),) = (topic.partitions for topic in answer.responses)
    code: ErrorCode = partition.error_code
    return code


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_member_is_given_what_nobody_has_and_it_is_told_for_how_long(bench: Bench) -> None:
    bench.produce(0, "a", "b")
    bench.produce(1, "c")
    answer = bench.fetch()
    assert sorted(given(answer)) == [Got(0, 0, 1, 1), Got(1, 0, 0, 1)]
    assert sorted(values(answer)) == ["a", "b", "c"]
    assert answer.acquisition_lock_timeout_ms == LOCK_MS
    bench.join("n")
    assert bench.got("n") == []


def test_only_the_batches_are_sent_of_which_the_member_gets_something(bench: Bench) -> None:
    for value in "abcd":
        bench.produce(0, value)
    assert values(bench.fetch(max_records=2)) == ["a", "b"]
    bench.acknowledge("m", 0, (1, 1, RELEASE))
    assert values(bench.fetch(max_records=1)) == ["b"]


def test_an_acknowledgement_is_answered_when_it_is_durable(bench: Bench) -> None:
    bench.produce(0, "a", "b")
    bench.fetch()
    answer = bench.ask(ACKNOWLEDGE, 2, bench.acknowledge_request("m", 0, (0, 1, ACCEPT)))
    assert isinstance(answer, Pending)
    bench.settle()
    assert verdict(answer.response) is ErrorCode.none
    bench.crash()
    bench.produce(0, "c")
    bench.epochs.clear()
    assert bench.got() == [Got(0, 2, 2, 1)]


def test_what_was_not_acknowledged_before_a_crash_is_given_out_again(bench: Bench) -> None:
    bench.produce(0, "a", "b", "c")
    bench.fetch()
    assert verdict(bench.acknowledge("m", 0, (1, 1, ACCEPT))) is ErrorCode.none
    bench.ask(ACKNOWLEDGE, 2, bench.acknowledge_request("m", 0, (0, 0, ACCEPT)))
    bench.crash()
    bench.epochs.clear()
    assert bench.got() == [Got(0, 0, 0, 2), Got(0, 2, 2, 2)]


def test_where_a_group_begins_stays_so_though_the_broker_crashes_before_anything_is_acknowledged() -> None:
    bench = Bench()
    bench.set_group({"share.auto.offset.reset": "latest"})
    bench.produce(0, "before")
    assert bench.got() == []
    bench.crash()
    bench.produce(0, "after")
    bench.epochs.clear()
    assert bench.got() == [Got(0, 1, 1, 1)]


def test_where_a_group_begins_is_not_answered_before_it_is_durable(bench: Bench) -> None:
    answer = bench.ask(FETCH, 2, bench.fetch_request())
    assert isinstance(answer, Pending)
    assert not answer.is_resolved
    bench.settle()
    assert answer.is_resolved


def test_a_group_may_begin_at_a_time(bench: Bench) -> None:
    bench.set_group({"share.auto.offset.reset": "by_duration:PT10S"})
    bench.produce(0, "old")
    bench.advance(20_000)
    bench.produce(0, "young")
    bench.advance(5_000)
    assert bench.got() == [Got(0, 1, 1, 1)]


def test_what_is_not_acknowledged_in_time_is_given_to_others(bench: Bench) -> None:
    bench.produce(0, "a")
    bench.fetch()
    bench.join("n")
    bench.advance(LOCK_MS - 1_000)
    assert bench.got("n") == []
    bench.advance(2_000)
    bench.settle()
    assert bench.got("n") == [Got(0, 0, 0, 2)]
    late = bench.acknowledge("m", 0, (0, 0, ACCEPT))
    assert verdict(late) is ErrorCode.invalid_record_state


def test_a_lock_can_be_renewed(bench: Bench) -> None:
    bench.produce(0, "a")
    bench.fetch()
    bench.advance(LOCK_MS - 1_000)
    renewed = bench.acknowledge("m", 0, (0, 0, RENEW), is_renew_ack=True)
    assert verdict(renewed) is ErrorCode.none
    bench.advance(LOCK_MS - 1_000)
    assert verdict(bench.acknowledge("m", 0, (0, 0, ACCEPT))) is ErrorCode.none


def test_a_lock_is_renewed_only_where_that_is_said_and_allowed(bench: Bench) -> None:
    bench.produce(0, "a")
    bench.fetch()
    assert verdict(bench.acknowledge("m", 0, (0, 0, RENEW))) is ErrorCode.invalid_request
    waiting = bench.fetch(is_renew_ack=True, max_wait_ms=100, max_bytes=0, max_records=0, epoch=2)
    assert waiting.error_code is ErrorCode.invalid_request
    bench.set_group({"share.renew.acknowledge.enable": "false"})
    answer = bench.acknowledge("m", 0, (0, 0, RENEW), is_renew_ack=True)
    assert verdict(answer) is ErrorCode.invalid_record_state


def test_a_fetch_that_finds_nothing_waits_for_records(bench: Bench) -> None:
    bench.fetch()
    answer = bench.ask(FETCH, 2, bench.fetch_request(max_wait_ms=5_000, min_bytes=1))
    assert isinstance(answer, Pending)
    bench.advance(1_000)
    assert not answer.is_resolved
    bench.produce(1, "a")
    assert given(answer.response) == [Got(1, 0, 0, 1)]


def test_a_fetch_that_waits_is_answered_when_its_time_is_up(bench: Bench) -> None:
    bench.fetch()
    answer = bench.ask(FETCH, 2, bench.fetch_request(max_wait_ms=500, min_bytes=1))
    bench.advance(501)
    assert given(answer.response) == []


def test_a_fetch_that_waits_for_much_takes_what_there_is_when_its_time_is_up(bench: Bench) -> None:
    bench.produce(0, "a")
    bench.fetch(max_records=0)
    answer = bench.ask(FETCH, 2, bench.fetch_request(max_wait_ms=500, min_bytes=10_000))
    bench.settle()
    bench.advance(400)
    assert not answer.is_resolved
    bench.advance(101)
    bench.settle()
    assert given(answer.response) == [Got(0, 0, 0, 1)]


@pytest.mark.parametrize("how", ["released", "session closed", "connection lost", "lock lost"])
def test_a_fetch_that_waits_gets_what_comes_back(bench: Bench, how: str) -> None:
    bench.produce(0, "a")
    bench.fetch(port=1)
    bench.join("n")
    bench.fetch("n", port=2)
    answer = bench.ask(FETCH, 2, bench.fetch_request("n", max_wait_ms=60_000, min_bytes=1), port=2)
    if how == "released":
        bench.acknowledge("m", 0, (0, 0, RELEASE))
    elif how == "session closed":
        bench.acknowledge("m", 0, epoch=-1)
    elif how == "connection lost":
        bench.services.shares.connection_lost("127.0.0.1:1")
    else:
        bench.advance(LOCK_MS + 1)
    bench.settle()
    if how in {"session closed", "connection lost"}:
        assert not answer.is_resolved, "a moment later"
        bench.advance(251)
        bench.settle()
    assert given(answer.response) == [Got(0, 0, 0, 2)]


def test_a_fetch_that_nobody_waits_for_any_more_takes_nothing(bench: Bench) -> None:
    bench.fetch()
    answer = bench.ask(FETCH, 2, bench.fetch_request(max_wait_ms=5_000, min_bytes=1))
    answer.abandon()
    bench.services.shares.connection_lost("127.0.0.1:1")
    bench.produce(0, "a")
    bench.join("n")
    assert bench.got("n") == [Got(0, 0, 0, 1)]


def test_those_who_wait_are_told_when_all_of_an_answer_is_taken_in(bench: Bench) -> None:
    for partition in (0, 1):
        bench.produce(partition, "a", "b", "c")
    bench.fetch()
    bench.join("n")
    bench.fetch("n", port=2)
    waiting = bench.ask(FETCH, 2, bench.fetch_request("n", max_wait_ms=60_000, min_bytes=500), port=2)
    bench.produce(1, "d", "e")
    assert not waiting.is_resolved
    bench.fetch(said={0: [(0, 2, RELEASE)], 1: [(0, 2, ACCEPT)]}, max_records=0)
    bench.settle()
    told = given(waiting.response) if waiting.is_resolved else []
    bench.join("o")
    assert not set(told) & set(bench.got("o"))


def test_members_that_wait_together_are_each_given_something_else_and_nobody_else_anything(
    bench: Bench,
) -> None:
    """A marker that one of them passes over wakes the others while the first is being served."""
    waiting = []
    for member in "mno":
        bench.join(member)
        bench.fetch(member)
        request = bench.fetch_request(member, max_wait_ms=5_000, min_bytes=1, max_records=1)
        waiting.append(bench.ask(FETCH, 2, request))
    log = bench.store.topics["t"].partitions[0]
    log.append_marker(5, 0, commits=True)
    for value in "abcdef":
        record = Record(timestamp_ms=0, key=None, value=value.encode())
        log.append(encode_batch([record]), size_bytes_max=SIZE_MAX)
    bench.services.commit.appended(log)
    bench.settle()
    told = [each for answer in waiting for each in given(answer.response)]
    assert sorted(told) == [Got(0, 1, 1, 1), Got(0, 2, 2, 1), Got(0, 3, 3, 1)]
    held = [run for each in bench.services.shares.of_group(GROUP).values() for run in each.runs]
    assert sum(run.offset_count for run in held if run.member_id) == len(told)
    assert bench.services.watchers.count == 0


class Crowd:
    """Members that fetch, wait, speak of several partitions at once, go, and come back, at random."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.bench = Bench()
        self.members = ["m", "n", "o"]
        for member in self.members[1:]:
            self.bench.join(member)
        self.waiting: dict[str, Any] = {}
        """By member, what it waits for."""
        self.held: dict[tuple[int, int], str] = {}
        """By partition and offset, who has been told that it has it."""
        self.sequences: dict[tuple[int, int], int] = {}

    def step(self) -> None:
        member = self.chance.choice(self.members)
        actions = (self.produce, self.end_transaction, self.fetch, self.fetch, self.fetch, self.wait, self.go)
        self.chance.choice(actions)(member)
        self.bench.settle()
        self.check()

    def produce(self, _member: str) -> None:
        self.bench.produce(self.chance.randrange(2), *"ab"[: self.chance.randrange(1, 3)])

    def end_transaction(self, _member: str) -> None:
        place = partition, producer = self.chance.randrange(2), self.chance.randrange(2)
        own: dict[str, Any] = {"producer_id": 7 + producer, "producer_epoch": 0, "attributes": 0x10}
        sequence = self.sequences.get(place, 0)
        self.bench.produce(partition, "x", base_sequence=sequence, **own)
        self.sequences[place] = sequence + 1
        log = self.bench.store.topics["t"].partitions[partition]
        log.append_marker(7 + producer, 0, commits=self.chance.random() < 0.5)
        self.bench.services.commit.appended(log)

    def fetch(self, member: str) -> None:
        if member in self.waiting:
            return
        request = self.bench.fetch_request(
            member,
            said=self.words(member) if member in self.bench.epochs else {},
            max_wait_ms=self.chance.choice((0, 2_000)),
            min_bytes=self.chance.choice((1, 200)),
            max_records=self.chance.choice((1, 2, 500)),
            share_acquire_mode=self.chance.randrange(2),
        )
        self.waiting[member] = self.bench.ask(FETCH, 2, request, port=self.port(member))

    def words(self, member: str) -> dict[int, list[tuple[int, int, int]]]:
        """What a member says of some of what it has."""
        words: dict[int, list[tuple[int, int, int]]] = {}
        for partition, offset in sorted(place for place, owner in self.held.items() if owner == member):
            if self.chance.random() < 0.6:
                kind = self.chance.choice((ACCEPT, ACCEPT, RELEASE, REJECT))
                words.setdefault(partition, []).append((offset, offset, kind))
        return words

    def wait(self, _member: str) -> None:
        self.bench.advance(self.chance.choice((500, 3_000, LOCK_MS + 1)))

    def go(self, member: str) -> None:
        answer = self.waiting.pop(member, None)
        if isinstance(answer, Pending):
            answer.abandon()
        self.bench.services.shares.connection_lost(f"127.0.0.1:{self.port(member)}")
        self.bench.epochs.pop(member, None)

    def port(self, member: str) -> int:
        return self.members.index(member) + 1

    def check(self) -> None:
        """What members have been told is what they have."""
        told: list[tuple[int, int]] = []
        for member, answer in tuple(self.waiting.items()):
            if isinstance(answer, Pending) and not answer.is_resolved:
                continue
            del self.waiting[member]
            for each in given(answer.response if isinstance(answer, Pending) else answer):
                places = [(each.partition, offset) for offset in range(each.first, each.last + 1)]
                told += places
                self.held |= dict.fromkeys(places, member)
        now = {
            (key.partition, offset): run.member_id
            for key, deliveries in self.bench.services.shares.of_group(GROUP).items()
            for run in deliveries.runs
            if run.member_id
            for offset in range(run.first, run.last + 1)
        }
        assert len(told) == len(set(told)), "two members were given the same"
        assert now.items() <= self.held.items(), "somebody has what nobody was given"
        assert set(told) <= now.keys(), "somebody was given what it has not got"
        self.held = {place: owner for place, owner in self.held.items() if now.get(place) == owner}


@pytest.mark.parametrize("seed", range(150))
def test_what_members_are_told_is_what_they_have(seed: int) -> None:
    crowd = Crowd(seed)
    for _ in range(60):
        crowd.step()


def parked(bench: Bench, members: str, **fields: Any) -> list[Any]:
    """Members that wait for records, each on a connection of its own."""
    waiting = []
    for port, member in enumerate(members, start=10):
        bench.join(member)
        bench.fetch(member, port=port, max_records=0)
        request = bench.fetch_request(member, max_wait_ms=60_000, **{"min_bytes": 1, **fields})
        waiting.append(bench.ask(FETCH, 2, request, port=port))
    return waiting


def test_members_that_go_together_cost_a_record_one_try(bench: Bench) -> None:
    bench.produce(0, "a")
    bench.fetch(port=1)
    waiting = parked(bench, "nopqrs")
    for port, answer in [(1, None), *enumerate(waiting, start=10)]:
        if answer is not None:
            answer.abandon()
        bench.services.shares.connection_lost(f"127.0.0.1:{port}")
        bench.settle()
    bench.advance(1_000)
    bench.epochs.clear()
    assert bench.got() == [Got(0, 0, 0, 2)]


def test_a_broker_that_stops_gives_nothing_out_and_keeps_no_timers(bench: Bench) -> None:
    bench.produce(0, "a")
    bench.fetch(port=1)
    waiting = parked(bench, "nopqrs")
    bench.engine.stop()
    for port in (1, *range(10, 16)):
        bench.services.shares.connection_lost(f"127.0.0.1:{port}")
    bench.settle()
    assert not any(answer.is_resolved for answer in waiting)
    bench.crash()
    bench.epochs.clear()
    assert bench.got() == [Got(0, 0, 0, 1)], "no try was written down"


def test_one_record_is_no_reason_for_all_who_wait_to_look(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = parked(bench, "nopqrstu")
    looks: list[reading.ShareReading] = []
    read = reading.ShareReading.read

    def counted(self: reading.ShareReading) -> reading.ShareReading:
        looks.append(self)
        return read(self)

    monkeypatch.setattr(reading.ShareReading, "read", counted)
    bench.produce(0, "a")
    assert sum(answer.is_resolved for answer in waiting) == 1
    assert len(looks) == 1
    bench.produce(0, "b")
    assert [given(answer.response) for answer in waiting[:2]] == [[Got(0, 0, 0, 1)], [Got(0, 1, 1, 1)]]


def test_what_comes_back_behind_something_else_wakes_whoever_waits_for_more(bench: Bench) -> None:
    bench.produce(0, "a" * 300)
    bench.produce(0, "b" * 300)
    bench.fetch()
    bench.acknowledge("m", 0, (0, 0, RELEASE))
    (waiting,) = parked(bench, "n", min_bytes=600)
    bench.acknowledge("m", 0, (1, 1, RELEASE))
    assert waiting.is_resolved


def test_a_position_beyond_a_log_that_has_lost_its_end_goes_back_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(durability="os")
    bench.produce(0, "a")
    bench.produce(0, "b")
    bench.fetch()
    bench.acknowledge("m", 0, (0, 1, ACCEPT))
    bench.store.topics["t"].partitions[0].sync()
    bench.produce(0, "lost")
    bench.fetch()
    bench.acknowledge("m", 0, (2, 2, ACCEPT))
    for name in (SHARE_STATE_TOPIC, "__consumer_offsets"):
        bench.store.topics[name].partitions[0].sync()
    bench.disk.crash(Random(1))
    bench.open()
    assert bench.store.topics["t"].partitions[0].end_offset == 2, "what this seed loses"
    bench.produce(0, "new")
    bench.epochs.clear()
    assert bench.got() == [Got(0, 2, 2, 1)]
    assert "goes back to offset 2" in caplog.text


def test_a_group_id_that_no_record_can_hold_is_refused(bench: Bench) -> None:
    name = "g" * 40_000
    assert alter(bench, name).error_code is ErrorCode.invalid_group_id
    request = ShareGroupHeartbeatRequest(
        group_id=name, member_id="m", member_epoch=0, subscribed_topic_names=("t",)
    )
    assert bench.tell(HEARTBEAT, 1, request).error_code is ErrorCode.invalid_request


def test_a_mistake_in_a_handler_that_has_waited_for_its_topic_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    handler = APIS[FETCH].handled_by(needing(SHARE_STATE_TOPIC, lambda *_: 1 / 0))
    monkeypatch.setitem(APIS, FETCH, handler)
    assert bench.ask(FETCH, 2, bench.fetch_request()) is Silence.CLOSE
    assert "ZeroDivisionError" in caplog.text


def test_whoever_goes_while_its_group_begins_leaves_nothing_behind(bench: Bench) -> None:
    answer = bench.ask(FETCH, 2, bench.fetch_request(max_wait_ms=5_000, min_bytes=1))
    answer.abandon()
    bench.settle()
    assert bench.services.watchers.count == 0


def test_a_client_that_goes_before_the_topic_of_positions_is_there_opens_no_session() -> None:
    bench = Bench()
    begun: list[Any] = []
    bench.services.topics._submit = lambda work, then: begun.append((work, then))
    answer = bench.ask(FETCH, 2, bench.fetch_request())
    answer.abandon()
    for work, then in begun:
        work()
        then()
    assert len(bench.services.shares.sessions) == 0


def test_acknowledgements_may_come_with_a_fetch(bench: Bench) -> None:
    bench.produce(0, "a", "b")
    bench.fetch()
    bench.produce(0, "c")
    answer = bench.fetch(said={0: [(0, 0, ACCEPT), (1, 1, RELEASE)]})
    assert given(answer) == [Got(0, 1, 1, 2), Got(0, 2, 2, 1)]
    answer = bench.fetch(said={0: [(7, 7, ACCEPT)]})
    ((partition,),) = (topic.partitions for topic in answer.responses)
    assert partition.acknowledge_error_code == ErrorCode.invalid_request.value
    assert "past acquired records" in partition.acknowledge_error_message


def test_the_last_request_of_a_session_gives_the_rest_back(bench: Bench) -> None:
    bench.produce(0, "a", "b")
    bench.fetch()
    last = bench.fetch(epoch=-1, said={0: [(0, 0, ACCEPT)]})
    assert given(last) == []
    bench.join("n")
    assert bench.got("n") == [Got(0, 1, 1, 2)]
    assert bench.fetch(epoch=-1).error_code is ErrorCode.share_session_not_found


def test_a_new_session_of_a_member_leaves_it_what_it_has(bench: Bench) -> None:
    bench.produce(0, "a")
    bench.fetch()
    bench.epochs.clear()
    assert bench.got() == []
    assert verdict(bench.acknowledge("m", 0, (0, 0, ACCEPT))) is ErrorCode.none


def test_requests_of_a_session_come_in_order(bench: Bench) -> None:
    bench.fetch()
    assert bench.fetch(epoch=5).error_code is ErrorCode.invalid_share_session_epoch
    assert bench.acknowledge("m", 0, epoch=7).error_code is ErrorCode.invalid_share_session_epoch
    assert bench.acknowledge("m", 0, epoch=0).error_code is ErrorCode.invalid_share_session_epoch
    assert bench.acknowledge("x", 0, epoch=1).error_code is ErrorCode.share_session_not_found
    assert bench.fetch().error_code is ErrorCode.none


@pytest.mark.parametrize(
    "fields",
    [
        {"said": {0: [(0, 0, ACCEPT)]}},
        {"share_acquire_mode": 7},
    ],
)
def test_a_fetch_that_can_not_be_meant_is_refused(bench: Bench, fields: dict[str, Any]) -> None:
    assert bench.fetch(epoch=0, **fields).error_code is ErrorCode.invalid_request


@pytest.mark.parametrize("name", ["group_id", "member_id"])
@pytest.mark.parametrize("value", ["", None])
def test_who_asks_must_say_so(bench: Bench, name: str, value: str | None) -> None:
    bench.fetch()
    named: dict[str, Any] = {name: value}
    fetch = replace(bench.fetch_request(), **named)
    assert bench.tell(FETCH, 2, fetch).error_code is ErrorCode.invalid_request
    acknowledge = replace(bench.acknowledge_request("m", 0), **named)
    assert bench.tell(ACKNOWLEDGE, 2, acknowledge).error_code is ErrorCode.invalid_request


def test_partitions_that_are_forgotten_are_fetched_no_more(bench: Bench) -> None:
    bench.fetch()
    bench.produce(0, "a")
    bench.produce(1, "b")
    forgotten = (ForgottenTopic(topic_id=bench.store.topics["t"].topic_id, partitions=(0,)),)
    assert bench.got(topics=(), forgotten_topics_data=forgotten) == [Got(1, 0, 0, 1)]


def test_what_there_is_not_is_named(bench: Bench) -> None:
    topic_id = bench.store.topics["t"].topic_id
    topics = tuple(
        FetchTopic(topic_id=each, partitions=(FetchPartition(partition_index=9, acknowledgement_batches=()),))
        for each in (topic_id, UUID(int=7))
    )
    answer = bench.fetch(topics=topics)
    errors = {topic.topic_id: topic.partitions[0].error_code for topic in answer.responses}
    assert errors == {
        topic_id: ErrorCode.unknown_topic_or_partition,
        UUID(int=7): ErrorCode.unknown_topic_id,
    }


def test_a_group_gets_nothing_of_a_topic_that_it_does_not_read(bench: Bench) -> None:
    bench.store.catalog.begin_creation("u", 1).at_once()
    topic = FetchTopic(
        topic_id=bench.store.topics["u"].topic_id,
        partitions=(FetchPartition(partition_index=0, acknowledgement_batches=()),),
    )
    answer = bench.fetch(topics=(topic,))
    assert answer.responses[0].partitions[0].error_code is ErrorCode.unknown_server_error
    assert "no share group that reads this topic" in answer.responses[0].partitions[0].error_message


def test_markers_and_aborted_records_are_given_to_nobody_who_wants_committed_ones() -> None:
    bench = Bench()
    bench.set_group({"share.isolation.level": "read_committed"})
    log = bench.store.topics["t"].partitions[0]
    own: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "attributes": 0x10}
    bench.produce(0, "aborted", base_sequence=0, **own)
    log.append_marker(5, 0, commits=False)
    bench.produce(0, "committed", base_sequence=1, **own)
    log.append_marker(5, 0, commits=True)
    bench.produce(0, "open", base_sequence=2, **own)
    bench.settle()
    log.sync()
    answer = bench.fetch()
    assert given(answer) == [Got(0, 2, 2, 1)]
    assert values(answer) == ["committed"]
    assert bench.start_offsets()[0] == (2, 1 + 1), "the record that is given out, and the open one"


def test_all_records_but_no_markers_are_given_to_whoever_wants_uncommitted_ones(bench: Bench) -> None:
    log = bench.store.topics["t"].partitions[0]
    own: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "attributes": 0x10}
    bench.produce(0, "aborted", base_sequence=0, **own)
    log.append_marker(5, 0, commits=False)
    bench.produce(0, "open", base_sequence=1, **own)
    assert bench.got() == [Got(0, 0, 0, 1), Got(0, 2, 2, 1)]


def test_no_more_is_given_out_than_may_be_in_flight() -> None:
    bench = Bench()
    bench.set_group({"share.partition.max.record.locks": "100"})
    for _ in range(3):
        bench.produce(0, *map(str, range(60)))
    assert bench.got() == [Got(0, 0, 119, 1)]
    assert bench.got() == []
    bench.acknowledge("m", 0, (0, 29, ACCEPT))
    assert bench.got() == [Got(0, 120, 179, 1)]


def test_a_long_run_of_aborted_records_is_passed_over_little_by_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "BATCHES_PER_STEP_MAX", 2)
    bench = Bench()
    bench.set_group({"share.isolation.level": "read_committed"})
    log = bench.store.topics["t"].partitions[0]
    for number in range(20):
        own: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "attributes": 0x10}
        bench.produce(0, "aborted", base_sequence=number, **own)
        log.append_marker(5, 0, commits=False)
    bench.produce(0, "seen")
    answer = bench.ask(FETCH, 2, bench.fetch_request(max_wait_ms=5_000, min_bytes=1))
    bench.settle()
    turns = 0
    while not answer.is_resolved:
        bench.advance(1)
        bench.settle()
        turns += 1
        assert turns < 20
    assert turns > 1
    assert given(answer.response) == [Got(0, 40, 40, 1)]


def test_partitions_take_turns(bench: Bench) -> None:
    for partition in (0, 1, 0, 1):
        bench.produce(partition, "x")
    assert [bench.got(max_records=1)[0].partition for _ in range(4)] == [0, 1, 0, 1]


def test_what_was_deleted_from_the_log_is_passed_over(bench: Bench) -> None:
    for value in "abc":
        bench.produce(0, value)
    bench.fetch(max_records=1)
    bench.store.topics["t"].partitions[0].begin_record_deletion(2).at_once()
    assert bench.got() == [Got(0, 2, 2, 1)]
    assert verdict(bench.acknowledge("m", 0, (0, 0, ACCEPT), (2, 2, ACCEPT))) is ErrorCode.none


def test_what_can_not_be_written_has_not_been_said(bench: Bench) -> None:
    bench.produce(0, "a", "b")
    bench.fetch()
    bench.disk.fail("append")
    answer = bench.acknowledge("m", 0, (0, 1, ACCEPT))
    assert verdict(answer) is ErrorCode.kafka_storage_error
    bench.crash()
    bench.epochs.clear()
    assert bench.got() == [Got(0, 0, 1, 1)]


def test_what_can_not_be_synced_is_not_answered_as_kept(bench: Bench) -> None:
    bench.produce(0, "a", "b")
    bench.fetch()
    answer = bench.ask(ACKNOWLEDGE, 2, bench.acknowledge_request("m", 0, (0, 1, ACCEPT)))
    bench.fail_sync()
    assert verdict(answer.response) is ErrorCode.kafka_storage_error
    answer = bench.ask(ACKNOWLEDGE, 2, bench.acknowledge_request("m", 0, (0, 0, ACCEPT)))
    assert verdict(answer) is not ErrorCode.none
    answer = bench.fetch()
    ((partition, _),) = (topic.partitions for topic in answer.responses)
    assert partition.error_code is ErrorCode.kafka_storage_error
    assert given(answer) == []
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
    (group,) = bench.tell(DESCRIBE, 1, DescribeShareGroupOffsetsRequest(groups=(asked,))).groups
    assert group.error_code is ErrorCode.kafka_storage_error
    bench.advance(LOCK_MS + 1)


def test_a_position_is_told_when_it_is_durable(bench: Bench) -> None:
    bench.produce(0, "a", "b")
    bench.fetch()
    bench.ask(ACKNOWLEDGE, 2, bench.acknowledge_request("m", 0, (0, 1, ACCEPT)))
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
    told = bench.ask(DESCRIBE, 1, DescribeShareGroupOffsetsRequest(groups=(asked,)))
    assert isinstance(told, Pending)
    assert not told.is_resolved
    bench.settle()
    assert told.response.groups[0].topics[0].partitions[0].start_offset == 2


def test_positions_that_can_not_be_read_back_are_named_and_hold_up_nothing_else(bench: Bench) -> None:
    bench.produce(0, "a")
    bench.fetch()
    log = bench.store.topics[SHARE_STATE_TOPIC].partitions[0]
    key = encode_key(ShareKey(GROUP, UUID(int=1), 0))
    log.append(
        encode_batch([Record(timestamp_ms=0, key=key, value=b"\0\0nonsense")]), size_bytes_max=SIZE_MAX
    )
    bench.services.commit.appended(log)
    bench.settle()
    bench.crash()
    bench.epochs.clear()
    assert bench.fetch().error_code is ErrorCode.corrupt_message
    assert bench.acknowledge("m", 0).error_code is ErrorCode.corrupt_message
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
    (group,) = bench.tell(DESCRIBE, 1, DescribeShareGroupOffsetsRequest(groups=(asked,))).groups
    assert group.error_code is ErrorCode.corrupt_message
    assert GROUP in group.error_message
    deleted = bench.tell(20, 6, DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=1_000))
    assert deleted.responses[0].error_code is ErrorCode.none


def test_snapshots_may_be_counted_for_ever(bench: Bench) -> None:
    bench.produce(0, "a")
    bench.fetch()
    positions = bench.services.shares.load()  # type: ignore[attr-defined]  # it stands for them
    for key, stored in positions._stored.items():
        positions._stored[key] = stored._replace(snapshot_epoch=2**31 - 1)
    assert verdict(bench.acknowledge("m", 0, (0, 0, ACCEPT))) is ErrorCode.none


def test_a_partition_that_is_named_twice_is_judged_as_a_whole(bench: Bench) -> None:
    bench.produce(0, *"abcd")
    bench.fetch()
    request = bench.acknowledge_request("m", 0, (0, 5, ACCEPT))
    again = bench.acknowledge_request("m", 0, (1, 1, ACCEPT), epoch=0)
    (topic,), (other,) = request.topics, again.topics
    both = replace(topic, partitions=topic.partitions + other.partitions)
    answer = bench.tell(ACKNOWLEDGE, 2, replace(request, topics=(both,)))
    assert verdict(answer) is ErrorCode.invalid_request
    assert bench.start_offsets()[0] == (0, 4)


def test_a_crash_of_the_broker_may_cost_one_delivery_more_and_loses_nothing(bench: Bench) -> None:
    bench.set_group({"share.delivery.count.limit": "2"})
    bench.produce(0, "a", "b")
    assert bench.got() == [Got(0, 0, 1, 1)]
    bench.acknowledge("m", 0, (0, 0, RELEASE))
    assert bench.got() == [Got(0, 0, 0, 2)]
    bench.acknowledge("m", 0, (1, 1, ACCEPT))
    bench.crash()
    bench.epochs.clear()
    assert bench.got() == [Got(0, 0, 0, 3)]


def test_records_that_nobody_gets_through_are_counted_and_said(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.set_group({"share.delivery.count.limit": "2"})
    bench.produce(0, "poison")
    for _ in range(2):
        assert len(bench.got()) == 1
        bench.acknowledge("m", 0, (0, 0, RELEASE))
    assert bench.got() == []
    assert bench.services.counters.share_given_up == 1
    assert "the share group workers gives up 1 records of t-0" in caplog.text


def test_a_topic_takes_its_positions_along(bench: Bench) -> None:
    bench.produce(0, "a")
    bench.fetch()
    assert bench.start_offsets() == {0: (0, 1), 1: (0, 0)}
    deleted = bench.tell(20, 6, DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=1_000))
    assert deleted.responses[0].error_code is ErrorCode.none
    assert bench.start_offsets() == {}
    bench.crash()
    assert bench.start_offsets() == {}


def test_a_topic_that_a_crash_has_half_deleted_takes_its_positions_along(bench: Bench) -> None:
    bench.produce(0, "a")
    bench.fetch()
    bench.store.catalog.begin_deletion("t").at_once()
    bench.crash()
    assert bench.start_offsets() == {}


def test_a_group_takes_its_positions_along(bench: Bench) -> None:
    bench.produce(0, "a")
    bench.fetch()
    bench.acknowledge("m", 0, (0, 0, ACCEPT))
    bench.leave()
    answer = bench.tell(42, 2, DeleteGroupsRequest(groups_names=(GROUP,)))
    assert answer.results[0].error_code is ErrorCode.none
    assert bench.start_offsets() == {}
    bench.crash()
    bench.join("m")
    bench.epochs.clear()
    assert bench.got() == [Got(0, 0, 0, 1)]


def test_positions_are_told_with_what_is_left(bench: Bench) -> None:
    bench.produce(0, *map(str, range(10)))
    bench.fetch()
    bench.acknowledge("m", 0, (0, 1, ACCEPT), (5, 9, ACCEPT))
    assert bench.start_offsets() == {0: (2, 3), 1: (0, 0)}
    asked = DescribeShareGroupOffsetsRequestGroup(
        group_id=GROUP,
        topics=(
            DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=(1, 9)),
            DescribeShareGroupOffsetsRequestTopic(topic_name="none", partitions=(0,)),
        ),
    )
    (group,) = bench.tell(DESCRIBE, 1, DescribeShareGroupOffsetsRequest(groups=(asked,))).groups
    told = [
        (topic.topic_name, each.partition_index, each.start_offset, each.lag, each.error_code)
        for topic in group.topics
        for each in topic.partitions
    ]
    assert told == [
        ("t", 1, 0, 0, ErrorCode.none),
        ("t", 9, -1, -1, ErrorCode.none),
        ("none", 0, -1, -1, ErrorCode.none),
    ]


def alter(
    bench: EngineByHand, group_id: str = GROUP, topic: str = "t", partition: int = 0, offset: int = 1
) -> Any:
    request = AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=(
            AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=(
                    AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset),
                ),
            ),
        ),
    )
    return bench.tell(ALTER, 0, request)


def test_a_group_without_members_can_be_moved(bench: Bench) -> None:
    bench.produce(0, "a", "b", "c")
    bench.fetch()
    assert alter(bench).error_code is ErrorCode.non_empty_group
    bench.acknowledge("m", 0, (0, 2, ACCEPT), epoch=-1)
    bench.leave()
    assert alter(bench).error_code is ErrorCode.none
    bench.crash()
    bench.join("m")
    bench.epochs.clear()
    assert bench.got(share_acquire_mode=1) == [Got(0, 1, 2, 1)]


def test_a_group_that_there_is_not_can_be_placed_before_it_begins(bench: Bench) -> None:
    assert alter(bench, "new").error_code is ErrorCode.none
    assert "new" in bench.services.groups.coordinator.share_groups
    bench.crash()
    assert "new" in bench.services.groups.coordinator.share_groups


def test_a_group_is_placed_on_a_broker_that_has_never_seen_one() -> None:
    bench = EngineByHand()
    bench.store.catalog.begin_creation("t", 1).at_once()
    assert alter(bench, "new").error_code is ErrorCode.none


def test_there_are_only_so_many_groups_and_none_without_a_name(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "GROUP_COUNT_MAX", 2)
    assert alter(bench, "new").error_code is ErrorCode.none
    assert alter(bench, "newer").error_code is ErrorCode.policy_violation
    assert alter(bench, "  ").error_code is ErrorCode.invalid_group_id


@pytest.mark.parametrize(("topic", "partition"), [("t", 9), ("none", 0)])
def test_only_partitions_that_there_are_can_be_moved(bench: Bench, topic: str, partition: int) -> None:
    answer = alter(bench, "new", topic, partition)
    assert answer.responses[0].partitions[0].error_code is ErrorCode.unknown_topic_or_partition


def test_positions_can_be_forgotten(bench: Bench) -> None:
    bench.produce(0, "a")
    bench.fetch()

    def delete(group_id: str, topic: str = "t") -> Any:
        asked = (DeleteShareGroupOffsetsRequestTopic(topic_name=topic),)
        return bench.tell(DELETE, 0, DeleteShareGroupOffsetsRequest(group_id=group_id, topics=asked))

    assert delete(GROUP).error_code is ErrorCode.non_empty_group
    assert delete("none").error_code is ErrorCode.group_id_not_found
    bench.leave()
    assert delete(GROUP, "none").responses[0].error_code is ErrorCode.unknown_topic_or_partition
    assert delete(GROUP).responses[0].error_code is ErrorCode.none
    assert bench.start_offsets() == {}


def test_positions_of_other_groups_are_not_touched(bench: Bench) -> None:
    bench.services.groups.coordinator.apply(GroupChanged(ConsumerGroup(group_id="consumers")))
    answer = alter(bench, "consumers")
    assert answer.error_code is ErrorCode.group_id_not_found
    assert answer.error_message == "Group consumers is not a share group."
