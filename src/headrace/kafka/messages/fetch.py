"""Fetch (API 1), versions 4 to 18: the fields of all of them."""

from dataclasses import dataclass
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.log.stored_batches import StoredBatches


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    replica_id: int = -1
    replica_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartition:
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    log_start_offset: int = -1
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    replica_directory_id: UUID | None = None
    high_watermark: int = 9223372036854775807


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTopic:
    topic: str = ""
    partitions: tuple[FetchPartition, ...]
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenTopic:
    topic: str = ""
    partitions: tuple[int, ...] = ()
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    replica_id: int = -1
    max_wait_ms: int
    min_bytes: int
    max_bytes: int = 2147483647
    isolation_level: int = 0
    topics: tuple[FetchTopic, ...]
    session_id: int = 0
    session_epoch: int = -1
    forgotten_topics_data: tuple[ForgottenTopic, ...] = ()
    rack_id: str = ""
    cluster_id: str | None = None
    replica_state: ReplicaState = ReplicaState()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEndOffset:
    epoch: int = -1
    end_offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderIdAndEpoch:
    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotId:
    end_offset: int = -1
    epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransaction:
    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionData:
    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    high_watermark: int
    last_stable_offset: int = -1
    aborted_transactions: tuple[AbortedTransaction, ...] | None = None
    records: bytes | StoredBatches | None = None
    log_start_offset: int = -1
    preferred_read_replica: int = -1
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderIdAndEpoch | None = None
    snapshot_id: SnapshotId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchableTopicResponse:
    topic: str = ""
    partitions: tuple[PartitionData, ...]
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEndpoint:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    throttle_time_ms: int = 0
    responses: tuple[FetchableTopicResponse, ...]
    error_code: ErrorCode = ErrorCode.none
    session_id: int = 0
    node_endpoints: tuple[NodeEndpoint, ...] | None = None
