"""How partitions are shared out, on generated groups and topics."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kafka.groups.consumer.assignors import ASSIGNORS, Subscriber, preferred_assignor
from headrace.kafka.groups.consumer.uniform import assign_uniform

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.kafka.groups.consumer.state import Partition

    Shares = Mapping[str, frozenset[Partition]]

TOPIC_IDS = [UUID(int=number) for number in range(1, 5)]
A, B = TOPIC_IDS[:2]

topic_counts = st.dictionaries(st.sampled_from(TOPIC_IDS), st.integers(0, 9), max_size=4)
same_topics = st.tuples(st.sets(st.sampled_from(TOPIC_IDS)), st.integers(1, 6)).map(
    lambda drawn: {f"m{number}": frozenset(drawn[0]) for number in range(drawn[1])}
)
mixed_topics = st.dictionaries(
    st.integers(0, 6).map(lambda number: f"m{number}"),
    st.frozensets(st.sampled_from(TOPIC_IDS)),
    min_size=1,
    max_size=6,
)
wanted_topics = same_topics | mixed_topics


def group(
    wanted: Mapping[str, frozenset[UUID]], counts: Mapping[UUID, int], previous: Shares | None = None
) -> dict[str, Subscriber]:
    return {
        member_id: Subscriber(
            topic_ids=topic_ids.intersection(counts), previous=(previous or {}).get(member_id, frozenset())
        )
        for member_id, topic_ids in wanted.items()
    }


def all_partitions(wanted: Mapping[str, frozenset[UUID]], counts: Mapping[UUID, int]) -> set[Partition]:
    topics = counts.keys() & frozenset[UUID]().union(*wanted.values())
    return {(topic_id, index) for topic_id in topics for index in range(counts[topic_id])}


def moved(before: Shares, after: Shares) -> int:
    """How many partitions have another owner than before."""
    owners = {partition: member_id for member_id, share in before.items() for partition in share}
    return sum(
        owners.get(partition, member_id) != member_id
        for member_id, share in after.items()
        for partition in share
    )


@pytest.mark.parametrize("name", ASSIGNORS)
@given(wanted=wanted_topics, counts=topic_counts)
def test_each_partition_has_exactly_one_owner_who_wants_it(
    name: str, wanted: dict[str, frozenset[UUID]], counts: dict[UUID, int]
) -> None:
    shares = ASSIGNORS[name](group(wanted, counts), counts)
    given_out = [partition for share in shares.values() for partition in share]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == all_partitions(wanted, counts)
    assert shares.keys() == wanted.keys()
    assert all(topic_id in wanted[member_id] for member_id, share in shares.items() for topic_id, _ in share)


@given(before=wanted_topics, after=wanted_topics, counts=topic_counts, later_counts=topic_counts)
def test_an_assignment_stays_valid_and_even_through_changes_of_members_and_topics(
    before: dict[str, frozenset[UUID]],
    after: dict[str, frozenset[UUID]],
    counts: dict[UUID, int],
    later_counts: dict[UUID, int],
) -> None:
    first = assign_uniform(group(before, counts), counts)
    second = assign_uniform(group(after, later_counts, first), later_counts)
    given_out = [partition for share in second.values() for partition in share]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == all_partitions(after, later_counts)
    fresh = assign_uniform(group(after, later_counts), later_counts)
    assert sorted(map(len, second.values())) == sorted(map(len, fresh.values()))
    assert assign_uniform(group(after, later_counts, second), later_counts) == second


@given(wanted=same_topics, counts=topic_counts)
def test_members_who_want_the_same_get_equally_many(
    wanted: dict[str, frozenset[UUID]], counts: dict[UUID, int]
) -> None:
    sizes = [len(share) for share in assign_uniform(group(wanted, counts), counts).values()]
    assert max(sizes) - min(sizes) <= 1


@settings(max_examples=60)
@given(
    wanted=st.dictionaries(
        st.sampled_from(["m0", "m1", "m2"]), st.frozensets(st.sampled_from(TOPIC_IDS)), min_size=1
    ),
    counts=st.dictionaries(st.sampled_from(TOPIC_IDS), st.integers(0, 2), max_size=3),
)
def test_no_assignment_is_more_even_whatever_the_subscriptions(
    wanted: dict[str, frozenset[UUID]], counts: dict[UUID, int]
) -> None:
    partitions = sorted(all_partitions(wanted, counts), key=lambda each: (each[0].int, each[1]))
    takers = [[m for m, topics in wanted.items() if topic_id in topics] for topic_id, _ in partitions]
    best = min(sum(owners.count(m) ** 2 for m in wanted) for owners in product(*takers))
    shares = assign_uniform(group(wanted, counts), counts)
    assert sum(len(share) ** 2 for share in shares.values()) == best


@given(count=st.integers(1, 6), counts=topic_counts)
def test_a_newcomer_moves_no_more_partitions_than_it_gets(count: int, counts: dict[UUID, int]) -> None:
    wanted = {f"m{number}": frozenset(counts) for number in range(count)}
    before = assign_uniform(group(wanted, counts), counts)
    after = assign_uniform(group({**wanted, "new": frozenset(counts)}, counts, before), counts)
    assert moved(before, after) == len(after["new"])


@given(count=st.integers(2, 6), counts=topic_counts)
def test_one_who_leaves_moves_only_its_own_partitions(count: int, counts: dict[UUID, int]) -> None:
    wanted = {f"m{number}": frozenset(counts) for number in range(count)}
    before = assign_uniform(group(wanted, counts), counts)
    rest = {member_id: topics for member_id, topics in wanted.items() if member_id != "m0"}
    after = assign_uniform(group(rest, counts, before), counts)
    assert all(before[member_id] <= after[member_id] for member_id in rest)


@given(count=st.integers(1, 6), counts=topic_counts, more=st.integers(0, 5))
def test_a_topic_that_grows_moves_nothing(count: int, counts: dict[UUID, int], more: int) -> None:
    wanted = {f"m{number}": frozenset([A]) for number in range(count)}
    counts = {A: counts.get(A, 0)}
    before = assign_uniform(group(wanted, counts), counts)
    after = assign_uniform(group(wanted, {A: counts[A] + more}, before), {A: counts[A] + more})
    assert moved(before, after) == 0


def test_partitions_pass_through_a_third_member_where_that_evens_the_loads() -> None:
    wanted = {"x": frozenset([A]), "y": frozenset([A, B]), "z": frozenset([B])}
    counts = {A: 4, B: 2}
    lopsided = {
        "x": frozenset((A, index) for index in range(4)),
        "y": frozenset((B, index) for index in range(2)),
        "z": frozenset[tuple[UUID, int]](),
    }
    shares = assign_uniform(group(wanted, counts, lopsided), counts)
    assert {member_id: len(share) for member_id, share in shares.items()} == {"x": 2, "y": 2, "z": 2}


def test_ranges_are_consecutive_and_cut_equal_topics_at_the_same_places() -> None:
    wanted = {member_id: frozenset([A, B]) for member_id in ("m1", "m2", "m3")}
    shares = ASSIGNORS["range"](group(wanted, {A: 7, B: 7}), {A: 7, B: 7})
    assert {
        member_id: sorted(index for topic, index in share if topic == A)
        for member_id, share in shares.items()
    } == {
        "m1": [0, 1, 2],
        "m2": [3, 4],
        "m3": [5, 6],
    }
    for share in shares.values():
        assert {index for topic, index in share if topic == A} == {
            index for topic, index in share if topic == B
        }


def test_ranges_follow_instance_ids_so_that_a_restart_moves_nothing() -> None:
    def shares(first: str, second: str) -> Shares:
        members = {
            first: Subscriber(instance_id="host-1", topic_ids=frozenset([A])),
            second: Subscriber(instance_id="host-2", topic_ids=frozenset([A])),
            "0-dynamic": Subscriber(topic_ids=frozenset([A])),
        }
        return ASSIGNORS["range"](members, {A: 6})

    assert shares("a", "b")["a"] == shares("z", "b")["z"] == {(A, 0), (A, 1)}
    assert shares("a", "b")["0-dynamic"] == {(A, 4), (A, 5)}


@pytest.mark.parametrize(
    ("wishes", "preferred"),
    [
        ([], "uniform"),
        ([None, None], "uniform"),
        (["range", None, None], "range"),
        (["range", "uniform", "range"], "range"),
    ],
)
def test_the_assignor_that_most_members_ask_for_is_taken(wishes: list[str | None], preferred: str) -> None:
    assert preferred_assignor(wishes) == preferred


def test_large_groups_are_shared_out_evenly() -> None:
    counts = {UUID(int=number): 100 for number in range(1, 21)}
    wanted = {f"m{number:03}": frozenset(counts) for number in range(150)}
    before = assign_uniform(group(wanted, counts), counts)
    after = assign_uniform(group({**wanted, "new": frozenset(counts)}, counts, before), counts)
    assert {len(share) for share in after.values()} == {13, 14}
    assert moved(before, after) == len(after["new"])
