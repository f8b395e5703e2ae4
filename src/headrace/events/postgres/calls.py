"""What appends are as arguments of a function in functions.sql, and what its results mean.

Lists go as texts with U+001E between their items: the database takes them apart faster than arrays, and they
are faster to write. No item may have that character in it. What is the same for all events of an append to
one stream goes once, where the functions are new enough to understand that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from headrace.errors import EventsError, HeadraceError
from headrace.events.conflicts import command_id_reused, condition_conflict, version_conflict
from headrace.events.decider import category_of, require_storable
from headrace.events.postgres.prepared import Text
from headrace.events.records import Append, Appended, NewEvent

SEPARATOR: Final = "\x1e"
_SEPARATOR_BYTES: Final = SEPARATOR.encode()

T = TypeVar("T")


def arguments(appends: Sequence[Append]) -> list[Text]:
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


def arguments_of_event(append: Append) -> list[Text] | None:
    """The arguments of the query that appends one event, without the time, if that is all.

    In the order of the query: first what is written, then what is asked.
    """
    if append.command is not None or append.conditions or append.event_count != 1 or len(append.writes) != 1:
        return None
    write = append.writes[0]
    stream = _joined((write.stream,))
    return [
        _joined((category_of(write.stream),)),
        stream,
        *_columns_of_one(write.events[0]),
        stream,
        b"%d" % write.expected,
    ]


def arguments_of_one(append: Append, *, alike_once: bool) -> list[Text] | None:
    """The arguments of the shorter function, if the append is one that it can carry out.

    With `alike_once`, what all events have alike is told once.
    """
    if len(append.writes) != 1 or append.conditions:
        return None
    write, command = append.writes[0], append.command
    return [
        _joined((command.id,)) if command else None,
        b"\\x" + command.fingerprint.hex().encode() if command else None,
        _joined((category_of(write.stream),)),
        _joined((write.stream,)),
        b"%d" % write.expected,
        b"%d" % len(write.events),
        *_columns(write.events, alike_once=alike_once),
    ]


def _columns(events: Sequence[NewEvent], *, alike_once: bool = False) -> list[Text]:
    if not events:
        return [b""] * len(NewEvent._fields)
    if len(events) == 1:
        return _columns_of_one(events[0])
    ids, types, schema_versions, data, metadata, tags, subjects = zip(*events, strict=True)
    told = _alike_once if alike_once else _whole
    return [
        _joined(ids),
        _joined(told(types)),
        _joined(list(map(str, told(schema_versions)))),
        _joined_bytes(data),
        _joined_bytes(told(metadata)),
        _joined(list(map(_array, told(tags)))),
        _joined(list(map(_array, told(subjects)))),
    ]


def _columns_of_one(event: NewEvent) -> list[Text]:
    """The same by a shorter way, for that is what most appends have."""
    id_, type_, schema_version, data, metadata, tags, subjects = event
    return [
        _joined((id_,)),
        _joined((type_,)),
        b"%d" % schema_version,
        _joined_bytes((data,)),
        _joined_bytes((metadata,)),
        _joined((_array(tags),)) if tags else b"{}",
        _joined((_array(subjects),)) if subjects else b"{}",
    ]


def _whole(items: Sequence[T]) -> Sequence[T]:
    return items


def _alike_once(items: Sequence[T]) -> Sequence[T]:
    """The first only, if all others are like it."""
    return items[:1] if items.count(items[0]) == len(items) else items


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


def _joined_bytes(items: Sequence[bytes]) -> bytes:
    text = _SEPARATOR_BYTES.join(items)
    # JSON escapes both, but who writes it by hand may not.
    if text.count(_SEPARATOR_BYTES) != len(items) - 1 or b"\0" in text:
        for item in items:
            require_storable(item.decode(errors="replace"))
    return text


def _joined(items: Sequence[str]) -> bytes:
    text = SEPARATOR.join(items)
    if text.count(SEPARATOR) != max(len(items) - 1, 0) or "\0" in text:
        for item in items:
            require_storable(item)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        wrong = text[max(error.start - 50, 0) : error.end + 50]
        raise EventsError(f"{wrong!r} has half a character in it that can't be stored") from error


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
