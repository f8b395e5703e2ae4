"""Reads the parameters of questions, and writes events."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from starlette.datastructures import QueryParams

from headrace.events.http.problems import bad_request
from headrace.events.http.query import POSITION, Query
from headrace.events.recorded import Recorded


def as_of_of(parameters: QueryParams) -> dict[str, Any]:
    """Which moment of the past is meant: a time, a version or a position. Empty: now."""
    given = [name for name in ("as_of", "version", "position") if name in parameters]
    if len(given) > 1:
        raise bad_request(f"say one of {', '.join(given)}", field=given[1])
    if not given:
        return {}
    if given[0] != "as_of":
        return {given[0]: number_of(parameters, given[0], default=0, most=2**62)}
    text = parameters["as_of"]
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise bad_request(f"as_of is {text[:50]!r}: write 2026-03-01T00:00:00Z", field="as_of") from error
    if time.tzinfo is None:
        raise bad_request(f"as_of is {text[:50]!r}, without a time zone: add Z for UTC", field="as_of")
    return {"time": time}


def number_of(parameters: QueryParams, name: str, *, default: int, most: int, least: int = 0) -> int:
    """A whole number, within bounds."""
    text = parameters.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or not least <= int(text) <= most:
        raise bad_request(f"{name} is {text[:50]!r}: a number from {least} to {most}", field=name)
    return int(text)


def parameters_of(parameters: QueryParams, query: Query) -> Any:
    """What a query is asked, as an object of its class."""
    given = {
        name: value for name, value in parameters.items() if name != POSITION or query.projection is None
    }
    info = msgspec.inspect.type_info(query.asked)
    known = [each.encode_name for each in info.fields]  # type: ignore[attr-defined]  # a class with fields
    for name in given:
        if name not in known:
            raise bad_request(
                f"{query.name} takes no {name[:100]!r}: it takes {', '.join(known)}", field=name[:100]
            )
    try:
        return msgspec.convert(given, query.asked, strict=False)
    except msgspec.ValidationError as error:
        raise bad_request(str(error)) from error


def event_json(event: Recorded) -> dict[str, Any]:
    """An event as it is told."""
    return {
        "position": event.position,
        "stream": event.stream,
        "version": event.version,
        "id": str(event.id),
        "type": event.type,
        "data": msgspec.to_builtins(event.data),
        "tags": event.tags,
        "recorded_at": event.recorded_at.isoformat(),
        "correlation_id": event.correlation_id,
        "causation_id": event.causation_id,
        "actor": event.actor,
    }
