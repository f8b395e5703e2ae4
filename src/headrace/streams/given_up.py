"""Batches that a change to real-time mode has given up.

    DATA/checkpoints/<query>/given-up.json    {"batch_id": 7, "digests": ["3911b966b80c294b"]}

Micro-batches write a batch's input down before the batch begins; real-time mode does when it ends, and starts
by removing what was written down of a batch that was begun in micro-batches and never committed. Shares of
such a batch may have been written exactly once all the same, and the next run in micro-batches gives its id
to another input. The note tells it that this is no checkpoint that was put back. Where it was the first
batch, what is left of its state goes, too: Spark starts no query that has state and no batch.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Final

from headrace.streams.kept import read_kept, write_kept

_NOTE: Final = "given-up.json"


def digest_of(checkpoint: Path, batch_id: int) -> str:
    """What tells the input of this batch from any other that might get the same id."""
    content = (checkpoint / "offsets" / str(batch_id)).read_bytes()
    return hashlib.sha256(content).hexdigest()[:16]


def note_given_up(checkpoint: Path) -> None:
    """Note the batch that was begun and not committed, if there is one, before real-time mode removes it."""
    batch_id = _newest(checkpoint / "offsets")
    committed = _newest(checkpoint / "commits")
    if batch_id is None or (committed is not None and batch_id <= committed):
        return
    digests = given_up_digests(checkpoint, batch_id) | {digest_of(checkpoint, batch_id)}
    write_kept(checkpoint / _NOTE, {"batch_id": batch_id, "digests": sorted(digests)})


def clear_given_up_state(checkpoint: Path) -> None:
    """Remove the state of a first batch that was given up. The caller holds the query's lock."""
    began = any(_newest(checkpoint / log) is not None for log in ("offsets", "commits"))
    if not began and given_up_digests(checkpoint, 0):
        shutil.rmtree(checkpoint / "state", ignore_errors=True)


def given_up_digests(checkpoint: Path, batch_id: int) -> frozenset[str]:
    """The inputs that this batch has had and that were given up."""
    noted = read_kept(
        checkpoint / _NOTE,
        lambda note: (note["batch_id"], frozenset(map(str, note["digests"]))),
        problem="does not say which batch was given up",
        advice="bring it back together with the newest checkpoint",
    )
    return noted[1] if noted is not None and noted[0] == batch_id else frozenset()


def _newest(log: Path) -> int | None:
    return max((int(path.name) for path in log.glob("[0-9]*") if path.name.isdecimal()), default=None)
