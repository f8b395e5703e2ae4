"""One channel of a connection: what has come of the message that is being published on it."""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from headrace.queue.amqp.methods import BASIC_CLASS
from headrace.queue.amqp.refusals import (
    FRAME_ERROR,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    SYNTAX_ERROR,
    UNEXPECTED_FRAME,
    violation,
)
from headrace.queue.amqp.values import read_short_string

_HEADER: Final = Struct(">HHQ")
_INDEX_BYTES: Final = 4
_TICKET_BYTES: Final = 2
"""A ticket that nobody uses."""

Target = tuple[str, str, bool]
"""Exchange, routing key, and whether the message is mandatory."""


def read_target(arguments: bytes) -> Target:
    """Where basic.publish is to go, of its arguments. Raises QueueRefused."""
    exchange, position = read_short_string(arguments, _TICKET_BYTES)
    routing_key, position = read_short_string(arguments, position)
    if position >= len(arguments):
        raise violation(SYNTAX_ERROR, "the arguments of Basic.Publish are cut short")
    bits = arguments[position]
    if bits & 2:
        raise violation(NOT_IMPLEMENTED, "immediate=true")
    return exchange, routing_key, bool(bits & 1)


class Publish:
    """A message that is to be published, whole."""

    __slots__ = ("body", "exchange", "is_mandatory", "properties", "routing_key")

    def __init__(self, target: Target, properties: bytes = b"", body: bytes = b"") -> None:
        self.exchange, self.routing_key, self.is_mandatory = target
        self.properties = properties
        """The properties as they came, from their flags on."""
        self.body = body


class Channel:
    """What has come on a channel, and whether it is closing."""

    __slots__ = (
        "_gathered",
        "_missing_bytes",
        "_noted_bytes",
        "content_bytes",
        "is_closing",
        "number",
        "publish",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_closing = False
        """Whether the client is yet to say that it has heard that the channel is closed."""
        self.content_bytes = 0
        """How much of a message has come that is not whole."""
        self.publish: Publish | None = None
        """The message whose header or body is to come next, if there is one."""
        self._gathered = bytearray()
        """What has come of a body. One bytearray: a client may cut it into single bytes."""
        self._missing_bytes = -1
        """How much of the body is yet to come; -1 before the header."""
        self._noted_bytes = 0

    def receive_publish(self, payload: bytes) -> None:
        """Take the method; the message follows."""
        self.publish = Publish(read_target(payload[_INDEX_BYTES:]))
        self._missing_bytes = -1

    def receive_header(self, payload: bytes, message_bytes_max: int) -> Publish | None:
        """Take the header; the message, if it has no body. Raises QueueRefused."""
        publish = self.publish
        if publish is None or self._missing_bytes >= 0:
            raise violation(UNEXPECTED_FRAME, "a content header came without the method of a message")
        try:
            class_id, _, size_bytes = _HEADER.unpack_from(payload)
        except error:
            raise violation(SYNTAX_ERROR, "a content header is cut short") from None
        if class_id != BASIC_CLASS:
            raise violation(UNEXPECTED_FRAME, f"a content header is of class {class_id}, not {BASIC_CLASS}")
        if size_bytes > message_bytes_max:
            raise violation(
                PRECONDITION_FAILED,
                f"message size {size_bytes} is larger than configured max size {message_bytes_max}",
            )
        publish.properties = payload[_HEADER.size :]
        self._missing_bytes = size_bytes
        return None if size_bytes else self._take(b"")

    def receive_body(self, payload: bytes) -> Publish | None:
        """Take a piece of the body; the message, if it is whole now. Raises QueueRefused."""
        missing = self._missing_bytes
        size_bytes = len(payload)
        if self.publish is None or missing < 0:
            raise violation(UNEXPECTED_FRAME, "a content body came without its header")
        if size_bytes > missing:
            raise violation(
                FRAME_ERROR,
                f"a body has more than the {missing} bytes that were left to come",
            )
        if size_bytes == missing and not self._gathered:
            return self._take(payload)
        self._gathered += payload
        self.content_bytes += size_bytes
        self._missing_bytes = missing - size_bytes
        return None if self._missing_bytes else self._take(bytes(self._gathered))

    def drop_content(self) -> None:
        """Forget what has come of a message."""
        self.publish = None
        self._gathered = bytearray()
        self._missing_bytes = -1
        self.content_bytes = self._noted_bytes = 0

    def take_growth(self) -> int:
        """By how much `content_bytes` has grown since this was last asked."""
        growth = self.content_bytes - self._noted_bytes
        self._noted_bytes = self.content_bytes
        return growth

    def _take(self, body: bytes) -> Publish:
        publish = self.publish
        assert publish is not None
        publish.body = body
        self.publish = None
        if self._gathered:
            self._gathered = bytearray()
            self.content_bytes = 0
        self._missing_bytes = -1
        return publish
