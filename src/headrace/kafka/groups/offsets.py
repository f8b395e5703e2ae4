"""Committed offsets as records of `__consumer_offsets`, in Kafka's own format.

    key    version i16 = 1, group string, topic string, partition i32
    value  version i16 = 3, offset i64, leader epoch i32, metadata string, commit timestamp i64

A string is its length as i16 and its bytes. A record without a value forgets the offset. Keys of other
versions are about groups: see record_schemas.py.

Offsets that a transaction commits lie in a batch that is marked as transactional and carries the producer's
id. They count once the producer's marker says so, which is a control batch in the same partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import Final

from headrace.errors import CorruptBatch

KEY_VERSION: Final = 1
VALUE_VERSION: Final = 3
VALUE_VERSIONS_READ: Final = (1, 2, 3)

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_OFFSET: Final = Struct(">hq")
_OFFSET_AND_EPOCH: Final = Struct(">hqi")
_INT64: Final = Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitted:
    """A group has read a partition up to an offset."""

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_at_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForgotten:
    """A group no longer has an offset for a partition."""

    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetPending:
    """A transaction has committed an offset, which counts once the transaction does."""

    producer_id: int
    committed: OffsetCommitted


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsSettled:
    """A producer's transaction has ended, and so have the offsets that waited for it."""

    producer_id: int
    commits: bool


OffsetRecord = OffsetCommitted | OffsetForgotten


def encode_offset_record(record: OffsetRecord) -> tuple[bytes, bytes | None]:
    """The key and the value of a record."""
    key = b"".join(
        (
            _INT16.pack(KEY_VERSION),
            _string(record.group_id),
            _string(record.topic),
            _INT32.pack(record.partition),
        )
    )
    if isinstance(record, OffsetForgotten):
        return key, None
    value = (
        _OFFSET_AND_EPOCH.pack(VALUE_VERSION, record.offset, record.leader_epoch),
        _string(record.metadata),
        _INT64.pack(record.committed_at_ms),
    )
    return key, b"".join(value)


def decode_offset_record(key: bytes, value: bytes | None) -> OffsetRecord | None:
    """Read a record back, or None if it is not about an offset."""
    try:
        return _decode(key, value)
    except (struct_error, UnicodeDecodeError) as error:
        raise CorruptBatch(f"a committed offset can't be read back: {error}; its key is {key!r}") from error


def _decode(key: bytes, value: bytes | None) -> OffsetRecord | None:
    if _INT16.unpack_from(key)[0] > KEY_VERSION:
        return None
    group_id, position = _read_string(key, 2)
    topic, position = _read_string(key, position)
    partition = _INT32.unpack_from(key, position)[0]
    if value is None:
        return OffsetForgotten(group_id=group_id, topic=topic, partition=partition)
    version, offset = _OFFSET.unpack_from(value)
    if version not in VALUE_VERSIONS_READ:
        raise CorruptBatch(f"a committed offset has format {version}; {VALUE_VERSIONS_READ} are understood")
    leader_epoch, position = -1, _OFFSET.size
    if version == VALUE_VERSION:
        leader_epoch, position = _INT32.unpack_from(value, position)[0], position + 4
    metadata, position = _read_string(value, position)
    return OffsetCommitted(
        group_id=group_id,
        topic=topic,
        partition=partition,
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        committed_at_ms=_INT64.unpack_from(value, position)[0],
    )


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    start = position + 2
    end = start + _INT16.unpack_from(data, position)[0]
    if end < start or end > len(data):
        raise struct_error(f"a string at byte {position} runs past the end")
    return data[start:end].decode(), end
