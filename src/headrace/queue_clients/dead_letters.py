"""Puts a message that can't be delivered where it can be found, with the cause.

The copy goes to a durable queue and is confirmed before the original is acknowledged. So it is never in
neither place; killed in between, it is in both, with the same message id. Rejecting the original instead
would drop it where its queue has no dead-letter exchange, and could not say why.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from headrace.queue_clients.channel import QueueChannel
from headrace.queue_clients.deaths import with_death
from headrace.queue_clients.delivery import Delivery, copied

PERSISTENT: Final = 2


class DeadLetters:
    """The queue of what can't be delivered. Belongs to the event loop of its channel, which has confirms."""

    def __init__(self, channel: QueueChannel, queue: str, *, origin: str) -> None:
        self.queue = queue
        self._channel = channel
        self._origin = origin

    async def add(self, delivery: Delivery, *, reason: str, cause: str, now_ms: int) -> None:
        """Keep a copy, and return when it is safe."""
        headers = with_death(
            delivery.headers,
            queue=self._origin,
            reason=reason,
            exchange=delivery.exchange,
            routing_key=delivery.routing_key,
            died_at=datetime.fromtimestamp(now_ms // 1000, UTC),
            cause=cause,
        )
        # One that has expired here must not go on to do so there.
        properties = copied(delivery.properties, headers=headers, delivery_mode=PERSISTENT, expiration=None)
        await self._channel.publish(delivery.body, properties=properties, routing_key=self.queue)
