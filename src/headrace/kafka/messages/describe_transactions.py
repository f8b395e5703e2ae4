"""DescribeTransactions (API 65), version 0."""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsRequest:
    transactional_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicData:
    topic: str
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTransaction:
    error_code: ErrorCode = ErrorCode.none
    transactional_id: str
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    topics: tuple[TopicData, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsResponse:
    throttle_time_ms: int = 0
    transaction_states: tuple[DescribedTransaction, ...]
