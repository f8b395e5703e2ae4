"""Parts of the log between two bounds."""

from __future__ import annotations

import random

import pytest

from headrace.errors import ConfigError
from headrace.streams.spans import OPEN, Bound, Span, missing_records, parse_offsets_bound, resolve_span

FIRSTS = {("orders", 0): 5, ("orders", 1): 0}
ENDS = {("orders", 0): 20, ("orders", 1): 10}
TWO_FIRSTS = {("a", 0): 0, ("b", 0): 0}
TWO_ENDS = {("a", 0): 9, ("b", 0): 9}


def test_without_bounds_it_is_the_whole_log() -> None:
    span = resolve_span(FIRSTS, ENDS)

    assert (span.starts, span.ends, span.offset_count) == (FIRSTS, ENDS, 25)


def test_an_offset_holds_for_its_partition_and_leaves_the_others_open() -> None:
    begin, finish = Bound(offsets={(None, 0): 7}), Bound(offsets={(None, 1): 4})

    span = resolve_span(FIRSTS, ENDS, begin=begin, finish=finish)

    assert span.starts == {("orders", 0): 7, ("orders", 1): 0}
    assert span.ends == {("orders", 0): 20, ("orders", 1): 4}


def test_a_moment_is_the_first_record_as_new_as_that_and_else_the_end() -> None:
    span = resolve_span(FIRSTS, ENDS, begin=Bound(moment_ms=1), begin_at={("orders", 0): 9})

    assert span.starts == {("orders", 0): 9, ("orders", 1): 10}


def test_a_moment_before_the_first_record_is_the_first_record() -> None:
    span = resolve_span(FIRSTS, ENDS, begin=Bound(moment_ms=1), begin_at={("orders", 0): 0, ("orders", 1): 0})

    assert span.starts == FIRSTS


@pytest.mark.parametrize("offset", [4, 21])
def test_an_offset_that_the_partition_does_not_have_is_refused(offset: int) -> None:
    with pytest.raises(ConfigError, match=f"has offsets 5 to 20, and {offset} is none of them"):
        resolve_span(FIRSTS, ENDS, begin=Bound(offsets={(None, 0): offset}))


def test_a_partition_that_is_not_read_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"orders:7 is none of .*: orders:0, orders:1"):
        resolve_span(FIRSTS, ENDS, begin=Bound(offsets={(None, 7): 0}))


def test_of_several_topics_the_topic_must_be_named() -> None:
    with pytest.raises(ConfigError, match="Write a:0:3 or b:0:3"):
        resolve_span(TWO_FIRSTS, TWO_ENDS, begin=Bound(offsets={(None, 0): 3}))

    span = resolve_span(TWO_FIRSTS, TWO_ENDS, begin=Bound(offsets={("b", 0): 3}))
    assert span.starts == {("a", 0): 0, ("b", 0): 3}


def test_an_end_before_the_beginning_leaves_nothing() -> None:
    span = resolve_span(
        FIRSTS, ENDS, begin=Bound(offsets={(None, 0): 9}), finish=Bound(offsets={(None, 0): 6})
    )

    assert span.ends["orders", 0] == span.starts["orders", 0] == 9


def test_moments_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ConfigError, match="--from is later than --to"):
        resolve_span(FIRSTS, ENDS, begin=Bound(moment_ms=2), finish=Bound(moment_ms=1))


def test_a_span_can_be_taken_apart_by_topic() -> None:
    assert Span(starts=TWO_FIRSTS, ends=TWO_ENDS).of({"a"}) == Span(starts={("a", 0): 0}, ends={("a", 0): 9})


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("0:17", {(None, 0): 17}),
        ("0:17, 1:20", {(None, 0): 17, (None, 1): 20}),
        ("orders:0:17,a.b-c:3:1", {("orders", 0): 17, ("a.b-c", 3): 1}),
    ],
)
def test_offsets_are_written_by_partition(text: str, offsets: object) -> None:
    bound = parse_offsets_bound(text)

    assert bound is not None
    assert bound.offsets == offsets


@pytest.mark.parametrize("text", ["2026-11-16T09:30:00Z", "15m", "17", "0:x", "", "0:1,", "now"])
def test_anything_else_is_not_taken_for_offsets(text: str) -> None:
    assert parse_offsets_bound(text) is None


def test_records_that_are_gone_are_found() -> None:
    wanted = Span(starts={("orders", 0): 3, ("orders", 1): 0}, ends={("orders", 0): 20, ("orders", 1): 0})

    assert missing_records(wanted, {("orders", 0): 5, ("orders", 1): 7}) == {("orders", 0): 5}


@pytest.mark.parametrize("seed", range(200))
def test_a_span_lies_within_the_log_and_never_ends_before_it_begins(seed: int) -> None:
    chance = random.Random(seed)
    places = [("orders", number) for number in range(chance.randint(1, 4))]
    firsts = {place: chance.randint(0, 5) for place in places}
    ends = {place: firsts[place] + chance.randint(0, 9) for place in places}

    def bound() -> tuple[Bound, dict[tuple[str, int], int]]:
        if chance.random() < 0.3:
            return OPEN, {}
        if chance.random() < 0.5:
            named = chance.sample(places, chance.randint(1, len(places)))
            return Bound(offsets={place: chance.randint(firsts[place], ends[place]) for place in named}), {}
        known = chance.sample(places, chance.randint(0, len(places)))
        return Bound(moment_ms=7), {place: chance.randint(0, ends[place]) for place in known}

    (begin, begin_at), (finish, finish_at) = bound(), bound()
    span = resolve_span(firsts, ends, begin=begin, finish=finish, begin_at=begin_at, finish_at=finish_at)

    assert span.starts.keys() == span.ends.keys() == firsts.keys()
    assert all(firsts[each] <= span.starts[each] <= span.ends[each] <= ends[each] for each in places)
