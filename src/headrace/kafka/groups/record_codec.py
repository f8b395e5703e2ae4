"""Records of groups as bytes: a version, and what record_schemas.py says about it."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import CorruptBatch, ProtocolError
from headrace.kafka.codec.reader import compile_reader
from headrace.kafka.codec.writer import compile_writer
from headrace.kafka.groups.record_schemas import (
    ClassicGroup,
    CurrentAssignment,
    GroupEpoch,
    GroupKey,
    MemberKey,
    MemberMetadata,
    ShareCurrentAssignment,
    ShareGroupEpoch,
    ShareMemberMetadata,
    Target,
    TargetEpoch,
)

if TYPE_CHECKING:
    from headrace.kafka.codec.shape import MessageClass

    Encoded = tuple[bytes, bytes | None]

_VERSION: Final = Struct(">h")


@dataclass(frozen=True, slots=True)
class Kind:
    """What a record is about."""

    key_version: int
    key: MessageClass
    value_version: int
    value: MessageClass


CLASSIC_GROUP: Final = Kind(2, GroupKey, 3, ClassicGroup)
GROUP_EPOCH: Final = Kind(3, GroupKey, 0, GroupEpoch)
MEMBER_METADATA: Final = Kind(5, MemberKey, 0, MemberMetadata)
TARGET_EPOCH: Final = Kind(6, GroupKey, 0, TargetEpoch)
TARGET: Final = Kind(7, MemberKey, 0, Target)
CURRENT_ASSIGNMENT: Final = Kind(8, MemberKey, 0, CurrentAssignment)
SHARE_MEMBER_METADATA: Final = Kind(10, MemberKey, 0, ShareMemberMetadata)
SHARE_GROUP_EPOCH: Final = Kind(11, GroupKey, 0, ShareGroupEpoch)
SHARE_TARGET_EPOCH: Final = Kind(12, GroupKey, 0, TargetEpoch)
SHARE_TARGET: Final = Kind(13, MemberKey, 0, Target)
SHARE_CURRENT_ASSIGNMENT: Final = Kind(14, MemberKey, 0, ShareCurrentAssignment)
SHARE_KINDS: Final = frozenset(
    (SHARE_MEMBER_METADATA, SHARE_GROUP_EPOCH, SHARE_TARGET_EPOCH, SHARE_TARGET, SHARE_CURRENT_ASSIGNMENT)
)
KINDS: Final = {
    kind.key_version: kind
    for kind in (
        CLASSIC_GROUP,
        GROUP_EPOCH,
        MEMBER_METADATA,
        TARGET_EPOCH,
        TARGET,
        CURRENT_ASSIGNMENT,
        *SHARE_KINDS,
    )
}


def encode(kind: Kind, key: Any, value: Any | None) -> Encoded:
    """The key and the value of a record; one without a value says that it is no more."""
    encoded_key = _with_version(kind.key_version, kind.key, key)
    return encoded_key, None if value is None else _with_version(kind.value_version, kind.value, value)


def decode(key: bytes, value: bytes | None) -> tuple[Kind, Any, Any | None] | None:
    """Read a record back, or None if it is of a kind that is not used here."""
    try:
        kind = KINDS.get(_VERSION.unpack_from(key)[0]) if len(key) >= _VERSION.size else None
        if kind is None:
            return None
        return kind, _read(kind.key, key), None if value is None else _read_value(kind, value)
    except ProtocolError as error:
        raise CorruptBatch(f"a record of a group can't be read back: {error}; its key is {key!r}") from error


def _read_value(kind: Kind, value: bytes) -> Any:
    version = _VERSION.unpack_from(value)[0] if len(value) >= _VERSION.size else None
    if version != kind.value_version:
        raise ProtocolError(f"its value has format {version}; {kind.value_version} is understood")
    return _read(kind.value, value)


def _read(schema: MessageClass, data: bytes) -> Any:
    return compile_reader(schema, schema)(data, _VERSION.size)[0]


def _with_version(version: int, schema: MessageClass, entity: Any) -> bytes:
    parts = [_VERSION.pack(version)]
    compile_writer(schema)(entity, parts)
    return b"".join(parts)
