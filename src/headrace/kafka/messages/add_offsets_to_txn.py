"""AddOffsetsToTxn (API 25), versions 0 to 4: the fields of all of them."""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsetsToTxnRequest:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = 0
    error_code: ErrorCode = ErrorCode.none
