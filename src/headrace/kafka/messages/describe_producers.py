"""DescribeProducers (API 61), version 0."""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRequest:
    name: str
    partition_indexes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeProducersRequest:
    topics: tuple[TopicRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    producer_id: int
    producer_epoch: int
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int
    current_txn_start_offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResponse:
    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    active_producers: tuple[ProducerState, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResponse:
    name: str
    partitions: tuple[PartitionResponse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeProducersResponse:
    throttle_time_ms: int = 0
    topics: tuple[TopicResponse, ...]
