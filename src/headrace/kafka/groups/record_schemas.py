"""The records that keep groups in `__consumer_offsets`, as in Apache Kafka 4.3: their keys and values.

A record begins with a version as i16, in its key and in its value. The key's version says what the record is
about; a record without a value says that it is no more. These classes describe what follows the version, in
the way in which kio describes messages, for the same compilers. Keys 0 and 1 are committed offsets, see
offsets.py.

    key 2   a group of the classic protocol, when everybody has its assignment and when it is empty
    key 3   a consumer group's epoch, and a hash of the topics of that epoch
    key 5   what a member of a consumer group says about itself
    key 6   for which epoch a consumer group's target was made
    key 7   a member's target
    key 8   where a member stands, and what it has

    key 10  what a member of a share group says about itself
    key 11  a share group's epoch, and a hash of the topics of that epoch
    key 12  for which epoch a share group's target was made
    key 13  a member's target
    key 14  where a member stands, and what it has
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import UUID


def _as(kafka_type: str, **options: Any) -> Any:
    tag = options.pop("tag", None)
    metadata = {"kafka_type": kafka_type} if tag is None else {"kafka_type": kafka_type, "tag": tag}
    return field(metadata=metadata, **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKey:
    """The key of what there is once in a group: 2, 3, 6, 11 and 12."""

    __flexible__: ClassVar[bool] = False
    group_id: str = _as("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberKey:
    """The key of what there is once for each member: 5, 7, 8, 10, 13 and 14."""

    __flexible__: ClassVar[bool] = False
    group_id: str = _as("string")
    member_id: str = _as("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """A member of a classic group."""

    __flexible__: ClassVar[bool] = False
    member_id: str = _as("string")
    group_instance_id: str | None = _as("string")
    client_id: str = _as("string")
    client_host: str = _as("string")
    rebalance_timeout: int = _as("int32")
    session_timeout: int = _as("int32")
    subscription: bytes = _as("bytes")
    assignment: bytes = _as("bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroup:
    """Value 3 of key 2."""

    __flexible__: ClassVar[bool] = False
    protocol_type: str = _as("string")
    generation: int = _as("int32")
    protocol: str | None = _as("string")
    leader: str | None = _as("string")
    current_state_timestamp: int = _as("int64")
    members: tuple[ClassicMember, ...] = field()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEpoch:
    """Value 0 of key 3."""

    __flexible__: ClassVar[bool] = True
    epoch: int = _as("int32")
    metadata_hash: int | None = _as("int64", tag=0, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """Value 0 of key 5."""

    __flexible__: ClassVar[bool] = True
    instance_id: str | None = _as("string")
    rack_id: str | None = _as("string")
    client_id: str = _as("string")
    client_host: str = _as("string")
    subscribed_topic_names: tuple[str, ...] = _as("string")
    subscribed_topic_regex: str | None = _as("string")
    rebalance_timeout_ms: int = _as("int32")
    server_assignor: str | None = _as("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEpoch:
    """Value 0 of keys 6 and 12."""

    __flexible__: ClassVar[bool] = True
    assignment_epoch: int = _as("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPartitions:
    """Partitions of one topic."""

    __flexible__: ClassVar[bool] = True
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[int, ...] = _as("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Value 0 of keys 7 and 13."""

    __flexible__: ClassVar[bool] = True
    topic_partitions: tuple[TargetPartitions, ...] = field()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedPartitions:
    """Partitions of one topic, and the epochs in which they were given."""

    __flexible__: ClassVar[bool] = True
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[int, ...] = _as("int32")
    assignment_epochs: tuple[int, ...] | None = _as("int32", tag=0, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignment:
    """Value 0 of key 8."""

    __flexible__: ClassVar[bool] = True
    member_epoch: int = _as("int32")
    previous_member_epoch: int = _as("int32")
    state: int = _as("int8")
    assigned_partitions: tuple[OwnedPartitions, ...] = field()
    partitions_pending_revocation: tuple[OwnedPartitions, ...] = field()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMemberMetadata:
    """Value 0 of key 10."""

    __flexible__: ClassVar[bool] = True
    rack_id: str | None = _as("string")
    client_id: str = _as("string")
    client_host: str = _as("string")
    subscribed_topic_names: tuple[str, ...] = _as("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupEpoch:
    """Value 0 of key 11."""

    __flexible__: ClassVar[bool] = True
    epoch: int = _as("int32")
    metadata_hash: int = _as("int64")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCurrentAssignment:
    """Value 0 of key 14."""

    __flexible__: ClassVar[bool] = True
    member_epoch: int = _as("int32")
    previous_member_epoch: int = _as("int32")
    state: int = _as("int8")
    assigned_partitions: tuple[TargetPartitions, ...] = field()
