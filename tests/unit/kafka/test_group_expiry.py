"""Which committed offsets and groups have outlived their use, and what of them tools may delete."""

from __future__ import annotations

from dataclasses import replace
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from headrace.kafka.groups.consumer.state import ConsumerGroup, ConsumerMember
from headrace.kafka.groups.coordinator import GroupChanged, GroupCoordinator
from headrace.kafka.groups.expiry import abandoned_groups, expired_offsets
from headrace.kafka.groups.offsets import OffsetCommitted, OffsetForgotten, OffsetPending
from headrace.kafka.groups.state import Group, GroupState, Member, Protocol
from headrace.kafka.groups.subscription import read_topics

NOW_MS = 1_000_000


def offset(
    topic: str = "t", partition: int = 0, committed_at_ms: int = 100, group_id: str = "g"
) -> OffsetCommitted:
    return OffsetCommitted(
        group_id=group_id, topic=topic, partition=partition, offset=7, committed_at_ms=committed_at_ms
    )


def subscription(*topics: str) -> bytes:
    names = b"".join(pack(">h", len(topic)) + topic.encode() for topic in topics)
    return pack(">hi", 1, len(topics)) + names + pack(">i", -1)


def classic_group(*topics: str, protocol_type: str = "consumer", metadata: bytes | None = None) -> Group:
    member = Member(
        member_id="a",
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        protocols=(Protocol(name="range", metadata=subscription(*topics) if metadata is None else metadata),),
        session_deadline_ms=1,
    )
    return Group(
        group_id="g",
        state=GroupState.STABLE,
        protocol_type=protocol_type,
        protocol_name="range",
        members={"a": member},
    )


def consumer_group(*topics: str) -> ConsumerGroup:
    member = ConsumerMember(member_id="a", subscribed_names=frozenset(topics))
    return ConsumerGroup(group_id="g", members={"a": member}, subscribed_names=frozenset(topics))


def coordinator_with(
    *offsets: OffsetCommitted, group: Group | ConsumerGroup | None = None
) -> GroupCoordinator:
    coordinator = GroupCoordinator()
    for each in offsets:
        coordinator.apply(each)
    if group is not None:
        coordinator.apply(GroupChanged(group))
    return coordinator


def expired(
    coordinator: GroupCoordinator, before_ms: int, emptied_at_ms: int | None = None
) -> set[tuple[str, int]]:
    emptied = {} if emptied_at_ms is None else {"g": emptied_at_ms}
    records = expired_offsets(coordinator, emptied, before_ms)
    assert all(isinstance(record, OffsetForgotten) for record in records)
    return {(record.topic, record.partition) for record in records}


def test_offsets_of_a_group_without_members_expire_after_their_commit() -> None:
    coordinator = coordinator_with(offset(partition=0), offset(partition=1, committed_at_ms=200))
    assert expired(coordinator, 99) == set()
    assert expired(coordinator, 100) == {("t", 0)}
    assert expired(coordinator, 200) == {("t", 0), ("t", 1)}


def test_offsets_outlive_the_last_member_however_old_they_are() -> None:
    coordinator = coordinator_with(offset(), group=replace(classic_group("t"), members={}))
    assert expired(coordinator, 500, emptied_at_ms=501) == set()
    assert expired(coordinator, 501, emptied_at_ms=501) == {("t", 0)}


def test_offsets_of_a_classic_group_with_members_never_expire() -> None:
    coordinator = coordinator_with(offset(), offset("other"), group=classic_group("t"))
    assert expired(coordinator, NOW_MS) == set()


def test_offsets_of_topics_that_no_member_of_a_consumer_group_reads_expire() -> None:
    coordinator = coordinator_with(offset(), offset("other"), group=consumer_group("t"))
    assert expired(coordinator, NOW_MS) == {("other", 0)}


def test_an_offset_that_a_transaction_may_still_change_does_not_expire() -> None:
    coordinator = coordinator_with(offset(partition=0), offset(partition=1))
    coordinator.apply(OffsetPending(producer_id=5, committed=offset(partition=1)))
    assert expired(coordinator, NOW_MS) == {("t", 0)}


