"""What a process is: something that goes on over several aggregates, and reacts to events by commands.

    @process("transfers")
    class Transfers:
        initial = NotBegun()

        @staticmethod
        def correlate(event): ...              # which transfer an event is of; None: of none

        @staticmethod
        def evolve(state, event): ...          # what has happened so far

        @staticmethod
        def react(state, event): ...           # what to do about it: Send, SetTimer, CancelTimer

`correlate` is given the event as it was recorded. `evolve` and `react` are given what it says, or `TimedOut`,
or `CommandRefused`; `react` is given the state that `evolve` has made of it. All three are pure. What has to
be undone when a later step is refused is a command like any other.

An instance whose state is the initial one again is forgotten, so let what is done return to it.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from headrace.errors import ConfigError
from headrace.events.projections.projection import NAME

ACTION_COUNT_MAX: Final = 1_000
"""So many actions may follow on one event."""
TIMER_NAME_LENGTH_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Have a command executed, once."""

    stream: str
    command: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Be told `TimedOut` so long after the event, by its recorded time, unless it is cancelled before."""

    name: str
    after: timedelta

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= TIMER_NAME_LENGTH_MAX:
            raise ConfigError(
                f"a timer's name has 1 to {TIMER_NAME_LENGTH_MAX} letters, not {len(self.name)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTimer:
    """Take a timer back; nothing happens where there is none of that name."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """What `evolve` and `react` are given when a timer is due."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRefused:
    """What `evolve` and `react` are given when a command that was sent is refused."""

    stream: str
    command: Any
    reason: str


Action = Send | SetTimer | CancelTimer


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process, as it is declared. Make one with `@process`."""

    name: str
    initial: Any
    correlate: Callable[[Any], str | None]
    evolve: Callable[[Any, Any], Any]
    react: Callable[[Any, Any], Iterable[Action]]
    states: tuple[type, ...]
    """The classes that its states may have."""


def declared(given: Process | type) -> Process:
    """The process. To a type checker, a decorated class is still a class."""
    if not isinstance(given, Process):
        raise ConfigError(f"{given!r} is no process: decorate its class with @process(name)")
    return given


def process(name: str) -> Callable[[type], Process]:
    """Make a process of a class that has `initial`, `correlate`, `evolve` and `react`.

    Which states there are is read from the hint of the first parameter of `evolve`; an attribute `states`, a
    tuple of classes, says more.
    """
    if NAME.fullmatch(name) is None or "__" in name:
        raise ConfigError(
            f"a process can't be called {name!r}: up to 40 lower-case letters, digits and single underscores"
        )

    def make(body: type) -> Process:
        if not hasattr(body, "initial"):
            raise ConfigError(f"process {name} has no initial state: write initial = ...")
        evolve = _function(body, name, "evolve", 2)
        states = getattr(body, "states", None) or _hinted(evolve) or (type(body.initial),)
        return Process(
            name=name,
            initial=body.initial,
            correlate=_function(body, name, "correlate", 1),
            evolve=evolve,
            react=_function(body, name, "react", 2),
            states=tuple(states),
        )

    return make


def _function(body: type, process_name: str, name: str, count: int) -> Callable[..., Any]:
    found = inspect.getattr_static(body, name, None)
    function = found.__func__ if isinstance(found, staticmethod) else found
    if not inspect.isfunction(function) or len(inspect.signature(function).parameters) != count:
        raise ConfigError(
            f"process {process_name} needs a function {name} of {count} arguments, without self"
        )
    return function


def _hinted(evolve: Callable[..., Any]) -> tuple[type, ...]:
    """The classes of states, where the hint of the first parameter tells."""
    try:
        hints = typing.get_type_hints(evolve)
    except (NameError, TypeError):
        return ()
    hint = hints.get(next(iter(inspect.signature(evolve).parameters)))
    choices = typing.get_args(hint) or (hint,)
    return tuple(choice for choice in choices if isinstance(choice, type) and choice is not object)
