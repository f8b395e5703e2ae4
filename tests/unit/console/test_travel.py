"""How changes travel to stores: by statuses alone, whatever the order in which things are learnt."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.console.travel import (
    CHANGE_COUNT_MAX,
    LOOK_COUNT_MAX,
    SHOWN_COUNT_MAX,
    Change,
    Store,
    Travels,
    followers,
)
from headrace.driver.store_lag import StoreLag


def change(offset: int, committed_ms: int = 0, *, topic: str = "orders", partition: int = 0) -> Change:
    return Change(
        topic=topic,
        partition=partition,
        offset=offset,
        committed_ms=committed_ms,
        operation="insert",
        key="k",
    )


def store(
    next_offset: int,
    updated_ms: int,
    *,
    pipeline: str = "search",
    state: str = "running",
    topic: str = "orders",
) -> Store:
    return Store(
        pipeline=pipeline,
        kind="search index",
        name=f"/data/{pipeline}",
        state=state,
        reads=(topic,),
        next_offsets={topic: {0: next_offset}},
        updated_ms=updated_ms,
    )


def shown(travels: Travels, offset: int, pipeline: str = "search") -> tuple[bool, int | None]:
    """Whether the change is in the store, and how long it took."""
    found: Any = travels.as_json(0, with_keys=True)["changes"]
    (told,) = [each["stores"][pipeline] for each in found if each["offset"] == offset]
    return told["has"], told["took_ms"]


def test_a_change_arrives_with_the_first_status_that_has_passed_it() -> None:
    travels = Travels()
    travels.take([store(5, 1_000)], [change(5, committed_ms=1_500)])
    assert shown(travels, 5) == (False, None)
    travels.take([store(5, 2_000)], [])
    assert shown(travels, 5) == (False, None)
    travels.take([store(6, 3_000)], [])
    assert shown(travels, 5) == (True, 1_500)
    travels.take([store(9, 4_000)], [])
    assert shown(travels, 5) == (True, 1_500)
    assert travels.as_json(0, with_keys=False)["stores"][0]["arrived_count"] == 1


def test_a_change_that_is_learnt_of_late_arrived_when_it_did() -> None:
    travels = Travels()
    for next_offset, updated_ms in ((5, 1_000), (6, 2_000), (7, 3_000)):
        travels.take([store(next_offset, updated_ms)], [])
    travels.take([store(7, 4_000)], [change(5, committed_ms=1_200), change(6, committed_ms=1_300)])

    assert shown(travels, 5) == (True, 800)
    assert shown(travels, 6) == (True, 1_700)


def test_of_what_a_store_had_before_anybody_looked_nobody_knows_how_long_it_took() -> None:
    travels = Travels()
    travels.take([store(9, 1_000)], [change(5, committed_ms=10)])
    assert shown(travels, 5) == (True, None)


def test_a_clock_that_is_behind_makes_no_time_negative() -> None:
    travels = Travels()
    travels.take([store(5, 1_000)], [change(5, committed_ms=9_000)])
    travels.take([store(6, 2_000)], [])
    assert shown(travels, 5) == (True, 0)


def test_what_has_arrived_stays_so_when_its_pipeline_begins_anew() -> None:
    travels = Travels()
    travels.take([store(5, 1_000)], [change(5, committed_ms=500)])
    travels.take([store(6, 2_000)], [])
    travels.take([store(0, 3_000)], [])
    assert shown(travels, 5) == (True, 1_500)


def test_a_store_that_does_not_read_a_topic_has_nothing_to_get_of_it() -> None:
    travels = Travels()
    stores = [store(5, 1_000), store(5, 1_000, pipeline="carts", topic="carts")]
    travels.take(stores, [change(5)])

    (told,) = travels.as_json(0, with_keys=False)["changes"]
    assert told["stores"].keys() == {"search"}


def test_keys_are_shown_to_those_alone_who_may_read_records() -> None:
    travels = Travels()
    travels.take([store(5, 1_000)], [change(5)])

    assert [each["key"] for each in travels.as_json(0, with_keys=True)["changes"]] == ["k"]
    assert [each["key"] for each in travels.as_json(0, with_keys=False)["changes"]] == [None]


def test_a_store_shows_its_lag_its_state_and_how_old_that_is() -> None:
    travels = Travels()
    travels.take([store(5, 1_000, state="crashed")], [change(5, committed_ms=900)])
    travels.measure({"search": StoreLag(rows=3, bytes=300, seconds=1.234)})
    travels.take([store(6, 2_000)], [])

    (told,) = travels.as_json(2_500, with_keys=False)["stores"]
    assert (told["state"], told["kind"], told["name"]) == ("running", "search index", "/data/search")
    assert (told["lag_rows"], told["lag_bytes"], told["lag_s"]) == (3, 300, 1.2)
    assert (told["told_ms_ago"], told["arrived_count"]) == (500, 1)
    assert (told["took_ms_p50"], told["took_ms_max"]) == (1_100, 1_100)


def test_a_store_whose_status_is_gone_is_shown_no_more() -> None:
    travels = Travels()
    travels.take([store(5, 1_000), store(5, 1_000, pipeline="cache")], [change(5)])
    travels.take([store(5, 2_000)], [])

    told = travels.as_json(0, with_keys=False)
    assert [each["pipeline"] for each in told["stores"]] == ["search"]
    assert told["changes"][0]["stores"].keys() == {"search"}


def test_only_the_newest_changes_are_remembered_and_shown() -> None:
    travels = Travels()
    count = CHANGE_COUNT_MAX + 100
    travels.take([store(0, 1_000)], [change(offset, committed_ms=offset) for offset in range(count)])

    found = travels.as_json(0, with_keys=False)["changes"]
    assert [each["offset"] for each in found] == [count - 1 - number for number in range(SHOWN_COUNT_MAX)]
    travels.take([store(count, 2_000)], [])
    (told,) = travels.as_json(0, with_keys=False)["stores"]
    assert told["arrived_count"] == CHANGE_COUNT_MAX


def test_half_of_what_is_shown_has_arrived_also_where_the_newest_changes_have_not() -> None:
    travels, count = Travels(), 10 * SHOWN_COUNT_MAX
    both = [store(count // 2, 1_000), store(count // 4, 1_000, pipeline="cache")]
    travels.take(both, [change(offset, committed_ms=offset) for offset in range(count)])

    found = [each["offset"] for each in travels.as_json(0, with_keys=False)["changes"]]
    half = SHOWN_COUNT_MAX // 2
    everywhere = [count // 4 - 1 - number for number in range(half)]
    assert found == [*(count - 1 - number for number in range(half)), *everywhere]


def test_looks_are_kept_for_a_while_only() -> None:
    travels = Travels()
    for number in range(3 * LOOK_COUNT_MAX):
        travels.take([store(number, number * 1_000)], [])
    last = 3 * LOOK_COUNT_MAX - 1
    travels.take(
        [store(last, last * 1_000 + 1)], [change(10), change(last - 2, committed_ms=(last - 2) * 1_000)]
    )

    assert shown(travels, 10) == (True, None)
    assert shown(travels, last - 2) == (True, 1_000)


def test_followers_are_stores_and_topics_that_are_made_of_the_same() -> None:
    def writes(pipeline: str, kind: str, name: str, *reads: str) -> Store:
        return Store(
            pipeline=pipeline,
            kind=kind,
            name=name,
            state="running",
            reads=reads,
            next_offsets={},
            updated_ms=0,
        )

    found = followers(
        [
            writes("search", "search index", "/data/search", "products"),
            writes("view", "topic", "sold-products", "products", "orders"),
            writes("products.dead-letters-1", "topic", "products.dead-letters", "products"),
            writes("other", "topic", "alerts", "transactions"),
        ]
    )
    assert [each.pipeline for each in found] == ["search", "view"]
    assert followers([writes("other", "topic", "alerts", "transactions")]) == []


@st.composite
def timelines(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Statuses of a store as (next offset, time), and changes as (offset, commit time)."""
    steps = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3_000)), min_size=1, max_size=30))
    statuses, next_offset, now_ms = [(0, 0)], 0, 0
    for more, ms in steps:
        next_offset, now_ms = next_offset + more, now_ms + ms
        statuses.append((next_offset, now_ms))
    changes = [(offset, draw(st.integers(0, now_ms))) for offset in range(next_offset + 3)]
    return statuses, changes


