"""The ledger of a search index, as a document that is replaced with each batch. No I/O.

    {"run": 3, "query_id": "...", "next_batch_id": 42, "digest": "..."}

A run takes the next number before its first batch. Whoever finds another number than his own has been
replaced. What an entry says about a batch is decided in ledger.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace.streams.sinks.ledger import (
    NO_DIGEST,
    Batch,
    Entry,
    Verdict,
    claim_before,
    decide,
    entry_after,
    refuse_replaced,
    taken_over,
)
from headrace.streams.sinks.lost import lost, refuse_lost

FIRST_RUN: Final = 1
GONE: Final = "nothing is there of what this run has written"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What one pipeline has written to one index."""

    run: int
    entry: Entry

    def to_document(self) -> dict[str, int | str]:
        """As it is kept."""
        entry = self.entry
        return {
            "run": self.run,
            "query_id": entry.query_id,
            "next_batch_id": entry.next_batch_id,
            "digest": entry.digest,
        }

    @classmethod
    def from_document(cls, kept: Mapping[str, Any]) -> Ledger:
        """As it was kept, whatever else stands beside it."""
        entry = Entry(
            next_batch_id=int(kept["next_batch_id"]),
            query_id=str(kept["query_id"]),
            task_count=1,
            digest=str(kept["digest"]),
        )
        return cls(run=int(kept["run"]), entry=entry)

    def after(self, batch: Batch) -> Ledger:
        """What it says once the batch is written."""
        return replace(self, entry=entry_after(batch, 1))


def begun(ledger: Ledger | None, batch: Batch, *, place: str) -> Ledger:
    """What it says when a run has begun that writes this batch first; raises where it must not begin."""
    entry = None if ledger is None else ledger.entry
    refuse_replaced([entry], batch)
    refuse_lost(entry, batch, place)
    # Who can't go on with this batch does not take over, either.
    decide(entry, batch, 1)
    if entry is None or entry.query_id != batch.query_id:
        entry = claim_before(batch, 1)
    return Ledger(run=FIRST_RUN if ledger is None else ledger.run + 1, entry=entry)


def is_written(ledger: Ledger | None, batch: Batch, run: int, *, place: str) -> bool:
    """Whether the batch is there. Raises where the run was replaced, or the batch can't be written."""
    if ledger is None:
        raise lost(batch.pipeline, place, GONE)
    if ledger.run != run:
        raise taken_over(batch.pipeline)
    refuse_lost(ledger.entry, batch, place)
    return decide(ledger.entry, batch, 1) is Verdict.SKIP


def swapped(live: Ledger | None, staged: Ledger | None, query_id: str) -> Ledger:
    """What it says when staged rows have taken the place of live ones: no run has this number."""
    run = 1 + max(ledger.run if ledger else 0 for ledger in (live, staged))
    if staged is not None:
        return replace(staged, run=run)
    entry = Entry(next_batch_id=0, query_id=query_id, task_count=1, digest=NO_DIGEST)
    return Ledger(run=run, entry=entry)
