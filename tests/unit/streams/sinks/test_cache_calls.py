"""How rows of a cache are put together to calls, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.streams.sinks.cache import calls as module
from headrace.streams.sinks.cache.calls import Row, arguments, calls, refusal
from headrace.streams.sinks.cache.fields import field_of

ROWS = st.lists(st.tuples(st.binary(max_size=4), st.none() | st.binary(max_size=4)), max_size=20)


@given(ROWS)
def test_calls_have_all_rows_in_their_order_and_none_is_too_long(rows: list[Row]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "CALL_ROWS_MAX", 3)
        patched.setattr(module, "CALL_BYTES_MAX", 8)
        made = list(calls(rows))
    assert [row for call in made for row in call] == rows
    for call in made:
        assert 1 <= len(call) <= 3
        # One row goes, however large it is.
        assert len(call) == 1 or sum(len(field) + len(value or b"") for field, value in call) <= 8


def test_a_call_removes_some_fields_and_writes_the_others() -> None:
    call: list[Row] = [(b"a", b"1"), (b"b", None), (b"c", b""), (b"d", None)]
    assert arguments(4, 7, call) == [4, 7, 2, b"b", b"d", b"a", b"1", b"c", b""]
    assert arguments(4, 7, []) == [4, 7, 0]


def test_rows_that_are_too_large_are_refused_with_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIELD_BYTES_MAX", 3)
    monkeypatch.setattr(module, "VALUE_BYTES_MAX", 5)
    assert refusal((b"abc", b"12345")) is None
    assert refusal((b"abc", None)) is None
    assert "its key has 4 bytes, and a cache takes 3" in str(refusal((b"abcd", None)))
    assert "it has 6 bytes as JSON, and a cache takes 5" in str(refusal((b"abc", b"123456")))


def test_a_key_of_one_column_is_its_own_field_and_several_are_joined() -> None:
    assert field_of(["a:b\\c"]) == "a:b\\c"
    assert field_of(["42", "1"]) == "42:1"
    assert field_of(["a:b", "c\\d"]) == "a\\:b:c\\\\d"


TEXTS = st.lists(st.text(alphabet="a:\\"), min_size=2, max_size=3)


@given(TEXTS, TEXTS)
def test_no_two_keys_have_the_same_field(one: list[str], other: list[str]) -> None:
    assert len(one) != len(other) or (field_of(one) == field_of(other)) == (one == other)
