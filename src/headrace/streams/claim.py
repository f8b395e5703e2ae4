"""That a checkpoint is the one that its pipeline writes from.

    DATA/checkpoints/<query>/claim.json    {"query_id": "...", "targets": ["totals"]}

A pipeline's name is one ledger in each topic or table. Who begins afresh, from a new checkpoint, takes it
over from whoever had it, and notes that down in his checkpoint. Who has such a note and finds the ledger in
other hands was replaced since: he ends for good, however often he is started. So the newest checkpoint wins,
and two that are both started again and again can't take over from each other for ever.

The note is written when the ledger is ours, never before: a crash in between leaves a run that may take over.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from headrace.streams.kept import write_kept

CLAIM: Final = "claim.json"


def has_claimed(checkpoint: Path, query_id: str, target: str) -> bool:
    """Whether the query of this checkpoint has had the ledger of what it writes."""
    return target in _claims(checkpoint, query_id)


def note_claim(checkpoint: Path, query_id: str, target: str) -> None:
    """Note down that it has it now."""
    targets = _claims(checkpoint, query_id)
    if target in targets:
        return
    write_kept(checkpoint / CLAIM, {"query_id": query_id, "targets": sorted({*targets, target})})


def _claims(checkpoint: Path, query_id: str) -> set[str]:
    try:
        note = json.loads((checkpoint / CLAIM).read_text())
        return set(map(str, note["targets"])) if note["query_id"] == query_id else set()
    except (OSError, ValueError, TypeError, KeyError):
        # What can't be read was never finished: the worst that comes of it is that it takes over once more.
        return set()
