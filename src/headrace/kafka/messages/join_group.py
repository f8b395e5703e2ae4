"""JoinGroup (API 11), versions 0 to 9: the fields of all of them."""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupRequestProtocol:
    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupRequest:
    group_id: str
    session_timeout_ms: int
    member_id: str
    protocol_type: str
    protocols: tuple[JoinGroupRequestProtocol, ...]
    rebalance_timeout_ms: int = -1
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupResponseMember:
    member_id: str
    metadata: bytes
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupResponse:
    error_code: ErrorCode = ErrorCode.none
    generation_id: int = -1
    protocol_name: str | None = None
    leader: str
    member_id: str
    members: tuple[JoinGroupResponseMember, ...]
    throttle_time_ms: int = 0
    protocol_type: str | None = None
    skip_assignment: bool = False
