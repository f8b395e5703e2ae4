"""Offsets that wait for the end of their transaction, beside a reference that reads the log from its end."""

from __future__ import annotations

import random

from headrace.kafka.groups.coordinator import GroupCoordinator, GroupRecord
from headrace.kafka.groups.offsets import OffsetCommitted, OffsetForgotten, OffsetPending, OffsetsSettled

PARTITIONS = (("orders", 0), ("orders", 1), ("payments", 0))


def _committed(offset: int, partition: int = 0, topic: str = "orders", group: str = "g") -> OffsetCommitted:
    return OffsetCommitted(group_id=group, topic=topic, partition=partition, offset=offset)


def _pending(producer_id: int, offset: int, partition: int = 0, topic: str = "orders") -> OffsetPending:
    return OffsetPending(producer_id=producer_id, committed=_committed(offset, partition, topic))


def _after(*records: GroupRecord) -> GroupCoordinator:
    coordinator = GroupCoordinator()
    for record in records:
        coordinator.apply(record)
    return coordinator


def _offset(coordinator: GroupCoordinator) -> int | None:
    found = coordinator.offsets_of("g").get(("orders", 0))
    return None if found is None else found.offset


def test_an_offset_of_a_transaction_counts_once_the_transaction_commits() -> None:
    coordinator = _after(_committed(1), _pending(7, 5))
    assert (_offset(coordinator), coordinator.pending.is_pending("g", "orders", 0)) == (1, True)
    coordinator.apply(OffsetsSettled(producer_id=7, commits=True))
    assert (_offset(coordinator), coordinator.pending.is_pending("g", "orders", 0)) == (5, False)


def test_an_offset_of_a_transaction_that_aborts_never_counts() -> None:
    coordinator = _after(_committed(1), _pending(7, 5), OffsetsSettled(producer_id=7, commits=False))
    assert (_offset(coordinator), coordinator.pending.all()) == (1, [])


def test_the_offset_that_was_written_last_wins_not_the_one_whose_transaction_ended_last() -> None:
    records = (_pending(7, 5), _pending(8, 6))
    first, second = OffsetsSettled(producer_id=7, commits=True), OffsetsSettled(producer_id=8, commits=True)
    assert _offset(_after(*records, first, second)) == 6
    assert _offset(_after(*records, second, first)) == 6


def test_a_plain_commit_overtakes_what_is_pending() -> None:
    coordinator = _after(_pending(7, 5), _committed(9))
    assert not coordinator.pending.is_pending("g", "orders", 0)
    coordinator.apply(OffsetsSettled(producer_id=7, commits=True))
    assert _offset(coordinator) == 9


def test_a_pending_offset_ends_with_its_topic_and_with_its_group() -> None:
    coordinator = _after(_committed(1, topic="payments"), _pending(7, 5))
    (forgotten,) = coordinator.handle_topic_deleted("orders")
    assert forgotten == OffsetForgotten(group_id="g", topic="orders", partition=0)
    records, _ = coordinator.handle_delete("g")
    assert {(each.topic, each.partition) for each in records} == {("payments", 0), ("orders", 0)}
    for record in records:
        coordinator.apply(record)
    coordinator.apply(OffsetsSettled(producer_id=7, commits=True))
    assert coordinator.offsets_of("g") == {}


def _reference(log: list[GroupRecord], topic: str, partition: int) -> int | None:
    """The last offset in the log that counts: a plain one, or one whose producer's next marker commits."""
    for position in reversed(range(len(log))):
        record = log[position]
        if isinstance(record, OffsetForgotten) and (record.topic, record.partition) == (topic, partition):
            return None
        committed = record.committed if isinstance(record, OffsetPending) else record
        if not isinstance(committed, OffsetCommitted) or (committed.topic, committed.partition) != (
            topic,
            partition,
        ):
            continue
        if isinstance(record, OffsetCommitted):
            return record.offset
        assert isinstance(record, OffsetPending)
        ends = (
            each.commits
            for each in log[position:]
            if isinstance(each, OffsetsSettled) and each.producer_id == record.producer_id
        )
        if next(ends, False):
            return record.committed.offset
    return None


def test_random_logs_give_the_offsets_of_the_reference() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        log: list[GroupRecord] = []
        coordinator = GroupCoordinator()
        for offset in range(40):
            topic, partition = chance.choice(PARTITIONS)
            producer_id = chance.randrange(3)
            choices: list[GroupRecord] = [
                _committed(offset, partition, topic),
                _pending(producer_id, offset, partition, topic),
                _pending(producer_id, offset, partition, topic),
                OffsetsSettled(producer_id=producer_id, commits=chance.random() < 0.6),
                OffsetForgotten(group_id="g", topic=topic, partition=partition),
            ]
            record = chance.choice(choices)
            log.append(record)
            coordinator.apply(record)
            for key in PARTITIONS:
                found = coordinator.offsets_of("g").get(key)
                assert (None if found is None else found.offset) == _reference(log, *key), (seed, log)
