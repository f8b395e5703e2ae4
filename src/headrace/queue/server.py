"""Work queues on the network: an asyncio server that feeds clients' sessions and sends what they are due.

Everything here runs on the event loop's thread, but for log-ins and what the journal does with the disk. This
is the only module of the package that opens sockets.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from importlib.metadata import version
from platform import python_version
from typing import TYPE_CHECKING, Final

from headrace.config import Address
from headrace.errors import ConfigError
from headrace.queue.amqp.connection import ConnectionLimits
from headrace.queue.client_connection import ClientConnection
from headrace.queue.limits import QueueLimits
from headrace.queue.logins import QueueLogins
from headrace.queue.open_clients import OpenClients
from headrace.queue.threads import ThreadedQueues
from headrace.security.tls import make_context
from headrace.security.users import UserRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.clock import Clock
    from headrace.config import BrokerConfig, QueueConfig
    from headrace.errors import StorageError
    from headrace.queue.broker import QueueBroker

logger: Final = logging.getLogger(__name__)

LISTEN_BACKLOG: Final = 256
TICK_S: Final = 1.0
"""How often heartbeats and time-outs are looked at."""
CLOSE_WAIT_S_MAX: Final = 2.0
"""How long clients may take to hear that the server stops."""


class QueueServer:
    """Serves a broker of queues. Make, start and stop it on one event loop."""

    def __init__(self, config: BrokerConfig, queues: QueueConfig, clock: Clock) -> None:
        """The data directory is one that this process has locked."""
        self._config = config
        self._queues = queues
        self._clock = clock
        self._limits = QueueLimits(
            vhosts=queues.virtual_hosts,
            message_bytes_max=queues.message_bytes_max,
            journal_segment_bytes=queues.journal_segment_bytes,
        )
        self._server: asyncio.Server | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._threads: ThreadedQueues | None = None

    @property
    def broker(self) -> QueueBroker:
        """The queues, once the server has started."""
        assert self._threads is not None, "the server was not started"
        return self._threads.broker

    async def start(self) -> Address:
        """Recover the queues, listen, and return the address with the port that was taken."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        security = self._config.security
        users = None if security.users_file is None else UserRegistry(security.users_file)
        self.logins = QueueLogins(users, self._clock, loop)
        self.clients = OpenClients(self._config, loop)
        self.logins.check_users()
        tls = None if security.tls is None else make_context(security.tls)
        listener = _listen(self._queues.listen)
        try:
            self._threads = ThreadedQueues(
                self._config.data_dir,
                self._limits,
                self._clock,
                loop,
                durability=self._config.durability,
                on_failure=self._on_failure,
            )
        except BaseException:
            listener.close()
            raise
        self._threads.start()
        self._server = await loop.create_server(
            self._new_connection(),
            sock=listener,
            backlog=LISTEN_BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else self.clients.handshake_s_max,
        )
        self._ticking = loop.call_later(TICK_S, self._tick)
        host, port, *_ = listener.getsockname()
        return Address(host, port)

    async def stop(self) -> None:
        """Take no more clients, tell those that are there, and close."""
        if self._server is not None:
            await self._stop_serving(self._server)
            self._server = None
        if self._threads is not None:
            self._threads.stop()
            self._threads = None

    async def _stop_serving(self, server: asyncio.Server) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        self.clients.is_closed = True
        server.close()
        closing = [client.shut_down() for client in self.clients]
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_WAIT_S_MAX)
        for client in self.clients:
            client.abort()
        with suppress(TimeoutError):
            await asyncio.wait_for(server.wait_closed(), CLOSE_WAIT_S_MAX)
        self.logins.close()

    def unready(self) -> str | None:
        """Why clients should not be sent here, if there is a reason."""
        failed = None if self._threads is None else self._threads.engine.journal.failed
        return None if failed is None else f"the queues take no more messages: {failed}"

    def _new_connection(self) -> Callable[[], ClientConnection]:
        """What makes the protocol of each new connection."""
        queues = self._queues
        limits = ConnectionLimits(
            frame_bytes_max=queues.frame_bytes_max,
            channel_count_max=queues.channel_count_max,
            heartbeat_s=queues.heartbeat_s,
            message_bytes_max=queues.message_bytes_max,
            content_bytes_max=4 * queues.message_bytes_max,
        )
        properties = {
            "product": "Headrace",
            "version": version("headrace"),
            "platform": f"Python {python_version()}",
            "cluster_name": "headrace",
        }
        return lambda: ClientConnection(self.broker, self.clients, self.logins, limits, properties)

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        """Have something called on the event loop's thread."""
        self._loop.call_soon_threadsafe(callback)

    def _on_failure(self, _error: StorageError) -> None:
        # Not now: it may have been noticed in the middle of what one of them asked for.
        self._loop.call_soon(self._close_clients)

    def _close_clients(self) -> None:
        for client in self.clients:
            client.fail("the disk has failed; what was not confirmed may be lost")

    def _tick(self) -> None:
        self._ticking = self._loop.call_later(TICK_S, self._tick)
        now_s = self._loop.time()
        for client in self.clients:
            client.tick(now_s)


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it: a client whose machine has vanished is noticed in the end.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"can't listen on {address} for AMQP: {error.strerror or error}. "
            "Stop the program that has the port, or choose another one (port 0 picks a free one)"
        ) from error
    return listener
