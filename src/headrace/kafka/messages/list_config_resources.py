"""ListConfigResources (API 74), versions 0 to 1: the fields of all of them."""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ListConfigResourcesRequest:
    resource_types: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigResource:
    resource_name: str
    resource_type: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ListConfigResourcesResponse:
    throttle_time_ms: int = 0
    error_code: ErrorCode = ErrorCode.none
    config_resources: tuple[ConfigResource, ...]
