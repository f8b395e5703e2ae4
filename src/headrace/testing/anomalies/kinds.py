"""The names of what can go wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class AnomalyKind(Enum):
    """What a log must never do."""

    LOST_WRITE = "lost write"
    """An acknowledged record was read by nobody, though somebody read further or to the end."""
    UNSEEN = "unseen"
    """An acknowledged record was not seen: by nobody at all, or not by one who has read everything."""
    DUPLICATE = "duplicate"
    """One record of an idempotent producer lies at two offsets."""
    INCONSISTENT_OFFSETS = "inconsistent offsets"
    """One offset has two values."""
    ABORTED_READ = "aborted read"
    """A record was read that was refused, or whose transaction was not committed."""
    PRECOMMITTED_READ = "precommitted read"
    """A record was read before anybody asked for its transaction to be committed."""
    TORN_TRANSACTION = "torn transaction"
    """Of a transaction, one record was read as committed and another one was not there."""
    SKIPPED_POLL = "skipped poll"
    """A consumer was led past a record that lay between what it was given."""
    NONMONOTONIC_POLL = "nonmonotonic poll"
    """A consumer was led back without having asked for it."""
    NONMONOTONIC_SEND = "nonmonotonic send"
    """Of two records of one producer, the later one got the lower offset."""
    INVENTED = "invented"
    """Something was read that nobody has written: a record, or a committed offset."""
    COMMITTED_OFFSET_WENT_BACK = "committed offset went back"
    """A group was given an older offset than the last one of which the commit had been acknowledged."""
    ZOMBIE_COMMIT = "zombie commit accepted"
    """A commit was acknowledged to a process whose place another one had certainly taken before."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One thing that went wrong, and the evidence in words."""

    kind: AnomalyKind
    evidence: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.evidence}"
