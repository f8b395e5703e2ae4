"""One step of a process, without I/O: a state and an input give a state, commands and timers.

Each command has an id that is made of the process, the input's id and the command's place among those that
the input gave. The same input therefore gives the same ids, whoever takes the step and however often, and the
store executes each command once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid5

from headrace.errors import ConfigError
from headrace.events.processes.process import (
    ACTION_COUNT_MAX,
    Action,
    CancelTimer,
    Process,
    Send,
    SetTimer,
    declared,
)

COMMANDS: Final = UUID("0c2e4a1e-5d4b-5a0c-8f3b-1d9a7c6e5b42")
"""The name space of the ids of commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Something that an instance of a process is told."""

    id: str
    """The same whenever it is told again."""
    data: Any
    at: datetime
    """When it happened: timers count from here."""
    correlation_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCommand:
    """A command that is to be executed."""

    id: UUID
    stream: str
    command: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """What a step has made."""

    state: Any
    commands: tuple[NewCommand, ...]
    timers: dict[str, datetime | None]
    """By name, when it is due; None where it is cancelled."""


def step(of: Process | type, state: Any, given: Input) -> Stepped:
    """Take one step."""
    process = declared(of)
    after = process.evolve(state, given.data)
    actions = tuple(process.react(after, given.data) or ())
    if len(actions) > ACTION_COUNT_MAX:
        raise ConfigError(
            f"process {process.name} gave {len(actions)} actions at once: {ACTION_COUNT_MAX} at most"
        )
    timers: dict[str, datetime | None] = {}
    commands: list[NewCommand] = []
    for action in actions:
        _take(process, action, given, commands, timers)
    return Stepped(state=after, commands=tuple(commands), timers=timers)


def command_id(process_name: str, input_id: str, index: int) -> UUID:
    """The id of a command: of the same input it is always the same."""
    return uuid5(COMMANDS, f"{process_name}\0{input_id}\0{index}")


def _take(
    process: Process,
    action: Action,
    given: Input,
    commands: list[NewCommand],
    timers: dict[str, datetime | None],
) -> None:
    match action:
        case Send(stream=stream, command=command):
            number = command_id(process.name, given.id, len(commands))
            commands.append(NewCommand(id=number, stream=stream, command=command))
        case SetTimer(name=name, after=after):
            timers[name] = given.at + after
        case CancelTimer(name=name):
            timers[name] = None
        case _:
            raise ConfigError(
                f"process {process.name} gave {action!r}: react gives Send, SetTimer and CancelTimer"
            )