@given(timeline=timelines(), learnt=st.lists(st.integers(0, 40), min_size=200, max_size=200))
def test_when_a_change_is_learnt_of_does_not_matter(
    timeline: tuple[list[tuple[int, int]], list[tuple[int, int]]], learnt: list[int]
) -> None:
    statuses, changes = timeline
    travels = Travels()
    for number, (next_offset, updated_ms) in enumerate(statuses):
        is_last = number == len(statuses) - 1
        news = [
            change(offset, committed_ms)
            for offset, committed_ms in changes
            if learnt[offset] == number or (is_last and learnt[offset] > number)
        ]
        travels.take([store(next_offset, updated_ms)], news)

    found = {
        each["offset"]: each["stores"]["search"] for each in travels.as_json(0, with_keys=False)["changes"]
    }
    newest = sorted(changes, key=lambda each: each[1], reverse=True)
    assert len(found) == min(len(changes), SHOWN_COUNT_MAX)
    for offset, committed_ms in newest:
        if offset not in found:
            continue
        arrived_ms = next((ms for next_offset, ms in statuses if next_offset > offset), None)
        assert found[offset]["has"] == (arrived_ms is not None)
        if arrived_ms is not None:
            assert found[offset]["took_ms"] == max(0, arrived_ms - committed_ms)
