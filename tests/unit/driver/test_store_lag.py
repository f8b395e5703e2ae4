"""How far behind a store is, by what it has not seen yet."""

from __future__ import annotations

from headrace.driver.store_lag import StoreLag, Waiting, lag_of


def test_a_store_that_has_seen_everything_is_not_behind() -> None:
    assert lag_of(0, [], now_ms=5_000) == StoreLag(rows=0, bytes=0, seconds=0.0)


def test_the_oldest_record_that_waits_tells_the_seconds_and_the_mean_of_the_sample_the_bytes() -> None:
    sample = [Waiting(timestamp_ms=2_000, size_bytes=100), Waiting(timestamp_ms=1_500, size_bytes=300)]
    assert lag_of(10, sample, now_ms=5_000) == StoreLag(rows=10, bytes=2_000, seconds=3.5)


def test_a_clock_that_is_ahead_makes_no_lag_below_zero() -> None:
    sample = [Waiting(timestamp_ms=9_000, size_bytes=10)]
    assert lag_of(1, sample, now_ms=5_000).seconds == 0.0


def test_offsets_without_records_such_as_ends_of_transactions_have_no_age() -> None:
    assert lag_of(2, [], now_ms=5_000) == StoreLag(rows=2, bytes=0, seconds=0.0)
