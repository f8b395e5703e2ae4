"""ShareAcknowledge (API 79), versions 1 to 2: the fields of both."""

from dataclasses import dataclass
from uuid import UUID

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgementBatch:
    first_offset: int
    last_offset: int
    acknowledge_types: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgePartition:
    partition_index: int
    acknowledgement_batches: tuple[AcknowledgementBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeTopic:
    topic_id: UUID | None
    partitions: tuple[AcknowledgePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareAcknowledgeRequest:
    group_id: str | None = None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool = False
    topics: tuple[AcknowledgeTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderIdAndEpoch:
    leader_id: int = 0
    leader_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionData:
    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareAcknowledgeTopicResponse:
    topic_id: UUID | None
    partitions: tuple[PartitionData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEndpoint:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareAcknowledgeResponse:
    throttle_time_ms: int = 0
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: tuple[ShareAcknowledgeTopicResponse, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()
