"""A message and its place in a queue.

A message that is routed to several queues is one Message with one Entry in each of them. Millions of messages
pass through here, so neither is frozen and neither is a dataclass: they are made once and changed in place,
by the broker's thread alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.queue.consumer import Consumer
    from headrace.queue.work_queue import WorkQueue

NOWHERE: Final = -1
"""The location of a message that is not in the journal."""


class Message:
    """What a publisher sent. `properties` are as on the wire: the flags and values of a content header."""

    __slots__ = (
        "body",
        "body_bytes",
        "exchange",
        "expiration_ms",
        "is_persistent",
        "location",
        "priority",
        "properties",
        "published_ms",
        "references",
        "routing_key",
        "waits_for_disk",
    )

    def __init__(self, exchange: str, routing_key: str, properties: bytes, body: bytes) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.properties = properties
        self.body: bytes | None = body
        """None while it lies in the journal only. Whoever gets a message from a sink finds it here."""
        self.body_bytes = len(body)
        self.is_persistent = False
        self.priority = 0
        self.expiration_ms: int | None = None
        """The time to live that the publisher gave it."""
        self.published_ms = 0
        self.location = NOWHERE
        """Where it lies in the journal."""
        self.references = 0
        """How many queues hold it."""
        self.waits_for_disk = False
        """Whether it may be delivered only once it is durable: the copy of a dead letter is.

        If a crash took it back, its original would die again, and the consumer see the same copy twice.
        """

    def copy(self) -> Message:
        """The same message for one queue alone; it is not in the journal."""
        copy = Message(self.exchange, self.routing_key, self.properties, self.body or b"")
        copy.is_persistent = self.is_persistent
        copy.priority = self.priority
        copy.expiration_ms = self.expiration_ms
        copy.published_ms = self.published_ms
        copy.references = 1
        copy.waits_for_disk = self.waits_for_disk
        return copy


class Entry:
    """A message's place in one queue."""

    __slots__ = (
        "consumer",
        "delivery_count",
        "expires_ms",
        "is_resident",
        "is_stored",
        "kept_bytes",
        "message",
        "position",
        "queue",
        "redelivered",
    )

    def __init__(self, queue: WorkQueue, message: Message, position: int) -> None:
        self.queue = queue
        self.message = message
        self.position = position
        """Grows with each message of the queue, and stays with this one when it comes back."""
        self.expires_ms = 0
        """When it is dead, on the wall clock; 0 for never."""
        self.redelivered = False
        self.delivery_count = 0
        """How often it came back."""
        self.consumer: Consumer | None = None
        """Who holds it, if it was not fetched by basic.get."""
        self.is_stored = False
        """Whether it would come back after a restart."""
        self.is_resident = False
        """Whether its body counts as memory in use."""
        self.kept_bytes = 0
        """How many bytes of the journal count as needed for it; see needed.py."""

    def relocate(self, location: int, kept_bytes: int) -> int:
        """Note where it lies in the journal now, and what counts for it; return what did until now."""
        before_bytes, self.kept_bytes = self.kept_bytes, kept_bytes
        self.message.location = location
        return before_bytes
