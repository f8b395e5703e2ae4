"""How `headrace produce` cuts a line into key and value."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.produce import LineFormat
from headrace.errors import ConfigError


@given(st.text())
def test_without_a_key_the_whole_line_is_the_value(line: str) -> None:
    assert LineFormat().split(line, 1) == (None, line)


@given(st.text(st.characters(exclude_characters=":")), st.text())
def test_only_the_first_separator_ends_the_key(key: str, value: str) -> None:
    assert LineFormat(key_separator=":").split(f"{key}:{value}", 1) == (key, value)


def test_a_line_without_the_separator_is_named_by_its_number() -> None:
    with pytest.raises(ConfigError, match="line 7 has no key separator"):
        LineFormat(key_separator=":").split("no separator here", 7)


@given(st.dictionaries(st.text(), st.integers() | st.text()), st.integers() | st.text())
def test_a_json_field_becomes_the_key_and_the_line_stays_whole(
    fields: dict[str, object], key: object
) -> None:
    line = json.dumps({**fields, "id": key})
    assert LineFormat(key_field="id").split(line, 1) == (str(key), line)


@pytest.mark.parametrize("line", ["not json", "[1]", '{"other": 1}', '{"id": null}', "3"])
def test_a_line_whose_key_field_is_missing_is_refused(line: str) -> None:
    with pytest.raises(ConfigError, match="line 2"):
        LineFormat(key_field="id").split(line, 2)
