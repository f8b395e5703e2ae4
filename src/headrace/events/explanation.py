"""Why a state is what it is: which events have made each field what it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headrace.events.decider import Decider
from headrace.events.recorded import Recorded

WHOLE: Final = ""
"""The name that a state has which has no fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """An event has made a field what it is after it."""

    field: str
    before: Any
    """None as well where the field was not there."""
    after: Any
    event: Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A state, and the changes that have led to it, oldest first, by field."""

    stream: str
    version: int
    state: Any
    changes: Mapping[str, tuple[FieldChange, ...]]
    """A field that no event has changed has none: it is what it was initially."""

    def cause(self, field: str) -> Recorded | None:
        """The event that made a field what it is now; None if it is what it was initially."""
        changes = self.changes.get(field, ())
        return changes[-1].event if changes else None


def explain(decider: Decider, stream: str, events: Iterable[Recorded]) -> Explanation:
    """Fold the events of a stream and note what each of them changes."""
    evolve: Callable[[Any, Any], Any] = decider.evolve
    state, version = decider.initial, 0
    fields = fields_of(state)
    changes: dict[str, list[FieldChange]] = {name: [] for name in fields}
    for event in events:
        state, version = evolve(state, event.data), event.version
        before, fields = fields, fields_of(state)
        for name in [*fields, *(each for each in before if each not in fields)]:
            if (name in before) != (name in fields) or before.get(name) != fields.get(name):
                change = FieldChange(field=name, before=before.get(name), after=fields.get(name), event=event)
                changes.setdefault(name, []).append(change)
    # What the last state does not have needs no explanation.
    told = {name: tuple(changes.get(name, ())) for name in fields}
    return Explanation(stream=stream, version=version, state=state, changes=told)


def fields_of(state: Any) -> dict[str, Any]:
    """What a state consists of. One without fields is a whole."""
    if dataclasses.is_dataclass(state) and not isinstance(state, type):
        return {each.name: getattr(state, each.name) for each in dataclasses.fields(state)}
    if isinstance(state, msgspec.Struct):
        return {name: getattr(state, name) for name in state.__struct_fields__}
    if isinstance(state, Mapping):
        return {str(name): value for name, value in state.items()}
    return {WHOLE: state}
