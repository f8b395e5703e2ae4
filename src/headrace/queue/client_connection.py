"""One client's socket: hands its bytes to a session, and writes what the session wants sent."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, cast

from headrace.config import KIB
from headrace.failpoints import hit
from headrace.queue.amqp.connection import Connection, State
from headrace.queue.amqp.refusals import CONNECTION_FORCED, INTERNAL_ERROR, violation
from headrace.queue.amqp.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.queue.amqp.connection import ConnectionLimits
    from headrace.queue.amqp.events import LoginAsked
    from headrace.queue.interface import BrokerMethods
    from headrace.queue.logins import QueueLogins
    from headrace.queue.open_clients import OpenClients

logger: Final = logging.getLogger(__name__)

READ_AHEAD_BYTES_MAX: Final = 256 * KIB
"""How much is kept of what can't be done yet before nothing more is read."""
CLOSE_WAIT_S_MAX: Final = 5.0
"""How long a client may take to say that it has heard of the end."""


class ClientConnection(asyncio.Protocol):
    """Belongs to the event loop's thread."""

    def __init__(
        self,
        broker: BrokerMethods,
        clients: OpenClients,
        logins: QueueLogins,
        limits: ConnectionLimits,
        server_properties: Mapping[str, object],
    ) -> None:
        self._clients = clients
        self._logins = logins
        self._loop = clients.loop
        self._opened_s = self._loop.time()
        self._closing_s: float | None = None
        self._wire = Connection(limits, self._opened_s, server_properties)
        self.session = Session(broker, self._wire, self)
        self.host = ""
        self.name = ""
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done once the socket is closed."""
        self._is_pumping = False
        self._is_woken = False
        self._is_writable = True
        self._is_reading = True
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember who it is."""
        self._transport = cast("asyncio.Transport", transport)
        peer_name = self._transport.get_extra_info("peername")
        # A client that has reset its connection already has no name any more.
        if peer_name is None or not self._clients.take(self, peer_name[0]):
            self._is_lost = True
            self._transport.abort()
            return
        self.host = peer_name[0]
        self.name = self.session.client = f"{peer_name[0]}:{peer_name[1]}"

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's signature
        """Give back what the client held."""
        self._is_lost = True
        self._clients.give_back(self)
        self.session.close()
        if not self.lost.done():
            self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        self._clients.received_bytes += len(data)
        self._wire.receive(data, self._loop.time())
        self._pump()

    def pause_writing(self) -> None:
        """The client takes too little of what it is sent."""
        self._is_writable = False
        self.session.pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._is_writable = True
        self.wake()

    def wake(self) -> None:
        """There is something to be sent, or to go on with."""
        if not self._is_woken and not self._is_pumping and not self._is_lost:
            self._is_woken = True
            self._loop.call_soon(self._pump)

    def log_in(self, asked: LoginAsked) -> None:
        """Have a password checked."""
        self._logins.log_in(
            asked.mechanism,
            asked.response,
            self.host,
            on_success=self._logged_in,
            on_failure=self._login_failed,
        )

    def shut_down(self) -> asyncio.Future[None]:
        """Tell the client that the broker stops."""
        if not self._is_lost:
            self._wire.shut_down()
            self._pump()
        return self.lost

    def fail(self, text: str) -> None:
        """Tell the client that the broker can't go on."""
        if self._wire.state is State.OPEN:
            self._wire.fail_connection(violation(INTERNAL_ERROR, text))
            self._pump()

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    def tick(self, now_s: float) -> None:
        """Send a heartbeat if one is due, and let go of a client that has kept us waiting for too long."""
        if self._closing_s is not None:
            if now_s - self._closing_s > CLOSE_WAIT_S_MAX:
                self.abort()
            return
        if self._wire.state is not State.OPEN and now_s - self._opened_s > self._clients.handshake_s_max:
            self._clients.warn(self.host, f"{self.name} has not opened its connection in time")
            self.abort()
            return
        # Who is not read can't be heard of.
        is_alive = self._wire.tick(now_s)
        if not is_alive and self._is_reading:
            self._clients.warn(
                self.host,
                f"missed heartbeats from {self.name}, which promised one in {self._wire.heartbeat_s} s",
            )
            self.abort()
            return
        self.wake()

    def _logged_in(self, user: str) -> None:
        if not self._is_lost:
            self.session.logged_in(user)
            self._pump()

    def _login_failed(self) -> None:
        if not self._is_lost:
            self._wire.login_failed()
            self._pump()

    def _pump(self) -> None:
        """Do what has come, send what is due."""
        self._is_woken = False
        if self._is_lost:
            return
        self._is_pumping = True
        try:
            self.session.pump()
            self._send()
        except Exception:
            # A mistake of ours with one client must not end the broker for everybody else.
            logger.exception("what %s sent failed in an unexpected way; closing its connection", self.name)
            self.abort()
        finally:
            self._is_pumping = False
        self._pause_or_resume_reading()

    def _send(self) -> None:
        data = self.session.take_outgoing()
        if data:
            self._clients.sent_bytes += len(data)
            self._wire.sent(self._loop.time())
            self._transport.write(data)
            hit("queue.sent")
        if self._wire.state is State.CLOSED:
            self._closing_s = self._closing_s or self._loop.time()
            self._transport.close()
        elif self._wire.state is State.CLOSING:
            self._note_closing()
        elif self._is_writable and self.session.resume():
            self._is_woken = True
            self._loop.call_soon(self._pump)

    def _note_closing(self) -> None:
        if self._closing_s is None:
            self._closing_s = self._loop.time()
            code = self._wire.closing_code
            if code == CONNECTION_FORCED:
                return
            self._clients.closed_by_code[code] += 1
            self._clients.warn(self.host, f"closing the connection of {self.name}: {self._wire.closing_text}")

    def _pause_or_resume_reading(self) -> None:
        is_behind = self._wire.buffered_bytes > READ_AHEAD_BYTES_MAX
        if is_behind and self._is_reading:
            self._is_reading = False
            self._transport.pause_reading()
        elif not is_behind and not self._is_reading:
            self._is_reading = True
            self._transport.resume_reading()
