from __future__ import annotations

import io
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch, RecordHeader
from kio.records.schema import Record as KioRecord
from kio.records.writers import write_new_batch
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

from headrace.errors import BatchTooLarge, CorruptBatch, HeadraceError
from headrace.log.batch import (
    APPEND_TIME,
    CODECS,
    COMPRESSED_RECORD_COUNT_MAX,
    HEADER_BYTES,
    decode_records,
    encode_batch,
    place,
    place_plain,
    read_header,
    sign,
    split_batches,
    with_base_offset,
)
from headrace.log.compression import deflate
from headrace.log.record import Record

MakeBatch = Callable[..., bytes]
Sign = Callable[[bytes], bytes]
SIZE_MAX = 1_000_000

optional_bytes = st.none() | st.binary(max_size=50)
headers = st.lists(st.tuples(st.text(max_size=10), optional_bytes), max_size=3).map(tuple)
records = st.builds(
    Record, timestamp_ms=st.integers(0, 2**41), key=optional_bytes, value=optional_bytes, headers=headers
)
whole_second_records = st.builds(
    Record,
    timestamp_ms=st.integers(0, 2**31).map(lambda seconds: seconds * 1000),
    key=optional_bytes,
    value=optional_bytes,
    headers=headers,
)
"""The other implementation drops what is less than a second when it reads."""
record_lists = st.lists(records, min_size=1, max_size=10)


def _as_kio(record: Record) -> KioRecord:
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=record.timestamp_ms)
    return KioRecord(
        attributes=i8(0),
        timestamp=TZAwareMicros.parse(time),
        offset=i64(record.offset),
        key=record.key,
        value=record.value,
        headers=tuple(RecordHeader(key=name.encode(), value=value) for name, value in record.headers),
    )


@given(record_lists)
def test_records_read_back_as_they_were_written(written: list[Record]) -> None:
    read = decode_records(encode_batch(written, base_offset=70))
    assert [(r.timestamp_ms, r.key, r.value, r.headers) for r in read] == [
        (r.timestamp_ms, r.key, r.value, r.headers) for r in written
    ]
    assert [record.offset for record in read] == list(range(70, 70 + len(written)))


@given(st.lists(whole_second_records, min_size=1, max_size=10))
def test_another_implementation_reads_our_batches(written: list[Record]) -> None:
    encoded = encode_batch(written, producer_id=7, producer_epoch=3, base_sequence=11)
    batch, size_bytes = read_batch(memoryview(encoded), 0)
    assert size_bytes == len(encoded)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, 11)
    assert list(batch.records) == [_as_kio(record) for record in decode_records(encoded)]


@given(record_lists)
def test_we_read_the_batches_of_another_implementation(written: list[Record]) -> None:
    buffer = io.BytesIO()
    new = NewRecordBatch(
        producer_id=i64(-1),
        producer_epoch=i16(-1),
        base_sequence=i32(-1),
        attributes=i16(0),
        records=tuple(
            _as_kio(
                Record(timestamp_ms=r.timestamp_ms, key=r.key, value=r.value, headers=r.headers, offset=n)
            )
            for n, r in enumerate(written)
        ),
    )
    write_new_batch(buffer, new)
    (batch,) = split_batches(buffer.getvalue(), SIZE_MAX)
    assert [r.value for r in decode_records(batch.data)] == [r.value for r in written]


def test_the_header_has_the_fields_of_the_format(make_batch: MakeBatch) -> None:
    header = read_header(make_batch(at=[50, 70, 60], producer=(9, 2, 2**31 - 2), attributes=0x13))
    assert (header.base_offset, header.magic, header.record_count) == (0, 2, 3)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (50, 70)
    assert (header.producer_id, header.producer_epoch) == (9, 2)
    assert (header.base_sequence, header.last_sequence) == (2**31 - 2, 0)
    assert (header.codec, header.is_transactional, header.is_control) == ("lz4", True, False)


def test_batches_come_apart_where_they_were_joined(make_batch: MakeBatch) -> None:
    parts = [make_batch(1), make_batch(3, value=b"x" * 500), make_batch(2)]
    assert [bytes(batch.data) for batch in split_batches(b"".join(parts), SIZE_MAX)] == parts


