"""SaslHandshake (API 17), versions 0 and 1: the fields of both."""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeRequest:
    mechanism: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeResponse:
    error_code: ErrorCode = ErrorCode.none
    mechanisms: tuple[str, ...]
