"""Metadata (API 3), versions 0 to 13: the fields of all of them."""

from dataclasses import dataclass
from uuid import UUID

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequestTopic:
    name: str | None
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest:
    topics: tuple[MetadataRequestTopic, ...] | None
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponseBroker:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponsePartition:
    error_code: ErrorCode = ErrorCode.none
    partition_index: int
    leader_id: int
    replica_nodes: tuple[int, ...] = ()
    isr_nodes: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponseTopic:
    error_code: ErrorCode = ErrorCode.none
    name: str | None = None
    partitions: tuple[MetadataResponsePartition, ...]
    is_internal: bool = False
    topic_authorized_operations: int = -2147483648
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse:
    brokers: tuple[MetadataResponseBroker, ...]
    topics: tuple[MetadataResponseTopic, ...]
    controller_id: int = -1
    cluster_id: str | None = None
    throttle_time_ms: int = 0
    cluster_authorized_operations: int = -2147483648
    error_code: ErrorCode = ErrorCode.none
