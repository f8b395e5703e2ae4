"""Reads from a Produce request of the plain kind, without decoding it, what it is about and its records.

    until version 8   client id, transactional id -1, acks, timeout, 1 topic: name,
                      count i32, then for each partition: index i32, length i32, records
    from version 9    client id, no tags, transactional id 0, acks, timeout, 1 topic: name, from 13 on id,
                      count, then for each partition: index i32, length, records, no tags; no tags, no tags

A count and a length of the later versions are varints, one higher than what they stand for.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple
from uuid import UUID

from headrace.errors import ProtocolError
from headrace.kafka.api import APIS, PRODUCE_KEY
from headrace.kafka.codec.reader import read_nullable_string, read_varint

PARTITIONS_MAX: Final = 100
"""So many have a count of one byte. What has more is not of the plain kind."""
FLEXIBLE_FROM: Final = 9
TOPIC_ID_FROM: Final = 13
PREFIX_AT: Final = 8
"""After the numbers of the API and the correlation id."""
ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1

_HEAD: Final = Struct(">hh")
_START: Final = Struct(">hhii")
_FLEXIBLE_START: Final = Struct(">bbhib")
_NAME_SIZE: Final = Struct(">h")
_INDEX: Final = Struct(">i")
_COUNT: Final = Struct(">i")
_INDEX_AND_LENGTH: Final = Struct(">ii")
_NO_TAGS: Final = b"\0\0"
_UUID_BYTES: Final = 16

Records = list[tuple[int, memoryview]]
"""By the number of their partition, in the order of the request."""


class Shape(NamedTuple):
    """What a request to one topic says before its partitions, and where these begin with their count."""

    version: int
    acks: int
    topic: str | UUID
    end: int


def read_shape(frame: bytes) -> Shape | None:
    """The shape of a Produce request; None if it is not of the plain kind."""
    try:
        _, version = _HEAD.unpack_from(frame)
        if not APIS[PRODUCE_KEY].offers(version):
            return None
        _, position = read_nullable_string(frame, PREFIX_AT)
        shape = (_flexible_shape if version >= FLEXIBLE_FROM else _shape)(frame, version, position)
    except (struct_error, IndexError, UnicodeDecodeError, ProtocolError):
        return None
    return shape if shape is not None and shape.acks in {ACKS_ALL, ACKS_LEADER} else None


def _shape(frame: bytes, version: int, position: int) -> Shape | None:
    transactional_size, acks, _, topic_count = _START.unpack_from(frame, position)
    position += _START.size
    (name_size,) = _NAME_SIZE.unpack_from(frame, position)
    if (transactional_size, topic_count) != (-1, 1) or name_size < 0:
        return None
    position += _NAME_SIZE.size
    name = frame[position : position + name_size].decode()
    end = position + name_size
    return Shape(version, acks, name, end) if end < len(frame) else None


def _flexible_shape(frame: bytes, version: int, position: int) -> Shape | None:
    # A length is written as one more than it is, and nothing as 0.
    tag_count, transactional_size, acks, _, topic_count = _FLEXIBLE_START.unpack_from(frame, position)
    if (tag_count, transactional_size, topic_count) != (0, 0, 2):
        return None
    position += _FLEXIBLE_START.size
    topic: str | UUID
    if version >= TOPIC_ID_FROM:
        topic = UUID(bytes=frame[position : position + _UUID_BYTES].ljust(_UUID_BYTES, b"\0"))
        position += _UUID_BYTES
    else:
        name_size, position = read_varint(frame, position)
        name_end = position + name_size - 1
        topic = frame[position:name_end].decode()
        position = name_end
    return Shape(version, acks, topic, position) if position < len(frame) else None


def read_records(frame: bytes, position: int, *, is_flexible: bool) -> Records | None:
    """The records of each partition, whose count is at the position, if nothing is between or after them."""
    try:
        return (_flexible_records if is_flexible else _records)(frame, position)
    except (struct_error, IndexError, ProtocolError):
        return None


def _records(frame: bytes, position: int) -> Records | None:
    (count,) = _COUNT.unpack_from(frame, position)
    position += _COUNT.size
    if not 0 < count <= PARTITIONS_MAX:
        return None
    view = memoryview(frame)
    found: Records = []
    for _ in range(count):
        index, length = _INDEX_AND_LENGTH.unpack_from(frame, position)
        begin = position + _INDEX_AND_LENGTH.size
        position = begin + length
        if length < 0 or position > len(frame):
            return None
        found.append((index, view[begin:position]))
    return found if position == len(frame) else None


def _flexible_records(frame: bytes, position: int) -> Records | None:
    # A count, and a length, is written as one more than it is.
    count = frame[position] - 1
    position += 1
    if not 0 < count <= PARTITIONS_MAX:
        return None
    view = memoryview(frame)
    found: Records = []
    for _ in range(count):
        (index,) = _INDEX.unpack_from(frame, position)
        size, begin = read_varint(frame, position + _INDEX.size)
        position = begin + size - 1
        if size < 1 or frame[position] != 0:
            return None
        found.append((index, view[begin:position]))
        position += 1
    return found if frame[position:] == _NO_TAGS else None
