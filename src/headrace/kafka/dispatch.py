"""From a request frame to its handler, and from the handler's response to an answer frame. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import ProtocolError
from headrace.kafka.answer import Pending, Silence
from headrace.kafka.api import APIS, OFFERED
from headrace.kafka.codec.frame import (
    API_VERSIONS_KEY,
    read_request_header,
    request_reader,
    response_writer,
)
from headrace.kafka.handlers.api_versions import unsupported_api_versions
from headrace.kafka.services import Call, Services

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.config import Address
    from headrace.kafka.codec.frame import RequestHeader
    from headrace.kafka.codec.writer import Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The other end of a connection."""

    host: str
    port: int
    address: Address
    """The address under which the peer has reached the broker."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def dispatch(
    services: Services, peer: Peer, frame: bytes, answer: Callable[[Parts | None], None]
) -> Pending[Any] | None:
    """Start a request, and call `answer` with its frame, or with None if it has none.

    Returns the pending answer if it comes later. Raises ProtocolError if the connection is to be closed.
    """
    header = read_request_header(frame)
    api = APIS.get(header.api_key)
    if api is None or not api.offers(header.api_version):
        answer(_unsupported(header))
        return None
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
    )
    response = api.handler(call, request)
    if services.store.failed is not None:
        services.commit.fail(services.store.failed)
    write = response_writer(header.api_key, header.api_version).write
    if isinstance(response, Pending):
        response.then(lambda value: answer(write(header.correlation_id, value)))
        return response
    if isinstance(response, Silence):
        if response is Silence.CLOSE:
            raise ProtocolError(
                f"{_name(header)} failed, and with acks=0 only a closed connection can say so"
            )
        answer(None)
        return None
    answer(write(header.correlation_id, response))
    return None


def _unsupported(header: RequestHeader) -> Parts:
    if header.api_key != API_VERSIONS_KEY:
        raise ProtocolError(f"{_name(header)} is not offered; ask for ApiVersions to see what is")
    response = unsupported_api_versions(OFFERED)
    return response_writer(API_VERSIONS_KEY, 0).write(header.correlation_id, response)


def _name(header: RequestHeader) -> str:
    client = f" of client {header.client_id!r}" if header.client_id else ""
    return f"request {header.correlation_id}{client} (API {header.api_key}, version {header.api_version})"
