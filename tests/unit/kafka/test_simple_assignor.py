"""How partitions are shared out in share groups, on generated groups and topics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kafka.groups.consumer.assignors import Subscriber
from headrace.kafka.groups.share.assignor import assign_simple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.kafka.groups.consumer.state import Partition

    Shares = Mapping[str, frozenset[Partition]]
    Wanted = dict[str, frozenset[UUID]]

TOPIC_IDS = [UUID(int=number) for number in range(1, 5)]
A, B = TOPIC_IDS[:2]

topic_counts = st.dictionaries(st.sampled_from(TOPIC_IDS), st.integers(0, 9), max_size=4)
same_topics = st.tuples(st.frozensets(st.sampled_from(TOPIC_IDS)), st.integers(1, 20)).map(
    lambda drawn: {f"m{number:02}": drawn[0] for number in range(drawn[1])}
)
mixed_topics = st.dictionaries(
    st.integers(0, 20).map(lambda number: f"m{number:02}"),
    st.frozensets(st.sampled_from(TOPIC_IDS)),
    min_size=1,
)
wanted_topics = same_topics | mixed_topics


def group(
    wanted: Wanted, counts: Mapping[UUID, int], previous: Shares | None = None
) -> dict[str, Subscriber]:
    return {
        member_id: Subscriber(
            topic_ids=topic_ids.intersection(counts), previous=(previous or {}).get(member_id, frozenset())
        )
        for member_id, topic_ids in wanted.items()
    }


def readers(shares: Shares) -> Counter[Partition]:
    return Counter(partition for share in shares.values() for partition in share)


def everybody(count: int, counts: Mapping[UUID, int]) -> Wanted:
    return {f"m{number:02}": frozenset(counts) for number in range(count)}


def assert_is_shared_out(shares: Shares, wanted: Wanted, counts: Mapping[UUID, int]) -> None:
    """Everything that is wanted is read, by those who want it, and nobody is idle who needn't be."""
    assert shares.keys() == wanted.keys()
    wanted_ids = frozenset[UUID]().union(*wanted.values())
    assert readers(shares).keys() == {
        (topic_id, index)
        for topic_id, count in counts.items()
        if topic_id in wanted_ids
        for index in range(count)
    }
    for member_id, share in shares.items():
        assert all(topic_id in wanted[member_id] for topic_id, _ in share)
        assert share or not any(counts.get(topic_id, 0) for topic_id in wanted[member_id])


