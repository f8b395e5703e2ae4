"""A decider: what an aggregate is, as two pure functions.

    @decider("account")
    class Account:
        initial = Closed()

        @staticmethod
        def decide(state, command) -> list[Event]: ...     # may raise Refused("insufficient funds")

        @staticmethod
        def evolve(state, event) -> State: ...

`decide` says which events a command makes in a state, or refuses it. `evolve` says what state an event
makes of a state, and never refuses: what has happened has happened. Neither reads a clock or a database. So
the same `evolve` serves the application, questions about the past, and projections on Spark.

`staticmethod` may be left out; type checkers like to see it. The decorator gives a `Decider`, which pickles
by its functions' names, so that workers of Spark can import it.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from headrace.errors import EventsError
from headrace.events.upcasting import Upcast

SEPARATOR: Final = "-"
"""Between the category and the rest of a stream's name."""
STREAM_NAME_CHARACTERS_MAX: Final = 500
UNSTORABLE: Final = re.compile("[\0\x1e]")
"""What no name may have in it: PostgreSQL keeps no NUL, and U+001E separates names on their way."""
_INITIAL: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider:
    """What an aggregate is."""

    category: str
    """What the names of its streams begin with: `account` for `account-42`."""
    initial: Any
    decide: Callable[[Any, Any], Iterable[Any]]
    evolve: Callable[[Any, Any], Any]
    events: tuple[type, ...]
    """The classes of its events."""
    commands: tuple[type, ...] = ()
    """The classes of its commands, as far as they are known."""
    states: tuple[type, ...] = ()
    """The classes of its states, as far as they are known."""
    upcasts: tuple[Upcast, ...] = ()
    version: int = 1
    """Of `evolve`: another number makes snapshots anew, where a change of code can't be seen."""

    def stream(self, id_: object) -> str:
        """The name of the stream of one aggregate."""
        return f"{self.category}{SEPARATOR}{id_}"


def decider(category: str, *, version: int = 1) -> Callable[[type], Decider]:
    """Make a decider of a class that has `initial`, `decide` and `evolve`.

    Which events, commands and states there are is read from the hints of the functions; attributes `events`,
    `commands` and `states` of the class, each a tuple of classes, say more. `upcasts` may be there, too.
    """
    if not category or SEPARATOR in category:
        raise EventsError(
            f"{category!r} can't be a category: it is what comes before the first '-' of a stream"
        )

    def make(body: type) -> Decider:
        if not hasattr(body, "initial"):
            raise EventsError(f"decider {body.__name__} has no initial state: write initial = ...")
        decide, evolve = _function(body, "decide"), _function(body, "evolve")
        events = getattr(body, "events", None) or _hinted(evolve, 1)
        if not events:
            raise EventsError(
                f"which events {body.__name__} has is not known: write events = (...), or a hint at evolve"
            )
        return Decider(
            category=category,
            initial=body.initial,
            decide=decide,
            evolve=evolve,
            events=tuple(events),
            commands=tuple(getattr(body, "commands", None) or _hinted(decide, 1)),
            states=tuple(getattr(body, "states", None) or _hinted(evolve, 0) or (type(body.initial),)),
            upcasts=tuple(getattr(body, "upcasts", ())),
            version=version,
        )

    return make


def as_decider(given: Decider | type) -> Decider:
    """What the decorator has made of a class. Type checkers take it for the class itself."""
    if isinstance(given, Decider):
        return given
    raise EventsError(f"{given!r} is no decider: put @decider('category') before its class")


def fold(decider: Decider | type, events: Iterable[Any], state: Any = _INITIAL) -> Any:
    """The state that events make, from the initial one or from another."""
    decider = as_decider(decider)
    return reduce(decider.evolve, events, decider.initial if state is _INITIAL else state)


def require_storable(text: str) -> None:
    """Raise EventsError if a name has a character in it that a journal can't keep."""
    if UNSTORABLE.search(text):
        raise EventsError(
            f"{text[:100]!r} has a control character that can't be stored: leave out U+0000 and U+001E"
        )


def category_of(stream: str) -> str:
    """What a stream is one of. Raises EventsError if the name can't be one of a stream."""
    category, separator, id_ = stream.partition(SEPARATOR)
    if not (category and separator and id_) or len(stream) > STREAM_NAME_CHARACTERS_MAX:
        raise EventsError(
            f"{stream!r} is not the name of a stream: write <category>-<id>, like account-42, "
            f"in at most {STREAM_NAME_CHARACTERS_MAX} characters"
        )
    require_storable(stream)
    return category


def _function(body: type, name: str) -> Callable[[Any, Any], Any]:
    found = inspect.getattr_static(body, name, None)
    function = found.__func__ if isinstance(found, staticmethod) else found
    if not inspect.isfunction(function) or len(inspect.signature(function).parameters) != 2:
        other = "command" if name == "decide" else "event"
        raise EventsError(f"decider {body.__name__} needs a function {name}(state, {other}), without self")
    return function


def _hinted(function: Callable[..., Any], place: int) -> tuple[type, ...]:
    """The classes that a parameter may have, where its hint says so."""
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):
        # What is only imported for type checkers can't be found; the class may say it by an attribute.
        return ()
    parameter = list(inspect.signature(function).parameters)[place]
    return tuple(_classes(hints.get(parameter)))


def _classes(hint: Any) -> Iterable[type]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        for choice in typing.get_args(hint):
            yield from _classes(choice)
    elif isinstance(hint, type) and hint not in {object, type(None)}:
        yield hint
