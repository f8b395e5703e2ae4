"""What `headrace events` prints of a store, and its work over whole histories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from headrace.events import Decider, EventStore, Explanation
from headrace.events.comparison import Comparison
from headrace.events.explanation import fields_of
from headrace.events.projections import ForgottenThere, PostgresPlace, Projection, ReadModels
from headrace.events.projections.traces import check_texts

FOUND_SHOWN_MAX: Final = 10
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


def forget(store: EventStore, dsn: str, subject: str, texts: Sequence[str]) -> dict[str, Any]:
    """Forget a person, look for what is left, and give a receipt as JSON has it."""
    if texts:
        check_texts(texts)
    receipt = store.forget(subject, actor="headrace events forget")
    check = store.verify_forgotten(subject, texts)
    with PostgresPlace(dsn) as place:
        there = ForgottenThere(
            subject=subject,
            behind=tuple(place.behind(receipt.position)),
            traces=tuple(place.traces(texts)) if texts else (),
        )
    built: dict[str, Any] = msgspec.to_builtins(receipt)
    found = {
        "is_forgotten": check.is_forgotten and there.is_forgotten,
        "is_key_destroyed": check.is_key_destroyed,
        "readable_positions": list(check.readable_positions),
        "snapshots": list(check.snapshots),
        "behind": list(there.behind),
        "traces": msgspec.to_builtins(there.traces),
    }
    return {**built, "check": found}


def told_receipt(receipt: Mapping[str, Any]) -> str:
    """A receipt in sentences."""
    was = "had been forgotten before" if receipt["is_repeat"] else "is forgotten"
    return (
        f"{receipt['subject']} {was}, at {receipt['forgotten_at']}: {receipt['event_count']} events of "
        f"{len(receipt['streams'])} streams have unreadable fields, and {receipt['snapshots_dropped']} "
        f"snapshots were dropped. The log says so at position {receipt['position']}. "
        f"{_told_check(receipt['check'])}"
    )


def _told_check(check: Mapping[str, Any]) -> str:
    places = [f"{each['column']} of {each['table']}" for each in check["traces"]]
    found = [
        told
        for told, is_so in (
            ("the key is still there", not check["is_key_destroyed"]),
            (f"events show something at {_first(check['readable_positions'])}", check["readable_positions"]),
            (f"snapshots do of {_first(check['snapshots'])}", check["snapshots"]),
            (f"so does {_first(places)}", places),
            (f"{_first(check['behind'])} have not heard of it yet", check["behind"]),
        )
        if is_so
    ]
    return f"The check has found: {'; '.join(found)}" if found else "The check has found nothing left"


def _first(names: Sequence[object]) -> str:
    """The first few, and how many more."""
    shown = ", ".join(map(str, names[:FOUND_SHOWN_MAX]))
    more = len(names) - FOUND_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


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
