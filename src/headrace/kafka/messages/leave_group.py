"""LeaveGroup (API 13), versions 0 to 5: the fields of all of them."""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupRequest:
    group_id: str
    member_id: str = ""
    members: tuple[MemberIdentity, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberResponse:
    member_id: str
    group_instance_id: str | None = None
    error_code: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupResponse:
    error_code: ErrorCode = ErrorCode.none
    throttle_time_ms: int = 0
    members: tuple[MemberResponse, ...] = ()
