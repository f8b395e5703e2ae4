"""JSON that is read and written with its numbers as they stood there."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from headrace.streams.sinks.opensearch.read import Numbers


def test_numbers_stay_as_they_were_written() -> None:
    numbers = Numbers()
    text = '{"a": 1.50, "b": -12345678901234567890.123456789012345678, "c": 1.0E300, "d": ["1.50", 2]}'
    assert numbers.write(numbers.read(text)) == text


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.booleans(), st.none())))
def test_all_else_stays_the_same(values: dict[str, object]) -> None:
    numbers = Numbers()
    assert json.loads(numbers.write(numbers.read(json.dumps(values)))) == values
