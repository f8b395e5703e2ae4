"""DescribeAcls (API 29), versions 1 to 3: the fields of all of them."""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAclsRequest:
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int = 3
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AclDescription:
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAclsResource:
    resource_type: int
    resource_name: str
    pattern_type: int = 3
    acls: tuple[AclDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAclsResponse:
    throttle_time_ms: int = 0
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    resources: tuple[DescribeAclsResource, ...]
