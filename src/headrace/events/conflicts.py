"""What is said when an append comes too late."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.errors import CommandIdReused, ConditionConflict, VersionConflict
from headrace.events.records import NONE, Condition


def version_conflict(stream: str, expected: int, actual: int) -> VersionConflict:
    """The stream has another version than was expected."""
    wanted = "no event" if expected == NONE else f"version {expected}"
    found = "has none" if actual == NONE else f"is at version {actual}"
    return VersionConflict(
        f"{stream} was expected to have {wanted}, and {found}: read what is new and decide again",
        stream=stream,
        expected=expected,
        actual=actual,
    )


def condition_conflict(conditions: Iterable[Condition], position: int) -> ConditionConflict:
    """An event that a condition rules out has come, at a position."""
    after = min(condition.after for condition in conditions)
    return ConditionConflict(
        f"the event at position {position} is one that the condition rules out after {after}: "
        "read it and decide again",
        position=position,
    )


def command_id_reused(command_id: str) -> CommandIdReused:
    """Another command has that id."""
    return CommandIdReused(
        f"command id {command_id!r} was used for another command: each command needs an id of its own"
    )
