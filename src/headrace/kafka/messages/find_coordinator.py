"""FindCoordinator (API 10), versions 0 to 6: the fields of all of them."""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinatorRequest:
    key: str = ""
    key_type: int = 0
    coordinator_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    key: str
    node_id: int
    host: str
    port: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinatorResponse:
    error_code: ErrorCode = ErrorCode.none
    node_id: int = -1
    host: str = ""
    port: int = 0
    throttle_time_ms: int = 0
    error_message: str | None = None
    coordinators: tuple[Coordinator, ...] = ()
