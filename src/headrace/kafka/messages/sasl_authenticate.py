"""SaslAuthenticate (API 36), versions 0 to 2: the fields of all of them."""

from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateRequest:
    auth_bytes: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateResponse:
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    auth_bytes: bytes = field(default=b"", repr=False)
    session_lifetime_ms: int = 0
