"""A message that was taken out of a queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pika.spec import BasicProperties


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message, how it came, and the tag that it is acknowledged by."""

    tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    properties: BasicProperties
    body: bytes = field(repr=False)

    @property
    def headers(self) -> Mapping[str, Any]:
        """The message's header table; empty where it has none."""
        headers: Mapping[str, Any] | None = self.properties.headers
        return headers or {}

    @property
    def message_id(self) -> str | None:
        """The id that the publisher gave it."""
        given: str | None = self.properties.message_id
        return given or None


def copied(properties: BasicProperties, **changes: Any) -> BasicProperties:
    """The same properties with some changed, for a message that is published again.

    The user id goes: servers refuse one that is not the publisher's own.
    """
    kept = {name: getattr(properties, name) for name in PROPERTY_NAMES if name != "user_id"}
    return BasicProperties(**{**kept, **changes})


PROPERTY_NAMES = (
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
