"""Between the user's events and what a journal keeps of them.

Most events are decoded straight from JSON to their class. Only those with personal fields, and those of older
versions, go by way of a dictionary: unsealed, upcast, then made into their class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from headrace.errors import EventsError, UnreadableEvents
from headrace.events.event_type import EventType, event_type_of
from headrace.events.records import NewEvent
from headrace.events.sealing import ForgottenText, Keyring, is_sealed, seal, subjects_of, unseal
from headrace.events.upcasting import Upcast, Upcasts, Written, unreadable


class EventCodec:
    """Writes and reads the events of some classes. Safe to use from any thread."""

    def __init__(self, classes: Iterable[type], upcasts: Iterable[Upcast] = ()) -> None:
        self._by_class: dict[type, EventType] = {}
        self.by_name: dict[str, EventType] = {}
        for event_class in classes:
            self._add(event_type_of(event_class))
        every = {each: None for described in self.by_name.values() for each in described.upcasts}
        every.update(dict.fromkeys(upcasts))
        self.current = {name: described.version for name, described in self.by_name.items()}
        self.upcasts = Upcasts(self.current, every)
        self.straight: dict[tuple[str, int], Callable[[bytes], Any]] = {
            (described.name, described.version): msgspec.json.Decoder(described.event_class).decode
            for described in self.by_name.values()
            if not described.personal
        }
        """What decodes events of a type and version straight to their class, where that can be done."""
        self.has_personal = any(described.personal for described in self.by_name.values())
        """Whether there are events at all that carry personal data."""

    def _add(self, described: EventType) -> None:
        known = self.by_name.get(described.name)
        if known is not None and known.event_class is not described.event_class:
            raise EventsError(f"two classes of events are called {described.name}: give one another name")
        self.by_name[described.name] = described
        self._by_class[described.event_class] = described

    def type_of(self, event: Any) -> EventType:
        """What is known of an event's class."""
        described = self._by_class.get(type(event))
        if described is None:
            raise EventsError(
                f"{type(event).__name__} is no event that this store knows: name it at its decider "
                "or in types="
            )
        return described

    def name_of(self, event_class: type) -> str:
        """What a class of events is called in the log."""
        return event_type_of(event_class).name

    def stored_names(self, classes: tuple[type, ...]) -> list[str]:
        """Under which names events may be stored that are read as objects of these classes."""
        known = {name for name, each in self.by_name.items() if issubclass(each.event_class, classes)}
        return sorted(self.upcasts.origins(known))

    def subjects(self, events: Iterable[Any]) -> set[str]:
        """Whose personal data events carry."""
        return {
            subject
            for event in events
            if (described := self.type_of(event)).personal
            for subject in subjects_of(described, event).values()
        }

    def encode(self, event: Any, *, id_: str, metadata: Mapping[int, bytes], keyring: Keyring) -> NewEvent:
        """What is kept of an event. The keys of its subjects have to be there.

        `metadata` is what is told beside it, by the version of its schema.
        """
        described = self.type_of(event)
        owners = subjects_of(described, event) if described.personal else {}
        try:
            if owners:
                data = msgspec.json.encode(seal(described.name, msgspec.to_builtins(event), owners, keyring))
            else:
                data = msgspec.json.encode(event)
        except (TypeError, ValueError) as error:
            raise EventsError(f"a {described.name} can't be written as JSON: {error}") from error
        return NewEvent(
            id=id_,
            type=described.name,
            schema_version=described.version,
            data=data,
            metadata=metadata[described.version],
            tags=tuple(described.tags_of(event)) if described.tags_of else (),
            subjects=tuple(sorted(set(owners.values()))) if owners else (),
        )

    def decode(self, type_: str, version: int, data: bytes, keyring: Keyring) -> list[Any]:
        """The events that one stored event is today: one, where no upcast splits or drops it."""
        straight = self.straight.get((type_, version))
        if straight is not None:
            try:
                return [straight(data)]
            except msgspec.ValidationError as error:
                # It may have a field that was personal when it was written.
                if b'"$sealed"' not in data:
                    raise _unfit(type_, version, error) from error
        return self._decode_by_way_of_data(type_, version, data, keyring)

    def _decode_by_way_of_data(self, type_: str, version: int, data: bytes, keyring: Keyring) -> list[Any]:
        try:
            fields = unseal(type_, msgspec.json.decode(data, type=dict[str, Any]), keyring)
        except msgspec.MsgspecError as error:
            raise _unfit(type_, version, error) from error
        return [self._made(each) for each in self.upcasts.apply(Written(type_, version, fields))]

    def _made(self, written: Written) -> Any:
        described = self.by_name[written.type]
        fields = {
            name: described.forgotten.get(name, str(value)) if isinstance(value, ForgottenText) else value
            for name, value in written.data.items()
        }
        try:
            return msgspec.convert(fields, described.event_class)
        except msgspec.ValidationError as error:
            raise _unfit(written.type, written.version, error) from error

    def check_readable(self, stored: Iterable[tuple[str, int]]) -> None:
        """Raise UnreadableEvents if there are types or versions among them that nothing reads."""
        lost = self.upcasts.missing(stored)
        if lost:
            raise unreadable(lost, self.current)


def sealed_fields(data: bytes) -> list[str]:
    """Which fields of a stored event are encrypted."""
    fields = msgspec.json.decode(data)
    return [name for name, value in fields.items() if is_sealed(value)] if isinstance(fields, dict) else []


def _unfit(type_: str, version: int, error: Exception) -> UnreadableEvents:
    return UnreadableEvents(
        f"a stored {type_} of version {version} does not fit its class: {error}. A class whose fields change "
        "needs a new version, and an upcast for the old one"
    )
