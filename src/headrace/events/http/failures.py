"""Which answer an error becomes.

Whoever asks is told what is wrong with the question. What is wrong with the server, its database or what is
stored is told to the server's log alone: the words have hosts, users and names of tables in them.
"""

from __future__ import annotations

import logging
from typing import Final

from headrace.errors import (
    AppendConflict,
    CommandIdReused,
    EventsError,
    NotYetProjected,
    Refused,
    StoreUnavailable,
    SubjectForgotten,
    UnreadableEvents,
    VersionConflict,
)
from headrace.events.http.preconditions import etag
from headrace.events.http.problems import Problem, bad_request
from headrace.events.http.reading import event_json

logger: Final = logging.getLogger(__name__)

UNAVAILABLE: Final = "Not available for now"
NEWER_COUNT_MAX: Final = 100
"""So many newer events are told with a conflict."""


def problem_of(error: Exception) -> Problem | None:  # noqa: PLR0911 - a table, one line for each
    """What whoever asked is told; None where it is a fault of ours."""
    match error:
        case VersionConflict():
            newer = [event_json(each) for each in error.newer[:NEWER_COUNT_MAX]]
            return Problem(
                412,
                "Precondition failed",
                str(error),
                headers={"ETag": etag(error.actual)},
                more={"newer": newer},
            )
        case Refused() | SubjectForgotten():
            return Problem(409, "Refused", str(error))
        case AppendConflict():
            return Problem(409, "Conflict", str(error), headers={"Retry-After": "1"})
        case CommandIdReused():
            return Problem(422, "Idempotency key reused", str(error))
        case UnreadableEvents():
            return None
        case EventsError():
            return _problem_of_use(error)
        case NotYetProjected():
            return Problem(503, UNAVAILABLE, str(error), headers={"Retry-After": "1"})
        case StoreUnavailable():
            logger.warning("the store does not answer: %s", error)
            return Problem(503, UNAVAILABLE, "the store does not answer", headers={"Retry-After": "1"})
        case _:
            return None


def _problem_of_use(error: EventsError) -> Problem | None:
    """What a database has led to is told apart by the names that the errors of all drivers have (PEP 249)."""
    kinds = {each.__name__ for each in type(error.__cause__).__mro__}
    if "DataError" in kinds:
        return bad_request("there is a value in the question that the database can't take")
    return None if kinds & {"DatabaseError", "InterfaceError"} else bad_request(str(error))
