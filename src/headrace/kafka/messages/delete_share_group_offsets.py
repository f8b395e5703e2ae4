"""DeleteShareGroupOffsets (API 92), version 0."""

from dataclasses import dataclass
from uuid import UUID

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteShareGroupOffsetsRequest:
    group_id: str
    topics: tuple[DeleteShareGroupOffsetsRequestTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str
    topic_id: UUID | None
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: int = 0
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    responses: tuple[DeleteShareGroupOffsetsResponseTopic, ...] = ()
