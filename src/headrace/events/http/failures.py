"""Which answer an error becomes."""

from __future__ import annotations

from typing import Final

from headrace.errors import (
    AppendConflict,
    CommandIdReused,
    EventsError,
    NotYetProjected,
    Refused,
    StoreUnavailable,
    SubjectForgotten,
    VersionConflict,
)
from headrace.events.http.preconditions import etag
from headrace.events.http.problems import Problem, bad_request
from headrace.events.http.reading import event_json

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
        case EventsError():
            return bad_request(str(error))
        case StoreUnavailable() | NotYetProjected():
            return Problem(503, "Not available for now", str(error), headers={"Retry-After": "1"})
        case _:
            return None
