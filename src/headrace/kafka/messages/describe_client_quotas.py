"""DescribeClientQuotas (API 48), versions 0 to 1: the fields of all of them."""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentData:
    entity_type: str
    match_type: int
    match: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClientQuotasRequest:
    components: tuple[ComponentData, ...]
    strict: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityData:
    entity_type: str
    entity_name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueData:
    key: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryData:
    entity: tuple[EntityData, ...]
    values: tuple[ValueData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClientQuotasResponse:
    throttle_time_ms: int = 0
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    entries: tuple[EntryData, ...] | None
