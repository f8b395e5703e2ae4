"""Which clients of queues are connected, how many from each address, and whether one more may be."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from headrace.logs import fields

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from headrace.config import BrokerConfig
    from headrace.queue.client_connection import ClientConnection

logger: Final = logging.getLogger(__name__)

WARNING_INTERVAL_S: Final = 10.0
WARNINGS_PER_HOST_MAX: Final = 5
"""So many lines of one address are logged in that time: clients that are set up wrongly come back often."""


class OpenClients:
    """Belongs to the event loop's thread; counters may be read by others."""

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.handshake_s_max = config.authentication_wait_ms_max / 1000
        self._count_max = config.connection_count_max
        self._count_per_address_max = config.connection_count_per_address_max
        self._clients: dict[ClientConnection, str] = {}
        self._count_by_host: Counter[str] = Counter()
        self._warning_count_by_host: Counter[str] = Counter()
        self._counting_since_s = loop.time()
        self.is_closed = False
        """Whether no further one is taken at all: the broker is stopping."""
        self.opened_count = 0
        self.refused_count = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.closed_by_code: Counter[int] = Counter()
        """How many connections were closed for their clients' faults, by reply code."""

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[ClientConnection]:
        return iter(tuple(self._clients))

    def take(self, client: ClientConnection, host: str) -> bool:
        """Count a new one in; False if it may not stay."""
        if self.is_closed:
            return False
        if len(self) >= self._count_max or self._count_by_host[host] >= self._count_per_address_max:
            self.refused_count += 1
            self.warn(
                host,
                f"a connection from {host} was refused: {self._count_by_host[host]} are open from there and "
                f"{len(self)} in all, and connection_count_max or connection_count_per_address_max allows no "
                f"more (refused so far: {self.refused_count})",
            )
            return False
        self._clients[client] = host
        self._count_by_host[host] += 1
        self.opened_count += 1
        return True

    def give_back(self, client: ClientConnection) -> None:
        """Count one out. Harmless when it was not counted in."""
        host = self._clients.pop(client, None)
        if host is not None:
            self._count_by_host[host] -= 1
            if not self._count_by_host[host]:
                del self._count_by_host[host]

    def warn(self, host: str, text: str) -> None:
        """Log what a client did wrong, as far as its address may fill lines."""
        now_s = self.loop.time()
        if now_s - self._counting_since_s >= WARNING_INTERVAL_S:
            self._counting_since_s = now_s
            self._warning_count_by_host.clear()
        self._warning_count_by_host[host] += 1
        count = self._warning_count_by_host[host]
        if count <= WARNINGS_PER_HOST_MAX:
            more = " (more of this from there is not logged for 10 seconds)"
            logger.warning(
                "%s%s", text, more if count == WARNINGS_PER_HOST_MAX else "", extra=fields(client=host)
            )
