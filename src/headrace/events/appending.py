"""From the user's events to one append of the journal."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from headrace.errors import EventsError
from headrace.events.codec import EventCodec
from headrace.events.decider import category_of, require_storable
from headrace.events.journal import Journal
from headrace.events.recorded import About, written_metadata
from headrace.events.records import (
    ANY,
    APPEND_EVENTS_MAX,
    Append,
    Appended,
    CommandMark,
    Condition,
    StreamWrite,
)
from headrace.events.sealing import Keyring

COMMAND_ID_CHARACTERS_MAX = 200
_VARIANTS: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""What the digit of a UUID that tells its variant is, for a random one."""


class Write(NamedTuple):
    """Events for one stream, and the version that it is expected to have before."""

    stream: str
    events: Sequence[Any]
    expected: int = ANY


class Appender:
    """Encodes events and appends them. Safe to use from any thread."""

    def __init__(self, journal: Journal, codec: EventCodec) -> None:
        self._journal = journal
        self._codec = codec
        self._bare_metadata = _Metadata({}, None)

    def append(
        self,
        writes: Sequence[Write],
        *,
        conditions: Sequence[Condition] = (),
        mark: CommandMark | None = None,
        about: About,
    ) -> Appended:
        """Append all of it, or nothing."""
        keyring = Keyring(self._journal)
        if self._codec.has_personal:
            keyring.make(self._codec.subjects(event for write in writes for event in write.events))
        append = Append(
            writes=tuple(self._encoded(write, mark, about, keyring) for write in writes),
            conditions=tuple(conditions),
            command=mark,
        )
        if append.event_count > APPEND_EVENTS_MAX:
            raise EventsError(
                f"{append.event_count} events are too many for one append: at most {APPEND_EVENTS_MAX}"
            )
        return self._journal.append(append)

    def _encoded(self, write: Write, mark: CommandMark | None, about: About, keyring: Keyring) -> StreamWrite:
        category_of(write.stream)
        if write.expected < ANY:
            raise EventsError(f"version {write.expected} can't be expected: use ANY, NONE or a version")
        if about or mark is not None:
            metadata = _Metadata(about, None if mark is None else mark.id)
        else:
            metadata = self._bare_metadata
        encode = self._codec.encode
        return StreamWrite(
            stream=write.stream,
            events=tuple(
                encode(event, id_=id_, metadata=metadata, keyring=keyring)
                for id_, event in zip(_new_ids(len(write.events)), write.events, strict=True)
            ),
            expected=write.expected,
        )


class _Metadata(dict[int, bytes]):
    """What is told of the events of one append, by their schema version: written once, not for each."""

    def __init__(self, about: About, command_id: str | None) -> None:
        super().__init__()
        self._told = (about, command_id)

    def __missing__(self, schema_version: int) -> bytes:
        return self.setdefault(schema_version, written_metadata(*self._told, schema_version))


def _new_ids(count: int) -> list[str]:
    """The digits of random UUIDs (version 4), many at once."""
    digits = os.urandom(16 * count).hex()
    drawn = (digits[at : at + 32] for at in range(0, len(digits), 32))
    return [f"{each[:12]}4{each[13:16]}{_VARIANTS[each[16]]}{each[17:]}" for each in drawn]


def mark_of_command(command_id: str | UUID | None, stream: str, command: Any) -> CommandMark | None:
    """How a command is remembered, if it has an id."""
    if command_id is None:
        return None
    return _mark(command_id, (stream, type(command).__qualname__, command))


def mark_of_writes(
    command_id: str | UUID | None, writes: Iterable[Write], conditions: Iterable[Condition]
) -> CommandMark | None:
    """How events that are appended under an id are remembered."""
    if command_id is None:
        return None
    told = [
        (write.stream, write.expected, [(type(event).__qualname__, event) for event in write.events])
        for write in writes
    ]
    tested = [(each.after, sorted(each.types), sorted(each.tags)) for each in conditions]
    return _mark(command_id, (told, tested))


def _mark(command_id: str | UUID, told: object) -> CommandMark:
    name = str(command_id)
    if not 0 < len(name) <= COMMAND_ID_CHARACTERS_MAX:
        raise EventsError(f"{name!r} can't be a command id: use 1 to {COMMAND_ID_CHARACTERS_MAX} characters")
    require_storable(name)
    try:
        written = msgspec.json.encode(told, order="deterministic")
    except (TypeError, ValueError) as error:
        raise EventsError(f"a command with an id must be one that JSON can carry: {error}") from error
    # With the id in it, so that two equal commands, with a person's name in them, can't be told to be equal.
    return CommandMark(id=name, fingerprint=hashlib.sha256(name.encode() + b"\0" + written).digest())
