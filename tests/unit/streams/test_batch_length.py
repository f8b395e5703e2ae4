"""Batches of queries that run together don't all end at the same time."""

from __future__ import annotations

from headrace.streams.batch_length import batch_length


def test_the_first_query_has_batches_as_long_as_asked_for_and_each_further_one_longer_ones() -> None:
    assert [batch_length(300, number) for number in range(3)] == [
        "300000 milliseconds",
        "330000 milliseconds",
        "360000 milliseconds",
    ]
    assert batch_length(5, 1) == "5500 milliseconds"


def test_queries_for_whose_results_nobody_waits_have_batches_twice_as_long() -> None:
    assert batch_length(300, 0, is_patient=True) == "600000 milliseconds"
    assert batch_length(300, 3, is_patient=True) == "780000 milliseconds"
