"""Where the feed starts to read, and when it starts anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.console.feed import Start, starts, went_back


def test_reading_starts_so_many_records_before_the_end() -> None:
    assert starts({0: 1_000}, {0: 0}, 200) == [Start(partition=0, first=800, live_from=1_000)]


def test_reading_starts_at_the_beginning_of_a_short_or_trimmed_partition() -> None:
    assert starts({0: 50, 1: 1_000}, {0: 0, 1: 950}, 200) == [
        Start(partition=0, first=0, live_from=50),
        Start(partition=1, first=950, live_from=1_000),
    ]


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 500))
def test_a_start_is_always_an_offset_that_the_partition_has_or_its_end(
    first: int, size: int, count: int
) -> None:
    (start,) = starts({0: first + size}, {0: first}, count)
    assert first <= start.first <= start.live_from
    assert start.live_from - start.first <= count


def test_a_topic_that_grows_or_gains_partitions_is_the_same_topic() -> None:
    assert not went_back({0: 5}, {0: 9, 1: 0})


def test_a_topic_that_shrinks_or_vanishes_is_another_one() -> None:
    assert went_back({0: 5}, {0: 4})
    assert went_back({0: 0}, {})
