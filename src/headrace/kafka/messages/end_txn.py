"""EndTxn (API 26), versions 0 to 5: the fields of all of them."""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxnRequest:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxnResponse:
    throttle_time_ms: int = 0
    error_code: ErrorCode = ErrorCode.none
    producer_id: int = -1
    producer_epoch: int = -1
