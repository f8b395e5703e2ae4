"""What appends are as arguments of the function in schema.sql, and what its results mean.

Lists go as texts with U+001E between their items: the database takes them apart faster than arrays, and they
are faster to write. JSON never has that character in it; names and tags may not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headrace.errors import EventsError, HeadraceError
from headrace.events.conflicts import command_id_reused, condition_conflict, version_conflict
from headrace.events.decider import category_of
from headrace.events.records import Append, Appended, NewEvent

SEPARATOR: Final = "\x1e"


def arguments(appends: Sequence[Append]) -> list[str]:
    """The arguments of a call that carries out several appends, without the time."""
    writes = [write for append in appends for write in append.writes]
    events = [event for write in writes for event in write.events]
    return [
        _joined([append.command.id if append.command else "" for append in appends]),
        _joined([append.command.fingerprint.hex() if append.command else "" for append in appends]),
        _joined([_conditions(append) for append in appends]),
        _joined([str(len(append.writes)) for append in appends]),
        _joined([category_of(write.stream) for write in writes]),
        _joined([write.stream for write in writes]),
        _joined([str(write.expected) for write in writes]),
        _joined([str(len(write.events)) for write in writes]),
        *_columns(events),
    ]


def arguments_of_one(append: Append) -> list[Any] | None:
    """The arguments of the shorter function, if the append is one that it can carry out."""
    if len(append.writes) != 1 or append.conditions:
        return None
    write, command = append.writes[0], append.command
    return [
        command.id if command else None,
        command.fingerprint if command else None,
        category_of(write.stream),
        write.stream,
        write.expected,
        len(write.events),
        *_columns(write.events),
    ]


def _columns(events: Sequence[NewEvent]) -> list[str]:
    return [
        _joined([str(event.id) for event in events]),
        _joined([event.type for event in events]),
        _joined([str(event.schema_version) for event in events]),
        _joined([event.data.decode() for event in events]),
        _joined([event.metadata.decode() for event in events]),
        _joined([_array(event.tags) for event in events]),
        _joined([_array(event.subjects) for event in events]),
    ]


def outcome(append: Append, row: tuple[Any, ...]) -> Appended | HeadraceError:
    """What became of an append: where its events are, or why they are not."""
    word, after, position, streams, versions, conflict = row
    if word == "version":
        return version_conflict(streams[0], versions[0], conflict)
    if word == "condition":
        return condition_conflict(append.conditions, conflict)
    if word == "reused":
        assert append.command is not None, "only a command's id can be reused"
        return command_id_reused(append.command.id)
    return Appended(
        after=after,
        position=position,
        versions=dict(zip(streams, versions, strict=True)),
        is_repeat=word == "known",
    )


def _joined(items: Sequence[str]) -> str:
    text = SEPARATOR.join(items)
    if text.count(SEPARATOR) != max(len(items) - 1, 0) or "\0" in text:
        wrong = next(item for item in items if SEPARATOR in item or "\0" in item)
        raise EventsError(f"{wrong[:100]!r} has a control character that can't be stored")
    return text


def _conditions(append: Append) -> str:
    if not append.conditions:
        return ""
    return msgspec.json.encode(
        [[each.after, sorted(each.types), sorted(each.tags)] for each in append.conditions]
    ).decode()


def _array(items: Sequence[str]) -> str:
    """A list of texts as PostgreSQL writes it."""
    if not items:
        return "{}"
    quoted = ('"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"' for item in items)
    return "{" + ",".join(quoted) + "}"
