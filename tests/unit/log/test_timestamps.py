from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.batch import APPEND_TIME, CODECS, HEADER_BYTES, decode_records, encode_batch, read_header
from headrace.log.batch import sign as signed
from headrace.log.compression import deflate
from headrace.log.record import Record
from headrace.log.timestamps import TimestampedOffset, first_record_since

MakeBatch = Callable[..., bytes]
Sign = Callable[[bytes], bytes]

records = st.builds(
    Record,
    timestamp_ms=st.integers(0, 2**40),
    key=st.none() | st.binary(max_size=200),
    value=st.none() | st.binary(max_size=200),
)


@given(st.lists(records, min_size=1, max_size=10), st.data())
def test_the_record_found_is_the_first_that_a_full_reading_finds(
    written: list[Record], data: st.DataObject
) -> None:
    codec, has_append_time = data.draw(st.sampled_from(CODECS)), data.draw(st.booleans())
    batch = _compressed(encode_batch(written, base_offset=70), codec, has_append_time=has_append_time)
    since = data.draw(st.integers(0, max(record.timestamp_ms for record in written)))
    from_offset = data.draw(st.integers(60, 90))
    suitable = (
        TimestampedOffset(record.offset, record.timestamp_ms)
        for record in decode_records(batch)
        if record.timestamp_ms >= since and record.offset >= from_offset
    )
    assert first_record_since(batch, since, from_offset) == next(suitable, None)


def _compressed(batch: bytes, codec: str, *, has_append_time: bool) -> bytes:
    attributes = CODECS.index(codec) | (APPEND_TIME if has_append_time else 0)
    header = read_header(batch)._replace(attributes=attributes)
    return bytes(signed(header, deflate(codec, batch[HEADER_BYTES:])).data)


def test_nothing_is_read_after_the_record_that_is_found(make_batch: MakeBatch, sign: Sign) -> None:
    batch = make_batch(at=[10, 20, 30])
    first_two_bytes = 2 * (len(batch) - HEADER_BYTES) // 3
    spoilt = batch[: HEADER_BYTES + first_two_bytes] + b"\xff" * 20
    assert first_record_since(sign(spoilt), 15) == TimestampedOffset(1, 20)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00\x00",
        b"\xff" * 20,
        bytes((1, 0, 20, 0, 1, 1, 0)),
        bytes((0x7E, 0, 0, 0, 1, 1, 0)),
        bytes((12, 0, 20, 40, 1, 1, 0)),
        bytes((12, 0, 20, 1, 1, 1, 0)),
    ],
    ids=["nothing", "no length", "no end", "negative length", "too long", "too high", "below the batch"],
)
def test_records_that_cannot_be_read_lead_to_the_first_offset_of_their_batch(
    make_batch: MakeBatch, sign: Sign, body: bytes
) -> None:
    batch = make_batch(at=[10, 30])[:HEADER_BYTES] + body
    assert first_record_since(sign(batch), 15) == TimestampedOffset(0, 30)
