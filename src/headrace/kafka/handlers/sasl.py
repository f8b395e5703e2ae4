"""SaslHandshake and SaslAuthenticate: how a client logs in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.answer import Pending
from headrace.kafka.messages.sasl_authenticate import SaslAuthenticateResponse
from headrace.kafka.messages.sasl_handshake import SaslHandshakeResponse

if TYPE_CHECKING:
    from headrace.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
    from headrace.kafka.messages.sasl_handshake import SaslHandshakeRequest
    from headrace.kafka.security.logins import LoginAnswer
    from headrace.kafka.services import Call

VERSION_WITH_BARE_TOKENS: Final = 0


def handle_sasl_handshake(call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Agree on a mechanism."""
    session, logins = call.session, call.services.logins
    if session is None or logins is None or not session.may_begin(logins.now_s()):
        return SaslHandshakeResponse(error_code=ErrorCode.illegal_sasl_state, mechanisms=())
    has_begun = session.begin(
        request.mechanism,
        logins.users.all,
        logins.now_s(),
        with_bare_tokens=call.api_version == VERSION_WITH_BARE_TOKENS,
    )
    if not has_begun:
        logins.note_unsupported(session, request.mechanism, call.host, call.port)
    return SaslHandshakeResponse(
        error_code=ErrorCode.none if has_begun else ErrorCode.unsupported_sasl_mechanism,
        mechanisms=session.mechanisms,
    )


def handle_sasl_authenticate(
    call: Call, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | Pending[SaslAuthenticateResponse]:
    """Take a token."""
    session, logins = call.session, call.services.logins
    if session is None or logins is None or session.exchange is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.illegal_sasl_state,
            error_message="SaslAuthenticate must follow SaslHandshake, and only where log-ins are asked for",
        )
    pending: Pending[SaslAuthenticateResponse] = Pending()

    def answer(login: LoginAnswer) -> None:
        pending.resolve(
            SaslAuthenticateResponse(
                error_code=ErrorCode.sasl_authentication_failed,
                error_message=f"the user or the password is wrong ({session.mechanism})",
            )
            if login.has_failed
            else SaslAuthenticateResponse(
                auth_bytes=login.token, session_lifetime_ms=session.lifetime_ms if session.is_open else 0
            )
        )

    logins.step(session, request.auth_bytes, call.host, call.port).then(answer)
    return pending
