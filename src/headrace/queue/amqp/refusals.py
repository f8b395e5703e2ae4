"""What a client of the wire does wrong, as AMQP's reply codes have it.

A soft error closes the channel that it happened on; a hard one closes the connection. Which is which follows
from the code alone. What the broker refuses is in `headrace.queue.refusals`.
"""

from __future__ import annotations

from typing import Final

from headrace.errors import QueueRefused

CONNECTION_FORCED: Final = 320
ACCESS_REFUSED: Final = 403
PRECONDITION_FAILED: Final = 406
FRAME_ERROR: Final = 501
SYNTAX_ERROR: Final = 502
COMMAND_INVALID: Final = 503
CHANNEL_ERROR: Final = 504
UNEXPECTED_FRAME: Final = 505
RESOURCE_ERROR: Final = 506
NOT_ALLOWED: Final = 530
NOT_IMPLEMENTED: Final = 540
INTERNAL_ERROR: Final = 541

NAMES: Final = {
    CONNECTION_FORCED: "CONNECTION_FORCED",
    ACCESS_REFUSED: "ACCESS_REFUSED",
    PRECONDITION_FAILED: "PRECONDITION_FAILED",
    FRAME_ERROR: "FRAME_ERROR",
    SYNTAX_ERROR: "SYNTAX_ERROR",
    COMMAND_INVALID: "COMMAND_INVALID",
    CHANNEL_ERROR: "CHANNEL_ERROR",
    UNEXPECTED_FRAME: "UNEXPECTED_FRAME",
    RESOURCE_ERROR: "RESOURCE_ERROR",
    NOT_ALLOWED: "NOT_ALLOWED",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
    INTERNAL_ERROR: "INTERNAL_ERROR",
}
SOFT: Final = frozenset({ACCESS_REFUSED, PRECONDITION_FAILED})
"""These close a channel; the others above a connection."""
REPLY_TEXT_BYTES_MAX: Final = 255


def violation(code: int, text: str) -> QueueRefused:
    """A client broke the protocol."""
    return QueueRefused(code, reply_text(code, text), closes_connection=code not in SOFT)


def reply_text(code: int, text: str) -> str:
    """A reply's text, with the name of its code before it."""
    return f"{NAMES[code]} - {text}"


def short_text(text: str) -> str:
    """A text that has room on the wire, cut where there is no more."""
    return text.encode(errors="replace")[:REPLY_TEXT_BYTES_MAX].decode(errors="ignore")
