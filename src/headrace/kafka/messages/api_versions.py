"""ApiVersions (API 18), versions 0 to 4: the fields of all of them."""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest:
    client_software_name: str = ""
    client_software_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersion:
    api_key: int
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportedFeatureKey:
    name: str
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalizedFeatureKey:
    name: str
    max_version_level: int
    min_version_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse:
    error_code: ErrorCode = ErrorCode.none
    api_keys: tuple[ApiVersion, ...]
    throttle_time_ms: int = 0
    supported_features: tuple[SupportedFeatureKey, ...] | None = None
    finalized_features_epoch: int | None = None
    finalized_features: tuple[FinalizedFeatureKey, ...] | None = None
    zk_migration_ready: bool | None = None
