"""How far a query is behind."""

from __future__ import annotations

from headrace.driver.lag import behind, places_of


def test_the_lag_is_what_lies_beyond_the_next_offsets() -> None:
    ends = {("orders", 0): 10, ("orders", 1): 3, ("prices", 0): 8}
    assert behind({"orders": {0: 4, 1: 3}, "prices": {0: 9, 1: 5}}, ends) == 6


def test_the_places_are_all_partitions_that_are_read() -> None:
    assert places_of({"orders": {0: 4, 1: 3}, "prices": {0: 9}}) == [
        ("orders", 0),
        ("orders", 1),
        ("prices", 0),
    ]
