"""DeleteTopics (API 20), versions 1 to 6: the fields of all of them."""

from dataclasses import dataclass
from uuid import UUID

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicState:
    name: str | None = None
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsRequest:
    topic_names: tuple[str, ...] = ()
    timeout_ms: int
    topics: tuple[DeleteTopicState, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableTopicResult:
    name: str | None = None
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsResponse:
    throttle_time_ms: int = 0
    responses: tuple[DeletableTopicResult, ...]
