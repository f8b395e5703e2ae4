"""What is kept of a process: its instances, the commands that they have sent, their timers, and of
whom they were told (see forgetting.py).

Rows are read and written in a batch of a place, so they change together with the position. One batch of a
process follows the other; so nobody else changes what a batch has read.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol
from uuid import UUID

ERASED: Final = b"{}"
"""What a command carries once the person is forgotten whom it may have told of."""


class Outcome(StrEnum):
    """What became of a command."""

    PENDING = "pending"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    """It was neither executed nor refused, however often it was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentCommand:
    """A command that an instance has sent, as it is kept."""

    id: UUID
    instance: str
    stream: str
    type: str
    data: bytes
    """JSON."""
    causation_id: str
    correlation_id: str | None = None
    outcome: Outcome = Outcome.PENDING
    reason: str = ""
    attempt_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTimer:
    """A timer whose time has come."""

    instance: str
    name: str
    due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What an instance was told of a person."""

    subject: str
    texts: frozenset[str]
    """Those that have to be found should the person be forgotten."""
    is_forgotten: bool = False


class ProcessRows(Protocol):
    """The rows of one process, in one batch."""

    def state(self, instance: str) -> tuple[str, bytes] | None:
        """An instance's state: the name of its class, and JSON. None for one that is new."""

    def keep_state(self, instance: str, state: tuple[str, bytes] | None) -> None:
        """Keep a state; None forgets the instance."""

    def add_command(self, command: SentCommand) -> None:
        """Keep a command that is to be executed; one that is kept already stays as it is."""

    def pending(self, limit: int) -> list[SentCommand]:
        """Commands that are to be executed, the oldest first."""

    def command(self, command_id: UUID) -> SentCommand:
        """A command that was kept."""

    def note(self, command_id: UUID, outcome: Outcome, reason: str) -> None:
        """Keep what became of a command, and count an attempt."""

    def failed(self) -> list[SentCommand]:
        """Commands that were tried too often."""

    def set_timer(self, instance: str, name: str, due_at: datetime | None) -> None:
        """Set a timer anew; None takes it back."""

    def due_timers(self, now: datetime, limit: int) -> list[DueTimer]:
        """Timers whose time has come, the earliest first."""

    def told(self, instance: str) -> list[Told]:
        """Of whom an instance was told."""

    def keep_told(self, instance: str, told: Told) -> None:
        """Keep what an instance was told of a person, in the place of what was kept before."""

    def drop_told(self, instance: str, subject: str) -> None:
        """Keep no longer that an instance was told of a person."""

    def mark_forgotten(self, subject: str) -> list[str]:
        """Note that a person is forgotten. The instances that were told of it."""

    def forgotten(self) -> list[tuple[str, str]]:
        """Instances that have texts of persons who are forgotten, and of whom."""

    def erase_settled(self, instance: str) -> None:
        """Erase what an instance's settled commands carried, and why they failed."""

    def outcomes(self, instance: str) -> set[Outcome]:
        """What became of the commands that an instance has sent; empty if it has sent none."""

    def instances(self) -> dict[str, tuple[str, bytes]]:
        """All that have begun and are not done."""
