"""The broker on the network: an asyncio server that feeds connections and sends their answers.

Everything here runs on the event loop's thread, but for the syncs, which have their own. This is the only
module of the package that opens sockets.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headrace.config import Address
from headrace.errors import ConfigError, StorageError
from headrace.kafka.budget import InFlightBudget
from headrace.kafka.client_connection import ClientConnection
from headrace.kafka.commit import GroupCommit
from headrace.kafka.consumer_groups import ConsumerGroups
from headrace.kafka.services import Services
from headrace.kafka.sync_thread import SyncThread
from headrace.kafka.watchers import Watchers

if TYPE_CHECKING:
    from headrace.clock import Clock
    from headrace.config import BrokerConfig
    from headrace.log.partition import PartitionLog
    from headrace.log.store import LogStore

logger: Final = logging.getLogger(__name__)

LISTEN_BACKLOG: Final = 256
SWEEP_INTERVAL_S: Final = 10.0
CLOSE_WAIT_S_MAX: Final = 2.0
"""How long answers that are on their way may take when the server stops."""


class KafkaServer:
    """Serves a log store. Make, start and stop it on one event loop."""

    def __init__(self, config: BrokerConfig, store: LogStore, clock: Clock) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._connections: set[ClientConnection] = set()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._has_failed = False
        self._is_stopping = False

    async def start(self) -> Address:
        """Listen, and return the address with the port that was taken."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._sync_thread = SyncThread(self._on_synced)
        watchers = Watchers()
        commit = GroupCommit(
            self._config.durability, self._sync_thread.sync, watchers.notify, self._on_failure
        )
        self._services = Services(
            config=self._config,
            store=self._store,
            clock=self._clock,
            scheduler=loop,
            commit=commit,
            watchers=watchers,
            groups=ConsumerGroups(self._config, self._store, self._clock, loop, commit),
        )
        self._budget = InFlightBudget(
            self._config.in_flight_bytes_max, frame_bytes_max=self._config.frame_bytes_max
        )
        listener = _listen(self._config.listen)
        self._server = await loop.create_server(self._new_connection, sock=listener, backlog=LISTEN_BACKLOG)
        self._sync_thread.start()
        self._sweep()
        host, port, *_ = listener.getsockname()
        return Address(host, port)

    async def stop(self) -> None:
        """Take no more connections, send the answers that are due, and close."""
        if self._server is None:
            return
        self._is_stopping = True
        self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._services.groups.close()
        self._sync_thread.stop()
        # The thread's last words have been scheduled; they run before what is scheduled now.
        await asyncio.sleep(0)
        closing = [connection.close() for connection in tuple(self._connections)]
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_WAIT_S_MAX)
        for connection in tuple(self._connections):
            connection.abort()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._server.wait_closed(), CLOSE_WAIT_S_MAX)

    def _new_connection(self) -> ClientConnection:
        return ClientConnection(
            self._services,
            self._budget,
            self._connections,
            self._loop,
            may_open=self._may_open,
        )

    def _may_open(self) -> bool:
        if len(self._connections) < self._config.connection_count_max:
            return not self._is_stopping
        logger.warning(
            "connection refused: %d are open, and connection_count_max allows no more", len(self._connections)
        )
        return False

    def _on_synced(self, logs: tuple[PartitionLog, ...], error: StorageError | None) -> None:
        self._loop.call_soon_threadsafe(self._services.commit.synced, logs, error)

    def _on_failure(self, error: StorageError) -> None:
        if not self._has_failed:
            self._has_failed = True
            logger.critical("THE BROKER TAKES NO MORE WRITES. %s", error)

    def _sweep(self) -> None:
        for connection in tuple(self._connections):
            connection.close_if_stalled(self._loop.time())
        self._sweeper = self._loop.call_later(SWEEP_INTERVAL_S, self._sweep)


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
            f"can't listen on {address}: {error.strerror or error}. "
            "Stop the program that has the port, or choose another one (port 0 picks a free one)"
        ) from error
    return listener
