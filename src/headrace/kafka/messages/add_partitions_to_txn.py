"""AddPartitionsToTxn (API 24), versions 0 to 5: the fields of all of them.

Up to version 3 a producer adds partitions to its one transaction; from version 4 on brokers do so among
each other, for many transactions at once.
"""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnTopic:
    name: str
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnTransaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool = False
    topics: tuple[AddPartitionsToTxnTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnRequest:
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = ()
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = -1
    v3_and_below_producer_epoch: int = -1
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnPartitionResult:
    partition_index: int
    partition_error_code: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnTopicResult:
    name: str
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnResult:
    transactional_id: str
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = 0
    error_code: ErrorCode = ErrorCode.none
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = ()
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = ()
