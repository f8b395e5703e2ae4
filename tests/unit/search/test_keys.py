"""Texts of keys."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import UsageError
from headrace.search.keys import key_text

PLAIN = st.one_of(st.integers(), st.text(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False))


@given(st.lists(PLAIN, min_size=1))
def test_a_key_is_a_json_array_of_its_values(values: list[object]) -> None:
    assert json.loads(key_text(values)) == values


@given(st.decimals(allow_nan=False, allow_infinity=False, places=18), st.integers(0, 5))
def test_a_decimal_has_one_text_however_many_zeros_it_ends_in(value: Decimal, zeros: int) -> None:
    longer = Decimal(f"{value:f}{'0' * zeros}")
    assert longer == value
    assert key_text([longer]) == key_text([value])
    assert Decimal(key_text([value])[1:-1]) == value


def test_a_decimal_of_38_digits_is_not_rounded() -> None:
    assert key_text([Decimal("12345678901234567890.123456789012345678")]) == (
        "[12345678901234567890.123456789012345678]"
    )


def test_moments_are_told_in_utc_and_local_times_as_they_are() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=2)))
    assert key_text([at]) == key_text([at.astimezone(UTC)]) == '["2026-01-02T01:04:05.000006+00:00"]'
    assert key_text([at.replace(tzinfo=None)]) == '["2026-01-02T03:04:05.000006"]'
    assert key_text([date(2026, 1, 2), b"\xff", True, "x"]) == '["2026-01-02","/w==",true,"x"]'


def test_what_can_be_no_key_is_refused() -> None:
    with pytest.raises(UsageError, match=r"None can't be part of a key"):
        key_text([None])
    with pytest.raises(UsageError, match=r"\[1\] can't be part of a key"):
        key_text([[1]])
