"""Records as the page of a topic shows them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.console.messages import TopicRecord, as_text, newest


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, None),
        (b"", ""),
        (b"plain", "plain"),
        ("grün ☃".encode(), "grün ☃"),
        (b"\x00\xff\x10", "0x00ff10"),
        (b"x" * 11, "x" * 9 + "…"),
    ],
)
def test_bytes_become_text_or_hexadecimal(data: bytes | None, text: str | None) -> None:
    assert as_text(data, 10) == text


@given(st.text(max_size=50), st.integers(8, 40))
def test_utf8_is_shown_as_it_is_and_cut_at_a_character(text: str, length_max: int) -> None:
    shown = as_text(text.encode(errors="replace"), length_max)
    whole = text.encode(errors="replace").decode()
    assert shown == whole if len(whole) <= length_max else shown == whole[: length_max - 1] + "…"


@given(st.binary(max_size=300), st.integers(8, 40))
def test_whatever_the_bytes_are_their_text_is_bounded(data: bytes, length_max: int) -> None:
    shown = as_text(data, length_max)
    assert shown is not None
    assert len(shown) <= length_max + 3


def record(partition: int, offset: int, timestamp_ms: int | None) -> TopicRecord:
    return TopicRecord(
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        key=None,
        value=None,
        size_bytes=0,
        headers=(),
    )


def test_the_newest_come_first_and_those_of_a_partition_keep_their_order() -> None:
    records = [record(0, 1, 10), record(1, 1, 30), record(0, 2, 10), record(1, 2, 20), record(0, 0, None)]
    assert [(each.partition, each.offset) for each in newest(records, 4)] == [(1, 1), (1, 2), (0, 2), (0, 1)]
