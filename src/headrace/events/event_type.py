"""What the store knows of a class of events: its name in the log, its version, its tags, what is personal.

    @event("AccountOpened", version=2, tags=("customer",), personal={"owner"}, subject="customer")
    @dataclass(frozen=True, slots=True, kw_only=True)
    class AccountOpened:
        customer: str
        owner: str
        currency: str

A class without the decorator is an event all the same: its name is the class's own, its version is 1.
Nothing is registered globally: a store knows the types of its deciders, and those that it is given.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from headrace.errors import EventsError
from headrace.events.upcasting import Upcast

FORGOTTEN: Final = "[forgotten]"
"""What a personal text reads as once the person is forgotten. A field that may be None reads as None."""

SubjectOf = Callable[[Any], str]
Class = TypeVar("Class", bound=type)

_ATTRIBUTE: Final = "__headrace_event__"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """How events of a class are written and read."""

    name: str
    event_class: type
    version: int = 1
    tags_of: Callable[[Any], Iterable[str]] | None = None
    personal: Mapping[str, SubjectOf] = field(default_factory=dict)
    """Personal fields, each with what says whose it is."""
    forgotten: Mapping[str, Any] = field(default_factory=dict)
    """What personal fields read as once the person is forgotten."""
    upcasts: tuple[Upcast, ...] = ()


def event(
    name: str | None = None,
    *,
    version: int = 1,
    tags: Collection[str] | Callable[[Any], Iterable[str]] = (),
    personal: Collection[str] | Mapping[str, str | SubjectOf] = (),
    subject: str | SubjectOf | None = None,
    forgotten: Mapping[str, Any] | None = None,
    upcasts: Iterable[Upcast] = (),
) -> Callable[[Class], Class]:
    """Say what a class of events is called in the log, and how it is kept there.

    `tags` are names of fields, which give tags like `customer:42`, or a function of the event. `personal`
    names the fields that are encrypted; `subject` says whose they are: a field's name or a function. Where
    one event tells of two persons, `personal` maps each field to its own subject. `forgotten` maps
    personal fields to what they read as afterwards, where it is neither None nor a text. `upcasts` read what
    was written as an older version.
    """
    if version < 1:
        raise EventsError(f"version {version} of an event can't be: count from 1")
    shown, steps = dict(forgotten or {}), tuple(upcasts)

    def describe(event_class: Class) -> Class:
        fields = _fields_of(event_class)
        owners = _personal(name or event_class.__name__, fields, personal, subject)
        described = EventType(
            name=name or event_class.__name__,
            event_class=event_class,
            version=version,
            tags_of=_tags(fields, tags),
            personal=owners,
            forgotten={each: _placeholder(event_class, each, fields[each], shown) for each in owners},
            upcasts=steps,
        )
        setattr(event_class, _ATTRIBUTE, described)
        return event_class

    return describe


def event_type_of(event_class: type) -> EventType:
    """What is known of a class: what its decorator says, or what goes without saying."""
    described = event_class.__dict__.get(_ATTRIBUTE)
    if isinstance(described, EventType):
        return described
    _fields_of(event_class)
    return EventType(name=event_class.__name__, event_class=event_class)


def _fields_of(event_class: type) -> dict[str, Any]:
    try:
        info = msgspec.inspect.type_info(event_class)
    except TypeError as error:
        raise EventsError(f"{event_class.__name__} can't be written as JSON: {error}") from error
    if not isinstance(info, msgspec.inspect.StructType | msgspec.inspect.DataclassType):
        raise EventsError(
            f"{event_class.__name__} can't be an event: make it a frozen dataclass or a msgspec.Struct"
        )
    hints = typing.get_type_hints(event_class, include_extras=True)
    return {each.name: hints[each.name] for each in info.fields}


def _tags(
    fields: Mapping[str, Any], tags: Collection[str] | Callable[[Any], Iterable[str]]
) -> Callable[[Any], Iterable[str]] | None:
    if callable(tags):
        return tags
    unknown = [name for name in tags if name not in fields]
    if unknown:
        raise EventsError(f"tags can't be made of {', '.join(unknown)}: the fields are {', '.join(fields)}")
    names = tuple(tags)
    return (lambda event: [f"{name}:{getattr(event, name)}" for name in names]) if names else None


def _personal(
    name: str,
    fields: Mapping[str, Any],
    personal: Collection[str] | Mapping[str, str | SubjectOf],
    subject: str | SubjectOf | None,
) -> dict[str, SubjectOf]:
    owners = dict(personal) if isinstance(personal, Mapping) else dict.fromkeys(personal, subject)
    for each, owner in owners.items():
        if each not in fields:
            raise EventsError(f"{name} has no field {each!r} that could be personal")
        if owner is None or (isinstance(owner, str) and owner not in fields):
            raise EventsError(f"say whose {each!r} of {name} is: subject= takes a field or a function")
        if owner in owners:
            raise EventsError(f"{owner!r} of {name} can't say whose {each!r} is: it is personal itself")
    return {each: _subject_of(owner) for each, owner in owners.items() if owner is not None}


def _subject_of(owner: str | SubjectOf) -> SubjectOf:
    return owner if callable(owner) else lambda event: str(getattr(event, owner))


def _placeholder(event_class: type, name: str, hint: Any, given: Mapping[str, Any]) -> Any:
    if name in given:
        return given[name]
    choices = typing.get_args(hint) if isinstance(hint, types.UnionType) or typing.get_args(hint) else (hint,)
    if type(None) in choices or hint is None:
        return None
    if hint is str:
        return FORGOTTEN
    raise EventsError(
        f"what {event_class.__name__}.{name} reads as once its person is forgotten must be said: "
        f"let it be None too, or give forgotten={{{name!r}: ...}}"
    )
