"""A decider's fold for somewhere else: over bytes, in another process, on a worker of Spark.

    hr.project(hr.events(account_events), Folding(Account), returns="cents bigint")

What it is given is what a topic has of an event: type, version of its schema, and JSON. It decodes and
upcasts as the store does. The keys of personal fields stay where they are, so those fields read here as they
do once the person is forgotten: a projection that lives elsewhere can't keep what has to be forgotten.

It travels to workers by the names of the decider's functions and classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Final

import msgspec

from headrace.errors import EventsError
from headrace.events.codec import EventCodec
from headrace.events.decider import Decider
from headrace.events.records import SubjectKey
from headrace.events.sealing import Keyring
from headrace.events.travelling import make_portable


class Folding:
    """Folds stored events, and writes and reads the states between."""

    def __init__(self, decider: Decider | type) -> None:
        if not isinstance(decider, Decider):
            raise EventsError(f"{decider!r} is no decider: decorate its class with @decider(category)")
        self._decider = decider

    def __reduce__(self) -> tuple[type[Folding], tuple[Decider]]:
        decider = self._decider
        make_portable([*decider.events, *decider.commands, *decider.states, decider.decide, decider.evolve])
        return Folding, (decider,)

    @property
    def initial(self) -> Any:
        """What a key begins with."""
        return self._decider.initial

    @property
    def evolve(self) -> Callable[[Any, Any], Any]:
        """The decider's own function."""
        return self._decider.evolve

    def straight_decoder(self, type_: str, version: int) -> Callable[[bytes], Any] | None:
        """What decodes most events of a type to one event each; for one that it fails at, use `decode`."""
        return self._codec.straight.get((type_, version))

    def decode(self, type_: str, version: int, data: bytes) -> list[Any]:
        """The events that one stored event is today."""
        return self._codec.decode(type_, version, data, Keyring(_NO_KEYS))

    def write_state(self, state: Any) -> bytes:
        """A state as bytes."""
        name = type(state).__name__
        if name not in self._states:
            raise EventsError(
                f"{self._decider.category}: the state {state!r} is of none of the known classes, "
                f"{', '.join(self._states)}: name its class in states = (...)"
            )
        return msgspec.json.encode((name, state))

    def read_state(self, data: bytes) -> Any:
        """The state again."""
        name, raw = msgspec.json.decode(data, type=tuple[str, msgspec.Raw])
        if name not in self._states:
            raise EventsError(
                f"{self._decider.category}: a state {name} was kept, and no class is called so: bring it "
                "back, or project anew"
            )
        return msgspec.json.decode(raw, type=self._states[name])

    def columns(self, state: Any) -> Mapping[str, Any]:
        """A state's fields, as a row has them; one that has none is a row of nulls."""
        if isinstance(state, msgspec.Struct) or hasattr(state, "__dataclass_fields__"):
            names: Iterable[str] = getattr(state, "__struct_fields__", None) or state.__dataclass_fields__
            return {name: getattr(state, name) for name in names}
        return {"state": state}

    @cached_property
    def _codec(self) -> EventCodec:
        return EventCodec(self._decider.events, self._decider.upcasts)

    @cached_property
    def _states(self) -> dict[str, type]:
        return {each.__name__: each for each in self._decider.states}


class _NoKeys:
    """Answers for keys as a journal does in which everybody is forgotten."""

    def keys(self, subjects: Iterable[str]) -> Mapping[str, SubjectKey]:
        return {subject: SubjectKey(key=None) for subject in subjects}


_NO_KEYS: Final[Any] = _NoKeys()
