"""Moments and durations as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.times import parse_duration_ms, parse_moment_ms
from headrace.errors import ConfigError

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("1.5s", 1_500),
        ("15m", 900_000),
        ("1h30m", 5_400_000),
        ("7d", 604_800_000),
        ("1w", 604_800_000),
        ("PT1H30M", 5_400_000),
        ("P7D", 604_800_000),
        ("P1DT12H", 129_600_000),
    ],
)
def test_durations_are_read(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "5", "h", "1x", "P", "PT", "-5m", "1h 30m"])
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigError, match="1h30m"):
        parse_duration_ms(text)


def test_a_duration_stands_for_the_moment_that_long_ago() -> None:
    assert parse_moment_ms("15m", now_ms=NOW_MS) == NOW_MS - 900_000
    assert parse_moment_ms("now", now_ms=NOW_MS) == NOW_MS


def test_a_moment_without_a_zone_is_utc() -> None:
    assert parse_moment_ms("1970-01-02", now_ms=NOW_MS) == 86_400_000
    assert parse_moment_ms("1970-01-01T01:00:00+01:00", now_ms=NOW_MS) == 0


@given(st.integers(0, 253_402_300_799_000))
def test_a_moment_is_exact_to_the_millisecond(timestamp_ms: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
    assert parse_moment_ms(moment.isoformat(), now_ms=0) == timestamp_ms
    assert parse_moment_ms(str(timestamp_ms), now_ms=0) == timestamp_ms


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "-5"])
def test_what_is_no_moment_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigError, match="15m"):
        parse_moment_ms(text, now_ms=NOW_MS)
