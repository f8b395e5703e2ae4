"""Forgetting a person: its key is destroyed, the log says so, and who wants proof can look.

What is destroyed is the key, so that nobody can read what it sealed (see sealing.py). Snapshots that may have
the person's data are dropped with it, and an event tells read models, which forget in their own way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import uuid4

from headrace.errors import EventsError
from headrace.events.codec import EventCodec
from headrace.events.decider import require_storable
from headrace.events.event_type import event
from headrace.events.journal import Journal
from headrace.events.recorded import About, written_metadata
from headrace.events.records import StoredEvent, StreamWrite
from headrace.events.sealing import Keyring

CATEGORY: Final = "forgotten"
"""The streams of markers: `forgotten-<subject>`."""


@event("headrace.SubjectForgotten", tags=("subject",))
@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectWasForgotten:
    """Stands in the log where a person was forgotten, so that read models forget as well."""

    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What was done to forget a person."""

    subject: str
    forgotten_at: datetime
    position: int
    """Of the event that says so: read models that have come so far have heard of it."""
    event_count: int
    """How many events carry personal data that nobody can read any more."""
    streams: tuple[str, ...]
    snapshots_dropped: int
    is_repeat: bool
    """Whether the person had been forgotten before; this is what was done then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenCheck:
    """What a look through log and snapshots has found of somebody."""

    subject: str
    is_key_destroyed: bool
    event_count: int
    """How many events have sealed fields of the person."""
    readable_positions: tuple[int, ...]
    """Events that show something of the person all the same: a field that opens, or one of the texts, be it
    in the data, a tag, the name of the stream, or what is told of the event, such as its actor."""
    snapshots: tuple[str, ...]
    """Streams whose snapshot has one of the texts, or is of a time before the person was forgotten."""

    @property
    def is_forgotten(self) -> bool:
        """Whether nothing was found."""
        return self.is_key_destroyed and not self.readable_positions and not self.snapshots


def verify_forgotten(journal: Journal, subject: str, texts: Sequence[str] = ()) -> ForgottenCheck:
    """Read all events and the snapshots of the streams that tell of a person.

    `texts` are looked for in all that is stored of each event: a name or an address that must not be found in
    clear. Read models, topics and what processes keep are not looked at.
    """
    known = journal.keys([subject]).get(subject)
    is_destroyed = known is not None and known.key is None
    sealed, readable = 0, list[int]()
    streams: set[str] = set()
    for stored in _every(journal):
        is_about = subject in stored.subjects
        sealed += is_about
        if is_about:
            streams.add(stored.stream)
        if (is_about and not is_destroyed) or _shows(stored, texts):
            readable.append(stored.position)
    kept = [(stream, journal.snapshot(stream)[0]) for stream in sorted(streams)]
    return ForgottenCheck(
        subject=subject,
        is_key_destroyed=is_destroyed,
        event_count=sealed,
        readable_positions=tuple(readable),
        snapshots=tuple(
            stream
            for stream, snapshot in kept
            if snapshot and (not is_destroyed or any(text.encode() in snapshot.state for text in texts))
        ),
    )


def _shows(stored: StoredEvent, texts: Sequence[str]) -> bool:
    """Whether one of the texts stands anywhere in an event."""
    plain = (stored.stream, *stored.tags, *stored.subjects)
    for text in texts:
        written = json.dumps(text, ensure_ascii=False)[1:-1].encode()
        if written in stored.data or written in stored.metadata or any(text in each for each in plain):
            return True
    return False


def _every(journal: Journal) -> Iterator[StoredEvent]:
    after = 0
    while page := journal.read_all(after=after):
        yield from page
        after = page[-1].position


def forget(journal: Journal, codec: EventCodec, subject: str, about: About) -> Receipt:
    """Destroy a person's key. There is no way back."""
    if not subject:
        raise EventsError(f"{subject!r} names nobody")
    require_storable(subject)
    marker = codec.encode(
        SubjectWasForgotten(subject=subject),
        id_=uuid4().hex,
        metadata={1: written_metadata(about, None, 1)},
        keyring=Keyring(journal),
    )
    erased = journal.forget(subject, StreamWrite(stream=f"{CATEGORY}-{subject}", events=(marker,)))
    return Receipt(
        subject=subject,
        forgotten_at=erased.forgotten_at,
        position=erased.position,
        event_count=erased.event_count,
        streams=erased.streams,
        snapshots_dropped=erased.snapshots_dropped,
        is_repeat=erased.is_repeat,
    )
