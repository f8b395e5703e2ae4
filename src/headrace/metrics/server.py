"""Serves metrics and health over HTTP/1.1, from a broker's own event loop: if that hangs, so does this.

One request per connection, few connections, small heads, and a time for all of it: whoever means ill gets
little. The protocol itself is h11's.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, cast

import h11

from headrace.config import KIB, Address
from headrace.logs import fields
from headrace.metrics import answers
from headrace.metrics.answers import HttpAnswer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    Render = Callable[[str], tuple[str, bytes]]

logger: Final = logging.getLogger(__name__)

CONNECTION_COUNT_MAX: Final = 50
HEAD_BYTES_MAX: Final = 16 * KIB
CONNECTION_S_MAX: Final = 30.0
"""A request and its answer must be done within this time."""


class MetricsServer:
    """Serves one program's numbers. Make, start and stop it on one event loop."""

    def __init__(self, render: Render, unready: Callable[[], str | None], *, is_public: bool) -> None:
        """`render` is called on a thread with the Accept header; `unready` says why the work is not done."""
        self.render = render
        self.unready = unready
        self.hosts: frozenset[str] | None = None
        self.connections: set[HttpConnection] = set()
        self._is_public = is_public
        self._server: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> Address:
        """Listen, and return the address with the port that was taken."""
        host, port, *_ = listener.getsockname()
        address = Address(host, port)
        if not self._is_public:
            self.hosts = answers.own_hosts(address)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: HttpConnection(self, loop), sock=listener)
        logger.info("metrics on http://%s/metrics", address, extra=fields(address=str(address)))
        return address

    async def stop(self) -> None:
        """Take no more connections, and close those that are open."""
        if self._server is None:
            return
        self._server.close()
        for connection in tuple(self.connections):
            connection.abort()
        await self._server.wait_closed()


class HttpConnection(asyncio.Protocol):
    """One client with one request. Belongs to the event loop's thread."""

    def __init__(self, server: MetricsServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._request: h11.Request | None = None
        self._rendering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, if there are not too many."""
        self._transport = cast("asyncio.Transport", transport)
        if len(self._server.connections) >= CONNECTION_COUNT_MAX:
            self._transport.abort()
            return
        self._server.connections.add(self)
        self._timer = self._loop.call_later(CONNECTION_S_MAX, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's signature
        """Let go."""
        if self in self._server.connections:
            self._server.connections.remove(self)
            self._timer.cancel()
        if self._rendering is not None:
            self._rendering.cancel()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the request; what comes after it is not read."""
        if self._request is not None:
            return
        self._http.receive_data(data)
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError:
            # It is not HTTP, or more than there is room for; there is nobody to explain that to.
            self._transport.abort()
            return
        if isinstance(event, h11.Request):
            self._request = event
            self._answer(event)
        elif event is not h11.NEED_DATA:
            self._transport.abort()

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    def _answer(self, request: h11.Request) -> None:
        method, path = request.method.decode(), request.target.decode().partition("?")[0]
        hosts = [value.decode("latin-1") for name, value in request.headers if name == b"host"]
        refused = answers.refusal(method, path, hosts, self._server.hosts)
        if refused is not None:
            self._send(refused)
        elif path == "/metrics":
            accept = b", ".join(value for name, value in request.headers if name == b"accept")
            self._rendering = self._loop.create_task(self._send_metrics(accept.decode("latin-1")))
        elif path == "/health/live":
            self._send(answers.live())
        else:
            self._send(answers.ready(self._server.unready()))

    async def _send_metrics(self, accept: str) -> None:
        try:
            content_type, body = await self._loop.run_in_executor(None, self._server.render, accept)
        except Exception:
            logger.exception("the metrics could not be collected")
            self._send(answers.failed())
        else:
            self._send(HttpAnswer(200, content_type, body))

    def _send(self, answer: HttpAnswer) -> None:
        headers = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Connection", "close"),
        ]
        assert self._request is not None  # an answer follows a request
        body = b"" if self._request.method == b"HEAD" else answer.body
        for event in (
            h11.Response(status_code=answer.status, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self._transport.write(self._http.send(event) or b"")
        self._transport.close()
