"""Records as lines of JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.record_json import OutgoingRecord, read_record_line, record_line
from headrace.errors import ConfigError

BYTES = st.none() | st.binary() | st.text(st.characters(exclude_categories=["Cs"])).map(str.encode)
HEADERS = st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), BYTES), max_size=3)


@given(key=BYTES, value=BYTES, headers=HEADERS, partition=st.integers(0, 9), time_ms=st.integers(0, 2**41))
def test_whatever_is_printed_can_be_read_back(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    partition: int,
    time_ms: int,
) -> None:
    place: dict[str, object] = {"topic": "t", "partition": partition, "offset": 7, "timestamp_ms": time_ms}
    record = read_record_line(record_line(place, key, value, headers), 1)
    assert record == OutgoingRecord(
        key=key, value=value, headers=tuple(headers), partition=partition, timestamp_ms=time_ms
    )


def test_bytes_that_are_no_text_stand_under_another_name() -> None:
    assert "value_base64" in json.loads(record_line({}, None, b"\xff", []))


def test_a_value_may_be_written_as_json() -> None:
    assert read_record_line('{"value": {"amount": 3}}', 1).value == b'{"amount": 3}'


@pytest.mark.parametrize(
    "line",
    [
        "oops",
        "[]",
        "{}",
        '{"key": "only a key"}',
        '{"value": "v", "partition": "first"}',
        '{"value": "v", "partition": true}',
        '{"value_base64": "%%%"}',
        '{"value": "v", "headers": [["a"]]}',
        '{"value": "v", "headers": [[1, "a"]]}',
        '{"value": "v", "headers": [["a", {"base64": "%"}]]}',
    ],
)
def test_a_line_that_is_no_record_is_named_by_its_number(line: str) -> None:
    with pytest.raises(ConfigError, match="line 4"):
        read_record_line(line, 4)
