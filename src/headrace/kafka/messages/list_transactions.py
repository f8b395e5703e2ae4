"""ListTransactions (API 66), versions 0 to 2: the fields of all of them."""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactionsRequest:
    state_filters: tuple[str, ...] = ()
    producer_id_filters: tuple[int, ...] = ()
    duration_filter: int = -1
    transactional_id_pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTransaction:
    transactional_id: str
    producer_id: int
    transaction_state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactionsResponse:
    throttle_time_ms: int = 0
    error_code: ErrorCode = ErrorCode.none
    unknown_state_filters: tuple[str, ...] = ()
    transaction_states: tuple[ListedTransaction, ...] = ()
