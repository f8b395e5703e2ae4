"""Messages as tests need them."""

from __future__ import annotations

from typing import Any

from pika.spec import BasicProperties

from headrace.queue_clients.delivery import Delivery


def delivery(
    body: bytes = b"{}",
    *,
    tag: int = 1,
    routing_key: str = "orders",
    exchange: str = "",
    redelivered: bool = False,
    **properties: Any,
) -> Delivery:
    """A message out of a queue."""
    return Delivery(
        tag=tag,
        redelivered=redelivered,
        exchange=exchange,
        routing_key=routing_key,
        properties=BasicProperties(**properties),
        body=body,
    )


def death(
    queue: str = "orders", reason: str = "rejected", keys: tuple[str, ...] = ("new",)
) -> dict[str, Any]:
    """An entry of x-death."""
    return {"queue": queue, "reason": reason, "exchange": "shop", "routing-keys": list(keys), "count": 1}
