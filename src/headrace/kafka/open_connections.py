"""Which connections are open, how many from each address, and whether one more may be."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from headrace.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.config import BrokerConfig
    from headrace.kafka.client_connection import ClientConnection
    from headrace.kafka.dispatch import Peer

logger: Final = logging.getLogger(__name__)

WARNING_INTERVAL_S: Final = 10.0
"""Refused connections are logged no more often: whoever opens thousands must not fill the disk as well."""
WARNINGS_PER_HOST_MAX: Final = 5
"""So many closed connections of one address are logged in that time: clients that are set up wrongly come
back twenty times a second."""


class OpenConnections:
    """Belongs to the event loop's thread."""

    def __init__(self, config: BrokerConfig, now_s: Callable[[], float]) -> None:
        self._config = config
        self._now_s = now_s
        self._host_of: dict[ClientConnection, str] = {}
        self._count_by_host: Counter[str] = Counter()
        self._warned_s: float | None = None
        self._counting_since_s = now_s()
        self._warning_count_by_host: Counter[str] = Counter()
        self.is_closed = False
        """Whether no further connection is taken at all: the broker is stopping."""
        self.opened_count = 0
        self.refused_count = 0

    def __len__(self) -> int:
        return len(self._host_of)

    def __iter__(self) -> Iterator[ClientConnection]:
        return iter(tuple(self._host_of))

    def take(self, connection: ClientConnection, host: str) -> bool:
        """Count a new connection in; False if it may not stay."""
        if self.is_closed:
            return False
        refusal = self._refusal(host)
        if refusal is not None:
            self.refused_count += 1
            self._warn(host, refusal)
            return False
        self._host_of[connection] = host
        self._count_by_host[host] += 1
        self.opened_count += 1
        return True

    def give_back(self, connection: ClientConnection) -> None:
        """Count a connection out. Harmless when it was not counted in."""
        host = self._host_of.pop(connection, None)
        if host is not None:
            self._count_by_host[host] -= 1
            if not self._count_by_host[host]:
                del self._count_by_host[host]

    def warn_of_closing(self, peer: Peer, reason: object) -> None:
        """Log that a connection is closed for its client's fault, as far as its address may fill lines."""
        now_s = self._now_s()
        if now_s - self._counting_since_s >= WARNING_INTERVAL_S:
            self._counting_since_s = now_s
            self._warning_count_by_host.clear()
        self._warning_count_by_host[peer.host] += 1
        count = self._warning_count_by_host[peer.host]
        if count > WARNINGS_PER_HOST_MAX:
            return
        is_last = count == WARNINGS_PER_HOST_MAX
        logger.warning(
            "closing the connection of %s: %s%s",
            peer,
            reason,
            f" (more of this from there is not logged for {WARNING_INTERVAL_S:.0f} seconds)"
            if is_last
            else "",
            extra=fields(client=str(peer), principal=peer.principal),
        )

    def _refusal(self, host: str) -> str | None:
        config = self._config
        if len(self) >= config.connection_count_max:
            return f"{len(self)} are open, and connection_count_max allows no more"
        count = self._count_by_host[host]
        if count >= config.connection_count_per_address_max:
            return f"{count} are open from there, and connection_count_per_address_max allows no more"
        return None

    def _warn(self, host: str, refusal: str) -> None:
        now_s = self._now_s()
        if self._warned_s is None or now_s - self._warned_s >= WARNING_INTERVAL_S:
            self._warned_s = now_s
            logger.warning(
                "a connection from %s was refused: %s (refused so far: %d)",
                host,
                refusal,
                self.refused_count,
                extra=fields(client=host),
            )
