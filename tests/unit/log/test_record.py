from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptBatch
from headrace.log.record import Record, read_record, read_varint, write_record, write_varint

times = st.integers(0, 2**41)
optional_bytes = st.none() | st.binary(max_size=50)
headers = st.lists(st.tuples(st.text(max_size=10), optional_bytes), max_size=4).map(tuple)
records = st.builds(Record, timestamp_ms=times, key=optional_bytes, value=optional_bytes, headers=headers)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_varint_reads_back_as_it_was_written(value: int) -> None:
    out = bytearray()
    write_varint(out, value)
    assert read_varint(bytes(out), 0) == (value, len(out))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (300, "d804")],
)
def test_a_varint_is_zigzag_with_the_low_bits_first(value: int, encoded: str) -> None:
    out = bytearray()
    write_varint(out, value)
    assert out.hex() == encoded


def test_a_varint_that_never_ends_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="more than ten bytes"):
        read_varint(b"\xff" * 20, 0)


@given(records, st.integers(0, 2**31 - 1), times)
def test_a_record_reads_back_with_its_offset(record: Record, delta: int, base_timestamp_ms: int) -> None:
    out = bytearray()
    write_record(out, record, offset_delta=delta, base_timestamp_ms=base_timestamp_ms)
    read, end = read_record(bytes(out), 0, base_offset=1000, base_timestamp_ms=base_timestamp_ms)
    assert end == len(out)
    assert read == Record(
        timestamp_ms=record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=record.headers,
        offset=1000 + delta,
    )


@given(records, st.data())
def test_a_record_that_is_cut_short_is_refused(record: Record, data: st.DataObject) -> None:
    out = bytearray()
    write_record(out, record, offset_delta=0, base_timestamp_ms=0)
    cut = data.draw(st.integers(0, len(out) - 1))
    with pytest.raises(CorruptBatch):
        read_record(bytes(out[:cut]), 0, base_offset=0, base_timestamp_ms=0)


@given(st.binary(max_size=60))
def test_garbage_is_refused_or_read_but_never_breaks_the_reader(data: bytes) -> None:
    try:
        _, end = read_record(data, 0, base_offset=0, base_timestamp_ms=0)
    except CorruptBatch:
        return
    assert end <= len(data)


def test_a_header_key_must_be_text() -> None:
    out = bytearray()
    write_record(
        out,
        Record(timestamp_ms=0, key=None, value=None, headers=(("ab", None),)),
        offset_delta=0,
        base_timestamp_ms=0,
    )
    with pytest.raises(CorruptBatch, match="not UTF-8"):
        read_record(bytes(out).replace(b"ab", b"\xff\xfe"), 0, base_offset=0, base_timestamp_ms=0)
