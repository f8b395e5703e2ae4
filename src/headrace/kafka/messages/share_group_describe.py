"""ShareGroupDescribe (API 77), version 1."""

from dataclasses import dataclass
from uuid import UUID

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupDescribeRequest:
    group_ids: tuple[str, ...] = ()
    include_authorized_operations: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    topic_id: UUID | None
    topic_name: str
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    rack_id: str | None = None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...] = ()
    assignment: Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[Member, ...]
    authorized_operations: int = -2147483648


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupDescribeResponse:
    groups: tuple[DescribedGroup, ...]
    throttle_time_ms: int = 0