def test_a_group_ends_when_it_has_neither_members_nor_offsets() -> None:
    empty = ConsumerGroup(group_id="g", epoch=9)
    assert abandoned_groups(coordinator_with(group=empty), ()) == ["g"]
    assert abandoned_groups(coordinator_with(group=empty), {"g"}) == []
    assert abandoned_groups(coordinator_with(offset(), group=empty), ()) == []
    assert abandoned_groups(coordinator_with(group=consumer_group("t")), ()) == []
    expecting = Group(group_id="g", pending_ids={"a": 1})
    assert abandoned_groups(coordinator_with(group=expecting), ()) == []


# What tools may delete


@pytest.mark.parametrize("group", [classic_group("t"), consumer_group("t")])
def test_offsets_of_topics_that_members_read_are_not_deleted(group: Group | ConsumerGroup) -> None:
    coordinator = coordinator_with(offset(), offset("other"), group=group)
    assert coordinator.check_delete_offsets("g") is ErrorCode.none
    records, errors = coordinator.handle_delete_offsets("g", [("t", 0), ("other", 0), ("other", 1)])
    assert errors == {
        ("t", 0): ErrorCode.group_subscribed_to_topic,
        ("other", 0): ErrorCode.none,
        ("other", 1): ErrorCode.none,
    }
    assert records == (OffsetForgotten(group_id="g", topic="other", partition=0),)


def test_a_group_whose_members_do_not_say_what_they_read_keeps_all_offsets() -> None:
    opaque = coordinator_with(offset(), group=classic_group(protocol_type="connect", metadata=b"\1"))
    assert opaque.check_delete_offsets("g") is ErrorCode.non_empty_group
    garbled = coordinator_with(offset(), group=classic_group(metadata=b"\1"))
    _, errors = garbled.handle_delete_offsets("g", [("t", 0)])
    assert errors == {("t", 0): ErrorCode.group_subscribed_to_topic}


def test_there_is_nothing_to_delete_of_a_group_that_is_not_there() -> None:
    coordinator = coordinator_with()
    assert coordinator.check_delete_offsets("g") is ErrorCode.group_id_not_found
    assert coordinator.handle_delete("g") == ((), ErrorCode.group_id_not_found)


@pytest.mark.parametrize("group", [classic_group("t"), consumer_group("t")])
def test_a_group_with_members_is_not_deleted(group: Group | ConsumerGroup) -> None:
    coordinator = coordinator_with(offset(), group=group)
    assert coordinator.handle_delete("g") == ((), ErrorCode.non_empty_group)


@pytest.mark.parametrize("group", [Group(group_id="g"), ConsumerGroup(group_id="g")])
def test_a_group_ends_when_it_and_its_offsets_are_deleted(group: Group | ConsumerGroup) -> None:
    coordinator = coordinator_with(offset(), group=group)
    records, error_code = coordinator.handle_delete("g")
    assert error_code is ErrorCode.none
    for record in (*coordinator.handle_end("g").records, *records):
        coordinator.apply(record)
    assert "g" not in coordinator
    assert coordinator.handle_end("g").records == ()


def test_a_group_with_members_does_not_end() -> None:
    coordinator = coordinator_with(group=consumer_group("t"))
    assert coordinator.handle_end("g").records == ()


# What members of classic groups say


@given(st.lists(st.text(max_size=20), max_size=5))
def test_the_topics_of_a_subscription_are_read(topics: list[str]) -> None:
    encoded = [topic.encode() for topic in topics]
    metadata = pack(">hi", 3, len(topics)) + b"".join(pack(">h", len(each)) + each for each in encoded)
    assert read_topics(metadata + b"whatever follows") == frozenset(topics)


@given(st.binary(max_size=40))
def test_metadata_of_any_kind_is_read_or_not_understood(metadata: bytes) -> None:
    assert read_topics(metadata) is None or isinstance(read_topics(metadata), frozenset)


def test_a_subscription_that_is_cut_off_is_not_understood() -> None:
    metadata = subscription("orders", "refunds")
    assert all(read_topics(metadata[:size]) is None for size in range(len(metadata) - 4))
