"""DescribeShareGroupOffsets (API 90), versions 0 to 1: the fields of both."""

from dataclasses import dataclass
from uuid import UUID

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str
    topics: tuple[DescribeShareGroupOffsetsRequestTopic, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsRequest:
    groups: tuple[DescribeShareGroupOffsetsRequestGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int
    start_offset: int = -1
    leader_epoch: int = 0
    lag: int = -1
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str
    topic_id: UUID | None
    partitions: tuple[DescribeShareGroupOffsetsResponsePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str
    topics: tuple[DescribeShareGroupOffsetsResponseTopic, ...] = ()
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int = 0
    groups: tuple[DescribeShareGroupOffsetsResponseGroup, ...]
