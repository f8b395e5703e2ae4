"""What clients of queues are told when something can't be done, in the words that RabbitMQ uses."""

from __future__ import annotations

from typing import Final

from headrace.errors import QueueRefused

CONTENT_TOO_LARGE: Final = 311
NO_ROUTE: Final = 312
ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
SYNTAX_ERROR: Final = 502
COMMAND_INVALID: Final = 503
RESOURCE_ERROR: Final = 506
NOT_ALLOWED: Final = 530
NOT_IMPLEMENTED: Final = 540
INTERNAL_ERROR: Final = 541


def content_too_large(text: str) -> QueueRefused:
    """A message is larger than the broker takes."""
    return QueueRefused(CONTENT_TOO_LARGE, f"CONTENT_TOO_LARGE - {text}")


def access_refused(text: str) -> QueueRefused:
    """What was asked for is kept for the broker, or for another client."""
    return QueueRefused(ACCESS_REFUSED, f"ACCESS_REFUSED - {text}")


def not_found(kind: str, name: str, vhost: str) -> QueueRefused:
    """There is no such queue or exchange."""
    return QueueRefused(NOT_FOUND, f"NOT_FOUND - no {kind} '{name}' in vhost '{vhost}'")


def resource_locked(queue: str, vhost: str) -> QueueRefused:
    """The queue is exclusive to another connection."""
    return QueueRefused(
        RESOURCE_LOCKED,
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '{vhost}'. "
        "It could be originally declared on another connection or the exclusive property value does not "
        "match that of the original declaration.",
    )


def precondition_failed(text: str) -> QueueRefused:
    """What is there is not as the client says."""
    return QueueRefused(PRECONDITION_FAILED, f"PRECONDITION_FAILED - {text}")


def syntax_error(text: str) -> QueueRefused:
    """The client's bytes have a form that the protocol does not know."""
    return QueueRefused(SYNTAX_ERROR, f"SYNTAX_ERROR - {text}", closes_connection=True)


def command_invalid(text: str) -> QueueRefused:
    """The method's arguments make no sense."""
    return QueueRefused(COMMAND_INVALID, f"COMMAND_INVALID - {text}", closes_connection=True)


def resource_error(text: str) -> QueueRefused:
    """A limit of the broker has been reached."""
    return QueueRefused(RESOURCE_ERROR, f"RESOURCE_ERROR - {text}", closes_connection=True)


def not_allowed(text: str) -> QueueRefused:
    """The client must not do this at all."""
    return QueueRefused(NOT_ALLOWED, f"NOT_ALLOWED - {text}", closes_connection=True)


def not_implemented(text: str) -> QueueRefused:
    """Part of the protocol that the broker does not have, as RabbitMQ has it not."""
    return QueueRefused(NOT_IMPLEMENTED, f"NOT_IMPLEMENTED - {text}", closes_connection=True)


def failed() -> QueueRefused:
    """The queues have stopped, so that whatever is asked of them can't be done."""
    return QueueRefused(
        INTERNAL_ERROR,
        "INTERNAL_ERROR - the queues have stopped after a failure; what was not confirmed may be lost",
        closes_connection=True,
    )
