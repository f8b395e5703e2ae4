"""OffsetFetch (API 9), versions 1 to 10: the fields of all of them."""

from dataclasses import dataclass
from uuid import UUID

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequestTopic:
    name: str = ""
    partition_indexes: tuple[int, ...] = ()
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequestGroup:
    group_id: str
    topics: tuple[OffsetFetchRequestTopic, ...] | None
    member_id: str | None = None
    member_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequest:
    group_id: str = ""
    topics: tuple[OffsetFetchRequestTopic, ...] | None = None
    require_stable: bool = False
    groups: tuple[OffsetFetchRequestGroup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponsePartition:
    partition_index: int
    committed_offset: int
    metadata: str | None = None
    error_code: ErrorCode = ErrorCode.none
    committed_leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseTopic:
    name: str = ""
    partitions: tuple[OffsetFetchResponsePartition, ...]
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseGroup:
    group_id: str
    topics: tuple[OffsetFetchResponseTopic, ...]
    error_code: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponse:
    topics: tuple[OffsetFetchResponseTopic, ...] = ()
    error_code: ErrorCode = ErrorCode.none
    throttle_time_ms: int = 0
    groups: tuple[OffsetFetchResponseGroup, ...] = ()