def test_placing_a_batch_changes_offset_and_leader_epoch_and_nothing_else(make_batch: MakeBatch) -> None:
    sent = bytearray(make_batch(4))
    sent[12:16] = b"\xff\xff\xff\xff"
    (batch,) = split_batches(bytes(sent), SIZE_MAX)
    placed = b"".join(with_base_offset(batch, 123_456_789_012))
    assert read_header(placed).base_offset == 123_456_789_012
    assert placed[12:16] == b"\x00\x00\x00\x00"
    assert placed[8:12] == sent[8:12]
    assert placed[16:] == sent[16:]
    split_batches(placed, SIZE_MAX)


def test_every_flipped_bit_is_found_but_for_the_fields_that_the_broker_sets(make_batch: MakeBatch) -> None:
    sent = make_batch(2, producer=(5, 0, 0))
    set_by_the_broker = {*range(8), *range(12, 16)}
    for position in set(range(len(sent))) - set_by_the_broker:
        for bit in range(8):
            flipped = bytearray(sent)
            flipped[position] ^= 1 << bit
            with pytest.raises((CorruptBatch, BatchTooLarge)):
                split_batches(bytes(flipped), SIZE_MAX)


def test_a_batch_that_is_cut_short_anywhere_is_refused(make_batch: MakeBatch) -> None:
    sent = make_batch(2)
    for size_bytes in range(len(sent)):
        with pytest.raises(CorruptBatch):
            split_batches(sent[:size_bytes], SIZE_MAX)


@pytest.mark.parametrize("garbage", [b"\x00", b"x" * 61, b"\x00" * 100])
def test_bytes_after_the_last_batch_are_refused(make_batch: MakeBatch, garbage: bytes) -> None:
    with pytest.raises(CorruptBatch):
        split_batches(make_batch() + garbage, SIZE_MAX)


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(HeadraceError):
        split_batches(data, SIZE_MAX)


def test_a_huge_length_is_refused_before_anything_is_sliced(make_batch: MakeBatch) -> None:
    sent = bytearray(make_batch())
    sent[8:12] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(CorruptBatch, match=f"{2**31 + 11} bytes; {len(sent)} remain"):
        split_batches(bytes(sent), 2**40)


def test_a_batch_above_the_maximum_is_refused_with_both_sizes(make_batch: MakeBatch) -> None:
    sent = make_batch(value=b"x" * 100)
    with pytest.raises(BatchTooLarge, match=rf"{len(sent)} bytes, more than the {len(sent) - 1}"):
        split_batches(sent, len(sent) - 1)
    split_batches(sent, len(sent))


def test_older_formats_are_refused_by_their_magic(make_batch: MakeBatch) -> None:
    sent = bytearray(make_batch())
    sent[16] = 1
    with pytest.raises(CorruptBatch, match="magic 1"):
        split_batches(bytes(sent), SIZE_MAX)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"attributes": 0x20}, "control batch"),
        ({"attributes": 0x07}, "unknown codec 7"),
        ({"producer": (5, 0, -1)}, "sequence -1"),
        ({"producer": (5, -1, 0)}, "epoch -1"),
    ],
)
def test_what_no_producer_may_send_is_refused(
    make_batch: MakeBatch, fields: dict[str, object], reason: str
) -> None:
    with pytest.raises(CorruptBatch, match=reason):
        split_batches(make_batch(**fields), SIZE_MAX)


def test_records_of_a_batch_that_is_not_compressed_as_it_says_are_not_guessed(make_batch: MakeBatch) -> None:
    with pytest.raises(CorruptBatch, match="compressed with zstd can't be read"):
        decode_records(make_batch(attributes=4))


@pytest.mark.parametrize("number", range(5))
def test_records_of_a_compressed_batch_can_be_read(make_batch: MakeBatch, number: int) -> None:
    plain = make_batch(3, at=[5, 6, 7])
    header = read_header(plain)._replace(attributes=number)
    compressed = sign(header, deflate(CODECS[number], plain[HEADER_BYTES:]))
    assert decode_records(compressed.data) == decode_records(plain)


def test_records_with_append_time_all_have_the_highest_timestamp(make_batch: MakeBatch) -> None:
    header = read_header(make_batch(2, at=[5, 6]))._replace(attributes=APPEND_TIME, max_timestamp_ms=99)
    batch = sign(header, make_batch(2, at=[5, 6])[HEADER_BYTES:])
    assert [record.timestamp_ms for record in decode_records(batch.data)] == [99, 99]


