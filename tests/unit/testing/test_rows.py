"""How rows are written and compared by the test kit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.testing.rows import LINES_SHOWN_MAX, difference, encode, plain


@dataclass
class Order:
    id: str
    at: datetime


ROWS = st.lists(st.fixed_dictionaries({"id": st.sampled_from("abc"), "n": st.integers(0, 2)}), max_size=8)


def test_a_row_becomes_json_and_text_stays_as_it_is() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=1)))
    assert json.loads(encode(Order("a", at))) == {"id": "a", "at": "2026-01-02T02:04:05.000006Z"}
    assert json.loads(encode({"n": 1})) == {"n": 1}
    assert (encode("text"), encode(b"\xff")) == (b"text", b"\xff")


def test_what_json_has_not_gets_the_form_that_pipelines_write() -> None:
    row = {
        "days": [date(2026, 1, 2)],
        "local": datetime(2026, 1, 2),  # noqa: DTZ001 - a time without a zone is what is meant
        "price": Decimal("0.5"),
    }
    assert plain(row) == {"days": ["2026-01-02"], "local": "2026-01-02T00:00:00.000000", "price": 0.5}


def test_what_is_no_row_is_refused() -> None:
    with pytest.raises(TypeError, match="7 is no row"):
        encode(7)


@given(ROWS, st.randoms())
def test_the_same_rows_in_another_order_don_t_differ(rows: list[dict[str, Any]], random: Any) -> None:
    other = list(rows)
    random.shuffle(other)
    assert difference(rows, other, of="t") is None


@given(ROWS, ROWS)
def test_rows_differ_unless_they_are_the_same_so_many_times(
    expected: list[dict[str, Any]], found: list[dict[str, Any]]
) -> None:
    def in_order(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
        return sorted((row["id"], row["n"]) for row in rows)

    assert (difference(expected, found, of="t") is None) == (in_order(expected) == in_order(found))


def test_a_difference_tells_what_is_missing_unexpected_and_different() -> None:
    told = difference(
        [{"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "c", "n": 3}],
        [{"id": "a", "n": 7}, {"id": "b", "n": 2}, {"other": 1}, {"other": 2}],
        of="topic t",
    )
    assert told is not None
    assert told.splitlines() == [
        "topic t has other rows than expected (4 rows, not 3):",
        "  different   {'id': 'a'}: n is 7, not 1",
        "  missing     {'id': 'c', 'n': 3}",
        "  unexpected  {'other': 1}",
        "  unexpected  {'other': 2}",
    ]


def test_a_column_that_one_of_them_lacks_is_told() -> None:
    told = difference([{"id": "a", "n": 1}], [{"id": "a", "m": 1}], of="t")
    assert told is not None
    assert told.endswith("{'id': 'a'}: n is missing, not 1, m is 1, not missing")


def test_values_may_be_approximate_and_moments_are_compared_as_written() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    expected = {"n": pytest.approx(0.3), "at": at}
    assert difference([expected], [{"n": 0.1 + 0.2, "at": "2026-01-02T00:00:00.000000Z"}], of="t") is None


def test_a_long_difference_is_cut_off() -> None:
    told = difference([], [{"n": number} for number in range(100)], of="t")
    assert told is not None
    assert told.splitlines()[-1] == f"  ... and {100 - LINES_SHOWN_MAX} more"
