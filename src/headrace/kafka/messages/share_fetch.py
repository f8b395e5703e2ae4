"""ShareFetch (API 78), versions 1 to 2: the fields of both."""

from dataclasses import dataclass
from uuid import UUID

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgementBatch:
    first_offset: int
    last_offset: int
    acknowledge_types: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartition:
    partition_index: int
    acknowledgement_batches: tuple[AcknowledgementBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTopic:
    topic_id: UUID | None
    partitions: tuple[FetchPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenTopic:
    topic_id: UUID | None
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFetchRequest:
    group_id: str | None = None
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int = 2147483647
    max_records: int
    batch_size: int
    share_acquire_mode: int = 0
    is_renew_ack: bool = False
    topics: tuple[FetchTopic, ...]
    forgotten_topics_data: tuple[ForgottenTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderIdAndEpoch:
    leader_id: int = 0
    leader_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquiredRecords:
    first_offset: int
    last_offset: int
    delivery_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionData:
    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    records: bytes | None = b""
    acquired_records: tuple[AcquiredRecords, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFetchableTopicResponse:
    topic_id: UUID | None
    partitions: tuple[PartitionData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEndpoint:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFetchResponse:
    throttle_time_ms: int = 0
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: tuple[ShareFetchableTopicResponse, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()
