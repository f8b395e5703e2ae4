"""A store that has lost what was written to it: restored from a backup, emptied, or never on disk. No I/O.

Each batch has an entry in the store's ledger, rows or not. So a query that has had the store and finds no
entry, or one of an earlier batch than the last, knows that rows are missing which it will never write again.
"""

from __future__ import annotations

from headrace.errors import PipelineError
from headrace.streams.sinks.ledger import Batch, Entry


def refuse_lost(entry: Entry | None, batch: Batch, place: str) -> None:
    """Raise if batches that were written before this one are not there any more."""
    if entry is None:
        if batch.has_claimed:
            raise lost(batch.pipeline, place, "nothing is there of what was written before")
    elif entry.query_id == batch.query_id and entry.next_batch_id < batch.batch_id:
        raise lost(
            batch.pipeline,
            place,
            f"the last batch that is there is {entry.next_batch_id - 1}, and batch {batch.batch_id - 1} was "
            "written",
        )


def lost(pipeline: str, place: str, what: str) -> PipelineError:
    """What ends a run that would otherwise go on with a store that lacks rows."""
    return PipelineError(
        f"{place} has lost rows of pipeline {pipeline}: {what}. It was emptied, restored from a backup, or "
        "restarted without all of its data. Build it anew from the log with `headrace replay "
        f"FILE:{pipeline} --swap`"
    )
