"""Events as a user reads them, and what is told of them beside their data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict
from uuid import UUID

import msgspec

from headrace.events.records import StoredEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """An event that has happened."""

    position: int
    """Its place among all events."""
    stream: str
    version: int
    """Its place in its stream."""
    id: UUID
    type: str
    """The name under which it is stored; `data` may be of another type since (see upcasting.py)."""
    schema_version: int
    data: Any
    """The event itself, as an object of its class."""
    tags: tuple[str, ...]
    recorded_at: datetime
    correlation_id: str | None = None
    causation_id: str | None = None
    actor: str | None = None
    part: int = 0
    """Which one it is of those that an upcast has split one stored event into."""


class About(TypedDict, total=False):
    """What may be told of a change: who makes it, what it belongs to, what has led to it."""

    actor: str | None
    correlation_id: str | None
    causation_id: str | None


class _Metadata(msgspec.Struct, frozen=True, omit_defaults=True):
    schema_version: int = 0
    correlation_id: str | None = None
    causation_id: str | None = None
    actor: str | None = None


_read_metadata = msgspec.json.Decoder(_Metadata).decode


def written_metadata(about: About, command_id: str | None, schema_version: int) -> bytes:
    """What is stored beside an event's data. What was not told is the command's own id."""
    return msgspec.json.encode(
        _Metadata(
            schema_version=schema_version,
            correlation_id=about.get("correlation_id") or command_id,
            causation_id=about.get("causation_id") or command_id,
            actor=about.get("actor"),
        )
    )


def recorded(stored: StoredEvent, events: list[Any]) -> list[Recorded]:
    """What a stored event reads as: usually one event."""
    metadata = _read_metadata(stored.metadata)
    return [
        Recorded(
            position=stored.position,
            stream=stored.stream,
            version=stored.version,
            id=stored.id,
            type=stored.type,
            schema_version=stored.schema_version,
            data=event,
            tags=stored.tags,
            recorded_at=stored.recorded_at,
            correlation_id=metadata.correlation_id,
            causation_id=metadata.causation_id,
            actor=metadata.actor,
            part=part,
        )
        for part, event in enumerate(events)
    ]
