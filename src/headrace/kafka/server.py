"""The broker on the network: an asyncio server that feeds connections and sends their answers.

Everything here runs on the event loop's thread, but for the syncs, the changes of topics and the log-ins,
which have threads of their own. This is the only module of the package that opens sockets.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Final

from headrace.config import Address
from headrace.errors import ConfigError
from headrace.kafka.disk_thread import DiskThread
from headrace.kafka.engine import Engine
from headrace.kafka.groups_on_demand import read_code_ahead
from headrace.kafka.security.logins import Logins
from headrace.kafka.sync_threads import SyncThreads
from headrace.log.cleaner import Cleaner
from headrace.security.tls import make_context
from headrace.security.users import UserRegistry
from headrace.security.users_file import USERS_FILE_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client.registry import Collector

    from headrace.clock import Clock
    from headrace.config import BrokerConfig
    from headrace.errors import StorageError
    from headrace.log.partition import PartitionLog
    from headrace.log.store import LogStore
    from headrace.metrics.server import MetricsServer

logger: Final = logging.getLogger(__name__)

LISTEN_BACKLOG: Final = 256
CLOSE_WAIT_S_MAX: Final = 2.0
"""How long answers that are on their way may take when the server stops; and code that is read ahead."""
READ_AHEAD_S: Final = 1.0
"""How long after the start code is read ahead: most brokers in tests have ended by then."""


class KafkaServer:
    """Serves a log store. Make, start and stop it on one event loop."""

    def __init__(self, config: BrokerConfig, store: LogStore, clock: Clock) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._server: asyncio.Server | None = None
        self._metrics: MetricsServer | None = None
        self._reading_ahead: asyncio.TimerHandle | None = None
        self._collectors: list[Collector] = []
        self._unready_checks: list[Callable[[], str | None]] = []
        self.metrics_address: Address | None = None
        """Where metrics are served, once the server has started."""

    def show_beside(self, collector: Collector, unready: Callable[[], str | None]) -> None:
        """Have another server's numbers and health among the broker's. Call it before `start`."""
        self._collectors.append(collector)
        self._unready_checks.append(unready)

    async def start(self) -> Address:
        """Listen, and return the address with the port that was taken."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._sync_threads = SyncThreads(self._on_synced)
        self._disk_thread = DiskThread(loop.call_soon_threadsafe)
        self._login_thread = DiskThread(loop.call_soon_threadsafe, name="headrace-login")
        # Not one of those that have other work: what is to be synced would wait for it.
        self._read_ahead = Thread(target=read_code_ahead, name="headrace-read-ahead", daemon=True)
        security = self._config.security
        self._logins = Logins(
            self._config,
            UserRegistry(security.users_file or self._store.data_dir / USERS_FILE_NAME),
            self._clock,
            loop,
            self._login_thread.submit,
        )
        self._logins.check_users()
        if security.tls is None and not self._config.listen.is_loopback:
            logger.warning(
                "connections to %s are not encrypted: whoever is on the way can read and change records. "
                "Add TLS (--tls-certificate, --tls-key) unless the network is trusted",
                self._config.listen,
            )
        self._engine = Engine(
            self._config,
            self._store,
            self._clock,
            loop,
            start_sync=self._sync_threads.sync,
            submit=self._disk_thread.submit,
            call_soon=loop.call_soon,
            logins=self._logins,
            tls_context=None if security.tls is None else make_context(security.tls),
        )
        self._cleaner = Cleaner(
            self._config.log,
            self._clock,
            self._store.partitions,
            loop.call_soon_threadsafe,
            on_failure=self._engine.services.commit.fail,
            # Whoever waits at an offset that is gone has to hear of it.
            on_shortened=self._engine.services.watchers.notify,
        )
        if self._config.metrics_listen is not None:
            self.metrics_address = await self._start_metrics(self._config.metrics_listen)
        listener = _listen(self._config.listen)
        self._server = await loop.create_server(
            self._engine.new_connection, sock=listener, backlog=LISTEN_BACKLOG
        )
        self._sync_threads.start()
        self._disk_thread.start()
        self._login_thread.start()
        self._cleaner.start()
        self._engine.start()
        self._reading_ahead = loop.call_later(READ_AHEAD_S, self._read_ahead.start)
        host, port, *_ = listener.getsockname()
        return Address(host, port)

    async def stop(self) -> None:
        """Take no more connections, send the answers that are due, and close."""
        if self._metrics is not None:
            await self._metrics.stop()
        if self._server is None:
            return
        self._server.close()
        if self._reading_ahead is not None:
            self._reading_ahead.cancel()
        if self._read_ahead.is_alive():
            self._read_ahead.join(CLOSE_WAIT_S_MAX)
        self._engine.stop()
        self._logins.close()
        self._login_thread.stop()
        self._cleaner.stop()
        # A thread's last words have been scheduled when it ends; they run before what is scheduled then, and
        # what the first one's say may be work for the second.
        self._disk_thread.stop()
        await asyncio.sleep(0)
        self._sync_threads.stop()
        await asyncio.sleep(0)
        connections = self._engine.connections
        closing = [connection.close() for connection in connections]
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_WAIT_S_MAX)
        for connection in connections:
            connection.abort()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._server.wait_closed(), CLOSE_WAIT_S_MAX)

    async def _start_metrics(self, address: Address) -> Address:
        # Only a broker that is watched pays for these at its start.
        from headrace.kafka.metrics.collector import BrokerMetrics  # noqa: PLC0415
        from headrace.metrics.server import MetricsServer  # noqa: PLC0415

        self._metrics = MetricsServer(
            BrokerMetrics(
                self._engine, self._sync_threads.times, self._cleaner.counts, self._collectors
            ).render,
            self._unready,
            is_public=self._config.metrics_public,
        )
        return await self._metrics.start(_listen(address))

    def _unready(self) -> str | None:
        reasons = (check() for check in (self._engine.unready, *self._unready_checks))
        return next((reason for reason in reasons if reason is not None), None)

    def _on_synced(self, logs: tuple[PartitionLog, ...], error: StorageError | None) -> None:
        self._loop.call_soon_threadsafe(self._engine.synced, logs, error)


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
