"""What a topic's settings ask of batches before they are appended."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from headrace.errors import BatchTooLarge, InvalidRecord, InvalidTimestamp
from headrace.log.batch import (
    APPEND_TIME,
    CODECS,
    HEADER_BYTES,
    Batch,
    decode_records,
    encode_batch,
    read_header,
    sign,
    split_batches,
)
from headrace.log.compression import deflate
from headrace.log.intake import Intake
from headrace.log.record import Record
from headrace.log.topic_settings import TopicSettings

MakeBatch = Callable[..., bytes]
NOW_MS = 1_700_000_000_000
SIZE_MAX = 1_000_000


def admit(batch: bytes, size_bytes_max: int = SIZE_MAX, **config: str) -> Batch:
    settings = TopicSettings.parse(
        {name.replace("_", "."): value for name, value in config.items()}, TopicSettings()
    )
    (admitted,) = Intake(settings).admit(split_batches(batch, SIZE_MAX), NOW_MS, size_bytes_max)
    return admitted


def compressed(batch: bytes, codec: str) -> bytes:
    header = read_header(batch)._replace(attributes=CODECS.index(codec))
    return bytes(sign(header, deflate(codec, batch[HEADER_BYTES:])).data)


def keyless(codec: str = "none") -> bytes:
    records = [Record(timestamp_ms=1, key=b"k", value=b""), Record(timestamp_ms=1, key=None, value=b"")]
    return compressed(encode_batch(records), codec)


def test_a_batch_stays_the_bytes_that_came_unless_a_setting_asks_otherwise(make_batch: MakeBatch) -> None:
    batch = make_batch(3)
    assert admit(batch).data == batch
    assert admit(batch, cleanup_policy="compact").data == batch
    assert admit(batch, compression_type="uncompressed").data == batch
    zipped = compressed(batch, "gzip")
    assert admit(zipped, compression_type="gzip", compression_gzip_level="1").data == zipped


@pytest.mark.parametrize("codec", CODECS)
def test_append_time_is_given_whatever_the_codec(make_batch: MakeBatch, codec: str) -> None:
    batch = compressed(make_batch(3, at=[1, NOW_MS * 2, 3]), codec)
    admitted = admit(batch, message_timestamp_type="LogAppendTime")
    assert admitted.header.has_append_time
    assert admitted.header.codec == codec
    (checked,) = split_batches(admitted.data, SIZE_MAX)
    assert [record.timestamp_ms for record in decode_records(checked.data)] == [NOW_MS] * 3


def test_append_time_is_not_for_producers_to_claim(make_batch: MakeBatch) -> None:
    with pytest.raises(InvalidTimestamp, match="only a broker"):
        admit(make_batch(attributes=APPEND_TIME))


def test_a_record_too_far_ahead_of_the_clock_is_refused(make_batch: MakeBatch) -> None:
    hour_ms = 3_600_000
    admit(make_batch(2, at=[1, NOW_MS + hour_ms]))
    with pytest.raises(InvalidTimestamp, match=r"message\.timestamp\.after\.max\.ms"):
        admit(make_batch(2, at=[NOW_MS + hour_ms + 1, 1]))
    admit(make_batch(at=NOW_MS * 2), message_timestamp_after_max_ms=str(2**63 - 1))


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_too_far_behind_the_clock_is_refused(make_batch: MakeBatch, codec: str) -> None:
    old = compressed(make_batch(3, at=[NOW_MS, NOW_MS - 11, NOW_MS]), codec)
    admit(old)
    admit(old, message_timestamp_before_max_ms="11")
    with pytest.raises(InvalidTimestamp, match=r"message\.timestamp\.before\.max\.ms"):
        admit(old, message_timestamp_before_max_ms="10")
    admit(old, message_timestamp_before_max_ms="10", message_timestamp_type="LogAppendTime")


def test_a_record_without_a_timestamp_is_never_too_old(make_batch: MakeBatch) -> None:
    admit(make_batch(at=-1), message_timestamp_before_max_ms="10")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_record_without_a_key_is_refused_where_keys_decide_what_stays(codec: str, policy: str) -> None:
    admit(keyless(codec))
    with pytest.raises(InvalidRecord, match="record 1 of the batch has no key") as caught:
        admit(keyless(codec), cleanup_policy=policy)
    assert caught.value.record_numbers == (1,)


@pytest.mark.parametrize("target", ["uncompressed", *CODECS[1:]])
@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_compressed_as_the_topic_asks(make_batch: MakeBatch, codec: str, target: str) -> None:
    batch = make_batch(10, at=list(range(10)), producer=(7, 1, 30))
    admitted = admit(compressed(batch, codec), compression_type=target)
    (checked,) = split_batches(admitted.data, SIZE_MAX)
    assert checked.header.codec == {"uncompressed": "none"}.get(target, target)
    assert decode_records(checked.data) == decode_records(batch)
    assert checked.header[6:] == read_header(batch)[6:]


def test_a_level_is_used_when_compressing() -> None:
    words = [b"%d" % (number * 7919) for number in range(500)]
    text = b" ".join(Random(1).choices(words, k=20_000))
    batch = encode_batch([Record(timestamp_ms=1, key=None, value=text)])
    sizes = [
        admit(batch, compression_type="gzip", compression_gzip_level=level).header.size_bytes
        for level in ("1", "9")
    ]
    assert sizes[1] < sizes[0]


def test_a_batch_that_grows_past_the_maximum_when_decompressed_is_refused(
    make_batch: MakeBatch,
) -> None:
    batch = compressed(make_batch(1, value=bytes(50_000)), "zstd")
    admit(batch, size_bytes_max=10_000)
    with pytest.raises(BatchTooLarge, match=r"max\.message\.bytes"):
        admit(batch, size_bytes_max=10_000, compression_type="uncompressed")


def test_records_that_are_not_what_the_header_says_are_refused_where_they_are_looked_at() -> None:
    random = Random(1)
    batch = encode_batch([Record(timestamp_ms=1, key=b"key", value=b"value")] * 3)
    refused = 0
    for _ in range(300):
        tampered = bytearray(batch[HEADER_BYTES:])
        tampered[random.randrange(len(tampered))] = random.randrange(256)
        data = bytes(sign(read_header(batch), bytes(tampered)).data)
        try:
            admit(data, cleanup_policy="compact")
        except InvalidRecord:
            refused += 1
    assert refused > 30


def test_what_is_no_compressed_data_is_refused_where_it_is_looked_at(make_batch: MakeBatch) -> None:
    with pytest.raises(InvalidRecord, match="zstd can't be read"):
        admit(make_batch(attributes=4), compression_type="gzip")


@pytest.mark.parametrize(
    "config",
    [
        {"cleanup.policy": "compact"},
        {"message.timestamp.type": "LogAppendTime"},
        {"message.timestamp.before.max.ms": "1000"},
        {"compression.type": "gzip"},
    ],
)
def test_no_timestamp_lets_a_batch_pass_by_what_a_setting_asks(config: dict[str, str]) -> None:
    intake = Intake(TopicSettings.parse(config, TopicSettings()))
    for timestamp_ms in (-(2**63), -1, 0, NOW_MS, 2**63 - 1):
        assert not intake.takes_plain(timestamp_ms, NOW_MS)