def test_a_record_count_that_is_too_low_is_found_when_records_are_read(make_batch: MakeBatch) -> None:
    batch = bytearray(make_batch(2))
    batch[57:61] = (1).to_bytes(4, "big")
    with pytest.raises(CorruptBatch, match="follow the last record"):
        decode_records(bytes(batch))


def test_a_header_needs_all_of_its_bytes(make_batch: MakeBatch) -> None:
    with pytest.raises(CorruptBatch, match="only 60 remain"):
        read_header(make_batch()[: HEADER_BYTES - 1])


def _claiming(batch: bytes, record_count: int) -> bytes:
    last_offset_delta = (record_count - 1).to_bytes(4, "big")
    return batch[:23] + last_offset_delta + batch[27:57] + record_count.to_bytes(4, "big") + batch[61:]


def test_a_batch_of_the_smallest_records_is_taken_but_not_one_that_claims_one_more(sign: Sign) -> None:
    batch = encode_batch([Record(timestamp_ms=1, key=None, value=None)] * 50)
    assert len(batch) == HEADER_BYTES + 50 * 7
    assert split_batches(batch, SIZE_MAX)[0].header.record_count == 50
    with pytest.raises(CorruptBatch, match="of 411 bytes says that it has 51 records; it can have 50"):
        split_batches(sign(_claiming(batch, 51)), SIZE_MAX)


@pytest.mark.parametrize("attributes", [0, 1])
def test_a_batch_of_nothing_but_a_header_has_no_records(
    make_batch: MakeBatch, sign: Sign, attributes: int
) -> None:
    empty = make_batch(attributes=attributes)[:HEADER_BYTES]
    with pytest.raises(CorruptBatch, match="says that it has 2147483647 records; it can have 0"):
        split_batches(sign(_claiming(empty, 2**31 - 1)), SIZE_MAX)


def test_a_compressed_batch_may_claim_no_more_records_than_a_client_can_gather(
    make_batch: MakeBatch, sign: Sign
) -> None:
    batch = make_batch(attributes=4)
    split_batches(sign(_claiming(batch, COMPRESSED_RECORD_COUNT_MAX)), SIZE_MAX)
    with pytest.raises(CorruptBatch, match="10000001 records"):
        split_batches(sign(_claiming(batch, COMPRESSED_RECORD_COUNT_MAX + 1)), SIZE_MAX)


def test_a_plain_batch_is_placed_as_any_other_and_all_else_is_left_to_the_general_way() -> None:
    chance = random.Random(7)
    placed_count = 0
    for _ in range(3_000):
        batch = bytearray(_any_batch(chance))
        if chance.random() < 0.5:
            batch[chance.randrange(len(batch))] ^= 1 << chance.randrange(8)
        data = bytes(batch) + bytes(chance.choice((0, 0, 0, 1)))
        if chance.random() < 0.5:
            data = _signed(data)
        size_bytes_max = chance.choice((len(data) - 1, len(data), 10_000))
        plain = place_plain(data, 77, size_bytes_max)
        if plain is None:
            continue
        placed_count += 1
        header, buffers = plain
        (expected,) = split_batches(data, size_bytes_max)
        assert header == place(expected.header, 77)
        assert not header.attributes
        assert b"".join(buffers) == b"".join(with_base_offset(expected, 77))
    assert placed_count > 300


def test_most_batches_are_plain() -> None:
    batch = encode_batch([Record(timestamp_ms=1, key=None, value=b"v")])
    assert place_plain(memoryview(batch), 0, len(batch)) is not None


def _any_batch(chance: random.Random) -> bytes:
    records = [Record(timestamp_ms=5, key=None, value=bytes(chance.randrange(40)))] * chance.randrange(1, 4)
    if chance.random() < 0.7:
        return encode_batch(records)
    return encode_batch(
        records,
        producer_id=chance.randrange(-1, 2),
        producer_epoch=chance.randrange(-1, 2),
        base_sequence=chance.randrange(-1, 2),
        attributes=chance.choice((0, 1, 8, 16, 32, 64)),
    )


def _signed(data: bytes) -> bytes:
    """The same with the checksum that it should have."""
    return data[:17] + crc32c(data[21:]).to_bytes(4, "big") + data[21:]
