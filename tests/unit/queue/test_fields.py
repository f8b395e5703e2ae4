from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import QueueRefused
from headrace.queue.fields import join, read_table, split, write_table, write_value
from headrace.queue.properties import facts_of, headers_of, with_headers, write_properties

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.integers(0, 2**33).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, 9)).map(lambda p: Decimal(p[0]).scaleb(-p[1])),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
tables = st.dictionaries(st.text(max_size=20), values, max_size=6)


@given(tables)
@settings(max_examples=200)
def test_a_table_is_read_as_it_was_written(table: dict[str, object]) -> None:
    data = write_table(table)
    assert read_table(data) == table
    assert join(split(data)) == data


@given(st.binary(max_size=60))
@settings(max_examples=300)
def test_bytes_that_are_no_table_are_refused_and_nothing_else_happens(data: bytes) -> None:
    for read in (read_table, split, facts_of):
        with suppress(QueueRefused):
            read(data)


def test_nesting_has_a_limit() -> None:
    value: object = 1
    for _ in range(40):
        value = [value]
    with pytest.raises(QueueRefused, match="nested too deeply"):
        read_table(write_table({"deep": value}))


def test_properties_say_what_the_broker_has_to_know() -> None:
    headers = write_table({"a": 1})
    properties = write_properties(headers=headers, is_persistent=True, priority=7, expiration="250")
    facts = facts_of(properties)
    assert (facts.is_persistent, facts.priority, facts.expiration_ms) == (True, 7, 250)
    assert headers_of(properties) == {"a": 1}


@given(tables, st.booleans())
@settings(max_examples=100)
def test_changed_headers_leave_everything_else_as_it_was(table: dict[str, object], keeps: bool) -> None:
    before = write_properties(headers=write_table(table), is_persistent=True, priority=3, expiration="9")
    after = with_headers(before, {b"new": write_value("x"), b"gone": None}, keeps_expiration=keeps)
    expected = {name: value for name, value in table.items() if name not in {"new", "gone"}}
    assert headers_of(after) == {"new": "x"} | expected
    facts = facts_of(after)
    assert (facts.is_persistent, facts.priority) == (True, 3)
    assert facts.expiration_ms == (9 if keeps else None)


def test_headers_can_be_added_where_there_are_none() -> None:
    assert headers_of(with_headers(b"\x00\x00", {b"a": write_value(1)})) == {"a": 1}
