"""Share groups' positions as bytes, in Kafka's format."""

from __future__ import annotations

from uuid import UUID

import pytest

from headrace.errors import CorruptBatch
from headrace.kafka.share.deliveries import Deliveries
from headrace.kafka.share.records import ShareKey, Stored, decode, encode_key, encode_value
from headrace.kafka.share.runs import DeliveryState, Run

KEY = ShareKey("workers", UUID(int=0x0102), 3)
DELIVERIES = Deliveries(
    start_offset=10,
    runs=(
        Run(10, 11, DeliveryState.AVAILABLE, 2),
        Run(12, 12, DeliveryState.ACKNOWLEDGED, 1),
        Run(13, 20, DeliveryState.ARCHIVED, 5),
        Run(21, 21, DeliveryState.AVAILABLE, 1),
    ),
    state_epoch=4,
)


def test_what_is_written_is_read_back() -> None:
    stored = Stored(KEY, DELIVERIES, snapshot_epoch=7, created_at_ms=1_000)
    assert decode(encode_key(KEY), encode_value(stored, now_ms=2_000)) == stored


def test_the_bytes_are_those_of_kafkas_schema() -> None:
    stored = Stored(KEY, Deliveries(start_offset=5), snapshot_epoch=1, created_at_ms=2)
    assert encode_key(KEY) == (
        b"\0\0" + b"\0\7workers" + (0x0102).to_bytes(16, "big") + (3).to_bytes(4, "big")
    )
    assert encode_value(stored, now_ms=3) == (
        b"\0\0"
        + (1).to_bytes(4, "big")
        + bytes(4)
        + bytes(4)
        + (5).to_bytes(8, "big")
        + (2).to_bytes(8, "big")
        + (3).to_bytes(8, "big")
        + b"\1"  # no batches
        + b"\1\0\4"
        + bytes(4)  # one tag: nothing is settled beyond the start
    )


def test_what_a_member_has_is_written_as_available() -> None:
    acquired = Deliveries(start_offset=0, runs=(Run(0, 9, DeliveryState.ACQUIRED, 3, "m", 99),))
    read = decode(encode_key(KEY), encode_value(Stored(KEY, acquired), now_ms=0))
    assert read is not None
    assert read.deliveries == Deliveries(start_offset=0, runs=(Run(0, 9, DeliveryState.AVAILABLE, 3),))


def test_a_position_that_is_no_more_has_no_value() -> None:
    gone = Stored(KEY, None)
    assert encode_value(gone, now_ms=0) is None
    assert decode(encode_key(KEY), None) == gone


@pytest.mark.parametrize(
    "runs",
    [
        (Run(11, 12, DeliveryState.AVAILABLE, 1),),
        (Run(10, 12, DeliveryState.AVAILABLE, 1), Run(14, 15, DeliveryState.AVAILABLE, 2)),
        (Run(10, 12, DeliveryState.AVAILABLE, 1), Run(12, 15, DeliveryState.ARCHIVED, 1)),
        (Run(10, 9, DeliveryState.AVAILABLE, 1),),
    ],
)
def test_offsets_with_gaps_are_not_believed(runs: tuple[Run, ...]) -> None:
    damaged = Stored(KEY, Deliveries(start_offset=10, runs=runs))
    with pytest.raises(CorruptBatch, match="don't go on from"):
        decode(encode_key(KEY), encode_value(damaged, now_ms=0))


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\1rest"])
def test_records_of_other_kinds_are_passed_over(key: bytes) -> None:
    assert decode(key, b"anything") is None


@pytest.mark.parametrize(
    "value",
    [b"", b"\0\1", b"\0\0", encode_value(Stored(KEY, DELIVERIES), now_ms=0)[:-20]],  # type: ignore[index]
)
def test_what_can_not_be_read_back_is_named(value: bytes) -> None:
    with pytest.raises(CorruptBatch, match=r"a record of a share group can't be read back.*workers"):
        decode(encode_key(KEY), value)
