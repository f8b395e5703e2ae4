"""Forgetting a person: its key is destroyed, and the log says so."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import uuid4

from headrace.errors import EventsError
from headrace.events.codec import EventCodec
from headrace.events.event_type import event
from headrace.events.journal import Journal
from headrace.events.recorded import About, written_metadata
from headrace.events.records import StreamWrite
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


def forget(journal: Journal, codec: EventCodec, subject: str, about: About) -> Receipt:
    """Destroy a person's key. There is no way back."""
    if not subject or "\0" in subject:
        raise EventsError(f"{subject!r} names nobody")
    marker = codec.encode(
        SubjectWasForgotten(subject=subject),
        id_=uuid4(),
        metadata=written_metadata(about, None, 1),
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