def assert_is_even(shares: Shares, wanted: Wanted, counts: Mapping[UUID, int]) -> None:
    """Those who want the same have equally many of it, and it has equally many readers."""
    takers = {
        topic_id: frozenset(each for each in wanted if topic_id in wanted[each])
        for topic_id, count in counts.items()
        if count
    }
    read_by = readers(shares)
    for members in set(takers.values()) - {frozenset()}:
        topic_ids = [topic_id for topic_id in takers if takers[topic_id] == members]
        sizes = [sum(topic_id in topic_ids for topic_id, _ in shares[each]) for each in members]
        assert max(sizes) - min(sizes) <= 1
        partition_count = sum(counts[topic_id] for topic_id in topic_ids)
        numbers = {read_by[topic_id, index] for topic_id in topic_ids for index in range(counts[topic_id])}
        assert numbers == {-(-len(members) // partition_count)}


@given(wanted=wanted_topics, counts=topic_counts)
def test_each_partition_is_read_and_each_member_reads(wanted: Wanted, counts: dict[UUID, int]) -> None:
    shares = assign_simple(group(wanted, counts), counts)
    assert_is_shared_out(shares, wanted, counts)
    assert_is_even(shares, wanted, counts)


@given(data=st.data(), wanted=wanted_topics, counts=topic_counts)
def test_it_does_not_matter_what_came_before(
    data: st.DataObject, wanted: Wanted, counts: dict[UUID, int]
) -> None:
    """However the members came by what they have: it may be far too much, too little or long gone."""
    partitions = st.tuples(st.sampled_from(TOPIC_IDS), st.integers(0, 12))
    previous = data.draw(st.fixed_dictionaries({each: st.frozensets(partitions) for each in wanted}))
    shares = assign_simple(group(wanted, counts, previous), counts)
    assert_is_shared_out(shares, wanted, counts)
    assert_is_even(shares, wanted, counts)
    assert assign_simple(group(wanted, counts, shares), counts) == shares


@given(
    held=st.lists(st.frozensets(st.integers(0, 5), max_size=3), min_size=1, max_size=12),
    partition_count=st.integers(1, 6),
)
def test_members_beyond_the_number_of_partitions_find_their_places_whatever_they_had(
    held: list[frozenset[int]], partition_count: int
) -> None:
    previous = {
        f"m{number:02}": frozenset((A, index) for index in indexes) for number, indexes in enumerate(held)
    }
    counts = {A: partition_count}
    wanted = everybody(len(held), counts)
    shares = assign_simple(group(wanted, counts, previous), counts)
    assert_is_shared_out(shares, wanted, counts)
    assert_is_even(shares, wanted, counts)


@given(before=wanted_topics, after=wanted_topics, counts=topic_counts, later_counts=topic_counts)
def test_an_assignment_stays_even_through_changes_of_members_and_topics(
    before: Wanted, after: Wanted, counts: dict[UUID, int], later_counts: dict[UUID, int]
) -> None:
    first = assign_simple(group(before, counts), counts)
    second = assign_simple(group(after, later_counts, first), later_counts)
    assert_is_shared_out(second, after, later_counts)
    assert_is_even(second, after, later_counts)
    assert assign_simple(group(after, later_counts, second), later_counts) == second


@given(wanted=wanted_topics, counts=topic_counts)
def test_the_order_in_which_members_and_topics_are_named_does_not_matter(
    wanted: Wanted, counts: dict[UUID, int]
) -> None:
    turned = dict(reversed(wanted.items()))
    turned_counts = dict(reversed(counts.items()))
    shares = assign_simple(group(wanted, counts), counts)
    assert assign_simple(group(turned, turned_counts), turned_counts) == shares


@given(count=st.integers(1, 6), counts=topic_counts)
def test_a_newcomer_takes_no_more_than_its_share_as_long_as_there_are_enough_partitions(
    count: int, counts: dict[UUID, int]
) -> None:
    if sum(counts.values()) <= count:
        return
    wanted = everybody(count, counts)
    before = assign_simple(group(wanted, counts), counts)
    after = assign_simple(group({**wanted, "new": frozenset(counts)}, counts, before), counts)
    assert all(after[member_id] <= before[member_id] for member_id in wanted)


@given(count=st.integers(2, 6), counts=topic_counts)
def test_one_who_leaves_costs_nobody_anything_as_long_as_there_are_enough_partitions(
    count: int, counts: dict[UUID, int]
) -> None:
    if sum(counts.values()) < count:
        return
    wanted = everybody(count, counts)
    before = assign_simple(group(wanted, counts), counts)
    rest = {member_id: topics for member_id, topics in wanted.items() if member_id != "m00"}
    after = assign_simple(group(rest, counts, before), counts)
    assert all(before[member_id] <= after[member_id] for member_id in rest)


@given(count=st.integers(1, 6), partition_count=st.integers(6, 20), more=st.integers(0, 5))
def test_a_topic_that_grows_moves_nothing(count: int, partition_count: int, more: int) -> None:
    wanted = everybody(count, {A: 0})
    before = assign_simple(group(wanted, {A: partition_count}), {A: partition_count})
    grown = {A: partition_count + more}
    after = assign_simple(group(wanted, grown, before), grown)
    assert all(before[member_id] <= after[member_id] for member_id in wanted)


@pytest.mark.parametrize(
    ("member_count", "partition_count", "sizes", "reader_count"),
    [(1, 3, [3], 1), (2, 3, [1, 2], 1), (3, 3, [1, 1, 1], 1), (4, 3, [1, 1, 2, 2], 2), (5, 1, [1] * 5, 5)],
)
def test_several_members_read_one_partition_where_there_are_more_members_than_partitions(
    member_count: int, partition_count: int, sizes: list[int], reader_count: int
) -> None:
    counts = {A: partition_count}
    shares = assign_simple(group(everybody(member_count, counts), counts), counts)
    assert sorted(map(len, shares.values())) == sizes
    assert set(readers(shares).values()) == {reader_count}


def test_those_who_have_more_keep_it_where_it_does_not_come_out_even() -> None:
    previous: Shares = {"a": frozenset([(A, 0)]), "b": frozenset([(A, 1), (A, 2)])}
    wanted = {member_id: frozenset([A]) for member_id in previous}
    assert assign_simple(group(wanted, {A: 3}, previous), {A: 3}) == previous


def test_a_partition_with_too_many_readers_loses_the_one_that_has_most() -> None:
    previous: Shares = {"a": frozenset([(A, 0), (A, 1), (A, 2)]), "b": frozenset([(A, 0)])}
    turned = {"a": previous["b"], "b": previous["a"]}
    wanted = {member_id: frozenset([A]) for member_id in previous}
    assert assign_simple(group(wanted, {A: 3}, previous), {A: 3})["b"] == previous["b"]
    assert assign_simple(group(wanted, {A: 3}, turned), {A: 3})["a"] == previous["b"]


def test_a_member_that_reads_a_partition_already_waits_for_the_next_one() -> None:
    previous: Shares = {"a": frozenset([(A, 0)]), "b": frozenset([(A, 1)]), "c": frozenset()}
    wanted = {member_id: frozenset([A]) for member_id in previous}
    shares = assign_simple(group(wanted, {A: 2}, previous), {A: 2})
    assert shares == {**previous, "a": frozenset([(A, 0), (A, 1)]), "c": frozenset([(A, 0)])}


def test_each_member_gets_some_of_each_topic() -> None:
    counts = {A: 2, B: 2}
    shares = assign_simple(group(everybody(2, counts), counts), counts)
    assert all({topic_id for topic_id, _ in share} == {A, B} for share in shares.values())


def test_one_who_reads_more_of_other_topics_gets_less() -> None:
    wanted = {"a": frozenset([A, B]), "b": frozenset([B])}
    shares = assign_simple(group(wanted, {A: 2, B: 3}), {A: 2, B: 3})
    assert sum(topic_id == B for topic_id, _ in shares["a"]) == 1


def test_a_member_that_can_not_take_what_is_left_swaps_with_another() -> None:
    first, second = frozenset([(A, 0)]), frozenset([(A, 1)])
    previous: Shares = {"a": first, "b": second, "c": second}
    wanted = {member_id: frozenset([A]) for member_id in previous}
    shares = assign_simple(group(wanted, {A: 2}, previous), {A: 2})
    assert shares == {"a": first | second, "b": first, "c": second}


def test_large_groups_are_shared_out_evenly() -> None:
    counts = {UUID(int=number): 100 for number in range(1, 11)}
    wanted = {f"m{number:04}": frozenset(counts) for number in range(1_000)}
    before = assign_simple(group(wanted, counts), counts)
    assert {len(share) for share in before.values()} == {1}
    after = assign_simple(group({**wanted, "new": frozenset(counts)}, counts, before), counts)
    assert set(readers(after).values()) == {2}
