"""From a request frame to its handler, and from the handler's response to an answer frame. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headrace.errors import ProtocolError
from headrace.kafka.answer import Pending, Silence
from headrace.kafka.api import APIS, OFFERED
from headrace.kafka.codec.frame import (
    API_VERSIONS_KEY,
    BARE_TOKENS,
    read_request_header,
    request_reader,
    response_writer,
)
from headrace.kafka.handlers.api_versions import unsupported_api_versions
from headrace.kafka.services import ANONYMOUS, Call, Services

if TYPE_CHECKING:
    from headrace.config import Address
    from headrace.kafka.codec.frame import RequestHeader
    from headrace.kafka.codec.writer import Parts
    from headrace.kafka.metrics.counters import RequestCounters
    from headrace.kafka.security.session import SaslSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The other end of a connection. Who it is changes when it logs in: that is the session's business."""

    host: str
    port: int
    address: Address
    """The address under which the peer reaches the broker, now and when it connects again."""
    certified: str = ANONYMOUS
    """Whom its certificate was made out to, where it had to show one."""
    session: SaslSession | None = None
    """Its log-in, where there must be one."""

    @property
    def principal(self) -> str:
        """Who it has proved to be, as Kafka writes it."""
        return self.certified if self.session is None else self.session.principal

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class AnswerWriter(Protocol):
    """Writes responses of one kind."""

    def write(self, correlation_id: int, response: Any, /) -> Parts:
        """Return the answer's frame."""
        ...


class Started(NamedTuple):
    """A request that has been started: what its handler returned, and how that is written.

    A tuple, because one is made for every request.
    """

    outcome: Any
    """The response, a Pending that will have it, or Silence."""
    writer: AnswerWriter
    correlation_id: int
    counters: RequestCounters | None = None
    began_ns: int = 0

    def encode(self, response: Any) -> Parts:
        """Return the answer's frame."""
        return self.writer.write(self.correlation_id, response)


def dispatch(services: Services, peer: Peer, frame: bytes) -> Started:
    """Start a request. Raises ProtocolError if its connection is to be closed."""
    began_ns = perf_counter_ns()
    session = peer.session
    if session is not None and session.takes_bare_tokens:
        return _take_bare_token(services, peer, session, frame)
    header = read_request_header(frame)
    if session is not None:
        session.check(header.api_key, services.clock.monotonic_s())
    api = APIS.get(header.api_key)
    if api is None or not api.offers(header.api_version):
        return _unsupported(header)
    try:
        request = request_reader(header.api_key, header.api_version, api.request).read(frame, header)
    except ProtocolError as error:
        raise ProtocolError(f"{_name(header)} can't be read: {error}") from error
    call = Call(
        services=services,
        client_id=header.client_id or "",
        host=peer.host,
        address=peer.address,
        api_version=header.api_version,
        port=peer.port,
        principal=peer.certified if session is None else session.principal,
        session=session,
    )
    outcome = api.handler(call, request)
    if services.store.failed is not None:
        services.commit.fail(services.store.failed)
    if outcome is Silence.CLOSE:
        raise ProtocolError(f"{_name(header)} failed, and with acks=0 only a closed connection can say so")
    return Started(
        outcome,
        response_writer(header.api_key, header.api_version),
        header.correlation_id,
        services.counters.of_api(header.api_key),
        began_ns,
    )


def _take_bare_token(services: Services, peer: Peer, session: SaslSession, frame: bytes) -> Started:
    """Go on with a log-in that SaslHandshake version 0 has begun: tokens come and go without headers."""
    assert services.logins is not None  # a session is made by it
    pending: Pending[bytes | Silence] = Pending()
    services.logins.step(session, frame, peer.host, peer.port).then(
        lambda login: pending.resolve(Silence.KEEP_OPEN if login.has_failed else login.token)
    )
    return Started(pending, BARE_TOKENS, 0)


def _unsupported(header: RequestHeader) -> Started:
    if header.api_key != API_VERSIONS_KEY:
        raise ProtocolError(f"{_name(header)} is not offered; ask for ApiVersions to see what is")
    response = unsupported_api_versions(OFFERED)
    return Started(response, response_writer(API_VERSIONS_KEY, 0), header.correlation_id)


def _name(header: RequestHeader) -> str:
    client = f" of client {header.client_id!r}" if header.client_id else ""
    return f"request {header.correlation_id}{client} (API {header.api_key}, version {header.api_version})"
