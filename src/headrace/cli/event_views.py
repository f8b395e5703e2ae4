"""What `headrace events` prints of a store, and its work over whole histories."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headrace.events import Decider, EventStore, Explanation, Receipt
from headrace.events.comparison import Comparison
from headrace.events.explanation import fields_of
from headrace.events.projections import PostgresPlace, Projection, ReadModels

WHOLE: Final = "state"
"""What a state without fields is called."""


def shown_state(state: Any) -> dict[str, Any]:
    """The fields of a state, as JSON has them."""
    return {name or WHOLE: plain(value) for name, value in fields_of(state).items()}


def cause_rows(explained: Explanation) -> list[dict[str, Any]]:
    """Each field, and the event that made it what it is."""
    rows = []
    for name, value in fields_of(explained.state).items():
        cause = explained.cause(name)
        rows.append({"field": name or WHOLE, "value": plain(value), **_event(cause)})
    return rows


def change_rows(explained: Explanation, field: str) -> list[dict[str, Any]]:
    """All changes of a field, oldest first."""
    changes = explained.changes.get("" if field == WHOLE else field, ())
    return [
        {"before": plain(each.before), "value": plain(each.after), **_event(each.event)} for each in changes
    ]


def compare(store: EventStore, left: Decider, right: Decider) -> dict[str, Any]:
    """What two deciders make of all that has happened."""
    comparison = Comparison(left, right)
    head, position = store.journal.head(), 0
    while position < head:
        page = store.read_all(position)
        for event in page:
            comparison.take(event.stream, event.data)
        position = page[-1].position if page else head
    built: dict[str, Any] = msgspec.to_builtins(comparison.result())
    return built


def rebuild(store: EventStore, dsn: str, projection: Projection) -> dict[str, Any]:
    """Build a read model anew."""
    place = PostgresPlace(dsn)
    try:
        made = ReadModels(store, place, [projection]).rebuild(projection.name)
    finally:
        place.close()
    return {"projection": projection.name, "generation": made.number, "position": made.position}


def shown_receipt(receipt: Receipt) -> dict[str, Any]:
    """A receipt, as JSON has it."""
    built: dict[str, Any] = msgspec.to_builtins(receipt)
    return built


def plain(value: Any) -> Any:
    """As JSON has it; a state may hold what an event can't."""
    try:
        return msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError):
        return repr(value)


def _event(event: Any) -> dict[str, Any]:
    if event is None:
        return {"version": None, "type": None, "recorded_at": None}
    return {"version": event.version, "type": event.type, "recorded_at": event.recorded_at.isoformat()}
