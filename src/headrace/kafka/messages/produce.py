"""Produce (API 0), versions 3 to 13: the fields of all of them."""

from dataclasses import dataclass
from uuid import UUID

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProduceData:
    index: int
    records: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProduceData:
    name: str = ""
    partition_data: tuple[PartitionProduceData, ...]
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequest:
    transactional_id: str | None = None
    acks: int
    timeout_ms: int
    topic_data: tuple[TopicProduceData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchIndexAndErrorMessage:
    batch_index: int
    batch_index_error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderIdAndEpoch:
    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProduceResponse:
    index: int
    error_code: ErrorCode = ErrorCode.none
    base_offset: int
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = ()
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProduceResponse:
    name: str = ""
    partition_responses: tuple[PartitionProduceResponse, ...]
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEndpoint:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponse:
    responses: tuple[TopicProduceResponse, ...]
    throttle_time_ms: int = 0
    node_endpoints: tuple[NodeEndpoint, ...] | None = None
