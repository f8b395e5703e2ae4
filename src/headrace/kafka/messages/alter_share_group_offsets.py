"""AlterShareGroupOffsets (API 91), version 0."""

from dataclasses import dataclass
from uuid import UUID

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterShareGroupOffsetsRequestPartition:
    partition_index: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str
    partitions: tuple[AlterShareGroupOffsetsRequestPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterShareGroupOffsetsRequest:
    group_id: str
    topics: tuple[AlterShareGroupOffsetsRequestTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterShareGroupOffsetsResponsePartition:
    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str
    topic_id: UUID | None
    partitions: tuple[AlterShareGroupOffsetsResponsePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: int = 0
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    responses: tuple[AlterShareGroupOffsetsResponseTopic, ...] = ()
