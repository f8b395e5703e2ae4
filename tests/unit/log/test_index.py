from __future__ import annotations

import struct
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptBatch
from headrace.log.batch import BatchHeader, encode_batch, read_header
from headrace.log.index import SegmentIndex
from headrace.log.record import Record

BASE = 1_000_000

layouts = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 300), st.integers(0, 50)), min_size=1, max_size=30
)
"""Batches as (records, bytes in a value, timestamp)."""


def _headers(layout: list[tuple[int, int, int]]) -> list[BatchHeader]:
    headers = []
    offset = BASE
    for count, value_bytes, timestamp_ms in layout:
        records = [Record(timestamp_ms=timestamp_ms, key=None, value=bytes(value_bytes))] * count
        headers.append(read_header(encode_batch(records, base_offset=offset)))
        offset += count
    return headers


def _index(headers: list[BatchHeader], interval_bytes: int) -> tuple[SegmentIndex, list[int]]:
    positions = [0, *accumulate(header.size_bytes for header in headers)]
    index = SegmentIndex(BASE, interval_bytes)
    for header, position in zip(headers, positions, strict=False):
        index.add(header, position)
    return index, positions


def _reload(index: SegmentIndex, segment_bytes: int) -> SegmentIndex:
    return SegmentIndex.decode(
        BASE,
        1,
        offsets=index.encode_offsets(),
        times=index.encode_times(),
        segment_bytes=segment_bytes,
    )


@given(layouts, st.integers(1, 1000))
def test_a_lookup_never_leads_past_the_batch_and_always_to_a_batch(
    layout: list[tuple[int, int, int]], interval_bytes: int
) -> None:
    headers = _headers(layout)
    index, positions = _index(headers, interval_bytes)
    for header, position in zip(headers, positions, strict=False):
        for offset in range(header.base_offset, header.last_offset + 1):
            _, found = index.floor_by_offset(offset)
            assert found in positions
            assert position - found <= interval_bytes + 2 * max(each.size_bytes for each in headers)
            assert found <= position
    for position in range(0, positions[-1], 13):
        assert index.floor_by_position(position) in positions
        assert index.floor_by_position(position) <= position


@given(layouts, st.integers(1, 1000), st.integers(-1, 51))
def test_no_batch_before_the_time_entry_reaches_the_time(
    layout: list[tuple[int, int, int]], interval_bytes: int, timestamp_ms: int
) -> None:
    headers = _headers(layout)
    index, _ = _index(headers, interval_bytes)
    index.seal()
    entry = index.floor_by_timestamp(timestamp_ms)
    before = [] if entry is None else [each for each in headers if each.last_offset < entry.offset]
    assert all(header.max_timestamp_ms < timestamp_ms for header in before)
    assert index.max_timestamp.timestamp_ms == max(header.max_timestamp_ms for header in headers)


@given(layouts, st.integers(1, 500))
def test_the_files_read_back_as_the_same_index(
    layout: list[tuple[int, int, int]], interval_bytes: int
) -> None:
    index, positions = _index(_headers(layout), interval_bytes)
    index.seal()
    reloaded = _reload(index, positions[-1])
    assert reloaded.encode_offsets() == index.encode_offsets()
    assert reloaded.encode_times() == index.encode_times()
    assert reloaded.max_timestamp == index.max_timestamp


def test_the_files_are_in_kafkas_format() -> None:
    index, _ = _index(_headers([(2, 100, 7), (3, 100, 9), (1, 100, 8)]), interval_bytes=1)
    index.seal()
    second, third = 279, 667
    assert index.encode_offsets() == b"".join(number.to_bytes(4, "big") for number in (4, second, 5, third))
    assert index.encode_times() == (9).to_bytes(8, "big") + (4).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("offsets", "times", "reason"),
    [
        (b"\x00" * 7, b"", "middle of an entry"),
        (b"", b"\x00" * 13, "middle of an entry"),
        (bytes.fromhex("00000001 00001000"), b"", "past the end"),
    ],
)
def test_files_that_cannot_be_right_are_refused(offsets: bytes, times: bytes, reason: str) -> None:
    with pytest.raises(CorruptBatch, match=reason):
        SegmentIndex.decode(BASE, 1, offsets=offsets, times=times, segment_bytes=1000)


@given(layouts, st.integers(1, 1000), st.data())
def test_an_index_that_goes_on_from_a_mark_becomes_the_same(
    layout: list[tuple[int, int, int]], interval_bytes: int, data: st.DataObject
) -> None:
    headers = _headers(layout)
    marked = data.draw(st.integers(0, len(headers)))
    whole, positions = _index(headers, interval_bytes)
    before, _ = _index(headers[:marked], interval_bytes)
    later = SegmentIndex.after(before.mark, BASE, interval_bytes)
    for header, position in zip(headers[marked:], positions[marked:], strict=False):
        later.add(header, position)
    for index in (whole, later):
        index.seal()
    assert later.mark == whole.mark
    offset_entries, time_entries = later.entries_before
    files = {
        "offsets": before.encode_offsets() + later.encode_offsets(offset_entries),
        "times": before.encode_times() + later.encode_times(time_entries),
    }
    assert files == {"offsets": whole.encode_offsets(), "times": whole.encode_times()}
    joined = SegmentIndex.joined(later, offsets=before.encode_offsets(), times=before.encode_times())
    assert (joined.is_whole, joined.is_sealed, joined.mark) == (True, True, whole.mark)
    assert joined.encode_offsets() == whole.encode_offsets()
    assert joined.encode_times() == whole.encode_times()


def test_an_index_file_that_is_too_short_is_not_joined() -> None:
    headers = _headers([(1, 100, 10 * n) for n in range(20)])
    before, _ = _index(headers[:10], 1)
    later = SegmentIndex.after(before.mark, BASE, 1)
    for offsets, times in (
        (before.encode_offsets()[:-8], before.encode_times()),
        (before.encode_offsets(), before.encode_times()[:-12]),
        (before.encode_offsets()[:-1], before.encode_times()),
    ):
        with pytest.raises(CorruptBatch, match="index file"):
            SegmentIndex.joined(later, offsets=offsets, times=times)


def test_the_files_are_kafkas() -> None:
    headers = _headers([(2, 100, 5), (3, 100, 2**33 + 7), (1, 100, 6)])
    index, positions = _index(headers, 1)
    assert index.encode_offsets() == struct.pack(">IIII", 4, positions[1], 5, positions[2])
    assert index.encode_times() == struct.pack(">qI", 2**33 + 7, 4)
