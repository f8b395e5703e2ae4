"""How `headrace produce` makes a record of a line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.line_format import LineFormat
from headrace.cli.record_json import OutgoingRecord
from headrace.errors import ConfigError

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT)
def test_without_a_key_the_whole_line_is_the_value(line: str) -> None:
    assert LineFormat().read(line, 1) == OutgoingRecord(value=line.encode())


@given(st.text(st.characters(exclude_characters=":", exclude_categories=["Cs"])), TEXT)
def test_only_the_first_separator_ends_the_key(key: str, value: str) -> None:
    record = LineFormat(key_separator=":").read(f"{key}:{value}", 1)
    assert record == OutgoingRecord(key=key.encode(), value=value.encode())


def test_a_line_without_the_separator_is_named_by_its_number() -> None:
    with pytest.raises(ConfigError, match="line 7 has no key separator"):
        LineFormat(key_separator=":").read("no separator here", 7)


@given(st.dictionaries(TEXT, st.integers() | TEXT), st.integers() | TEXT)
def test_a_json_field_becomes_the_key_and_the_line_stays_whole(
    fields: dict[str, object], key: object
) -> None:
    line = json.dumps({**fields, "id": key})
    assert LineFormat(key_field="id").read(line, 1) == OutgoingRecord(
        key=str(key).encode(), value=line.encode()
    )


@pytest.mark.parametrize("line", ["not json", "[1]", '{"other": 1}', '{"id": null}', "3", "[" * 100_000])
def test_a_line_whose_key_field_is_missing_is_refused(line: str) -> None:
    with pytest.raises(ConfigError, match="line 2"):
        LineFormat(key_field="id").read(line, 2)


def test_a_value_that_reads_like_the_tombstone_becomes_null() -> None:
    line_format = LineFormat(key_separator="=", tombstone="NULL")
    assert line_format.read("k=NULL", 1) == OutgoingRecord(key=b"k", value=None)
    assert line_format.read("k=null", 1) == OutgoingRecord(key=b"k", value=b"null")


def test_lines_that_must_be_json_are_checked() -> None:
    assert LineFormat(must_be_json=True).read('{"a": 1}', 1).value == b'{"a": 1}'
    with pytest.raises(ConfigError, match="line 3 is not JSON"):
        LineFormat(must_be_json=True).read("{oops", 3)


def test_two_sources_of_keys_are_refused() -> None:
    with pytest.raises(ConfigError, match="--key or --key-field"):
        LineFormat(key="a", key_field="b").check(reads_records=False)
    with pytest.raises(ConfigError, match="brings keys"):
        LineFormat(key="a").check(reads_records=True)
