"""Publishes many messages, each confirmed by the server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pika.spec import BasicProperties

from headrace.queue_clients.connection import QueueConnection

WINDOW: Final = 500
"""How many messages may wait for their confirmation at once."""
_TRANSIENT: Final = 1
_PERSISTENT: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """Where messages go, and what they have in common."""

    routing_key: str
    exchange: str = ""
    headers: Mapping[str, Any] = field(default_factory=dict)
    content_type: str | None = None
    priority: int | None = None
    expiration_ms: int | None = None
    transient: bool = False

    async def publish_all(self, connection: QueueConnection, bodies: Iterable[bytes]) -> int:
        """Publish; returns how many were confirmed, which is all. Raises where one was not."""
        channel = await connection.channel(confirms=True)
        waiting: set[asyncio.Future[None]] = set()
        count = 0
        for body in bodies:
            waiting.add(
                channel.publish(
                    body,
                    properties=self.properties(uuid.uuid4().hex),
                    exchange=self.exchange,
                    routing_key=self.routing_key,
                )
            )
            count += 1
            if len(waiting) >= WINDOW:
                waiting = await _confirmed(waiting, asyncio.FIRST_COMPLETED)
        while waiting:
            waiting = await _confirmed(waiting, asyncio.ALL_COMPLETED)
        await channel.close()
        return count

    def properties(self, message_id: str) -> BasicProperties:
        """What a message says of itself."""
        return BasicProperties(
            headers=dict(self.headers) or None,
            content_type=self.content_type,
            priority=self.priority,
            expiration=None if self.expiration_ms is None else str(self.expiration_ms),
            delivery_mode=_TRANSIENT if self.transient else _PERSISTENT,
            message_id=message_id,
        )


async def _confirmed(waiting: set[asyncio.Future[None]], when: str) -> set[asyncio.Future[None]]:
    done, left = await asyncio.wait(waiting, return_when=when)
    for each in done:
        each.result()
    return left
