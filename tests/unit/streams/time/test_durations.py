"""Lengths of time are read as people write them, and refused with a sentence."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.streams.time.durations import delay_us, duration_text, duration_us, offset_us


@pytest.mark.parametrize(
    ("text", "length_us"),
    [
        ("30 seconds", 30_000_000),
        ("1 second", 1_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("  2 Days ", 172_800_000_000),
        ("1 week", 604_800_000_000),
        ("250 milliseconds", 250_000),
        ("7 microseconds", 7),
        ("10minutes", 600_000_000),
    ],
)
def test_a_length_of_time_is_written_as_numbers_with_units(text: str, length_us: int) -> None:
    assert duration_us(text, "size") == length_us


def test_a_timedelta_is_a_length_of_time() -> None:
    assert duration_us(timedelta(minutes=1, microseconds=3), "size") == 60_000_003


@pytest.mark.parametrize(
    "text", ["", "soon", "10", "seconds", "1.5 seconds", "1 second,", "1 hour and 1 minute"]
)
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(PipelineError, match=r"size is .* no length of time; write '30 seconds'"):
        duration_us(text, "size")


@pytest.mark.parametrize("text", ["1 month", "2 years", "3 fortnights"])
def test_units_without_a_fixed_length_are_refused(text: str) -> None:
    with pytest.raises(PipelineError, match="has no fixed length; there are weeks, days"):
        duration_us(text, "size")


def test_a_number_is_refused_since_nobody_can_see_its_unit() -> None:
    with pytest.raises(PipelineError, match="size is 10, but must be a string"):
        duration_us(10, "size")  # type: ignore[arg-type]  # the mistake that is tested


def test_a_window_of_no_length_is_refused_but_a_delay_of_none_is_not() -> None:
    with pytest.raises(PipelineError, match="longer than nothing"):
        duration_us("0 seconds", "size")
    assert delay_us("0 seconds", "delay") == 0
    with pytest.raises(PipelineError, match="not be less than nothing"):
        delay_us("-1 second", "delay")


def test_an_offset_can_be_to_either_side() -> None:
    assert offset_us("-2 hours", "offset") == -7_200_000_000


def test_lengths_that_would_overflow_are_refused() -> None:
    with pytest.raises(PipelineError, match="longer than 10,000 years"):
        duration_us("99999999999999999999 weeks", "size")


@given(st.integers(-(10**17), 10**17))
def test_a_length_in_words_is_read_as_the_same_length(length_us: int) -> None:
    assert offset_us(duration_text(length_us), "size") == length_us
