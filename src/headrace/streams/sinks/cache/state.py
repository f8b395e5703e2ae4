"""What the ledger of a cache says, and what follows from it. No I/O.

    {<cache>}.headrace.<pipeline>    a hash, in the same slot as the cache
    run            number of the run that may write: one more than that of the run before
    query_id       Spark's, or any other id of one run of batches
    next_batch_id  id of the last batch that was written, plus one
    digest         of that batch's input
    row_count      how many rows the cache had then
    open_batch     id of the batch that is being written; empty if none is
    server         which process of Redis it was opened in
    swap           id of the last swap

    {<cache>}.headrace.:emptied      there if a pipeline has removed the last row: no pipeline has such a name

A batch is opened, written by its tasks, and closed. Each call of a task's script compares run and open batch
with its own before it writes, and Redis runs one script at a time: so a task of an earlier batch, or one of a
run that was replaced, can't write any more. A batch that was cut off is opened and written again, all of it:
its rows take the place of themselves. A task writes one row of each key only, so that two that write the same
share at the same time do no harm.

Redis has no empty hashes, so rows that were evicted, or deleted with the hash, look like rows that a pipeline
has removed, this one or another: whoever removes the last one leaves a note, and whoever writes a row takes
it away.

Whether rows were lost, a later batch sees by the entry (see sinks/lost.py). Within a batch, a server that was
restarted, or another one that has taken its place, may lack what an earlier call has written. So a batch
counts only if the same process has seen all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.errors import PipelineError
from headrace.streams.sinks.ledger import (
    NO_DIGEST,
    Batch,
    Entry,
    Verdict,
    claim_before,
    decide,
    entry_after,
    taken_over,
)
from headrace.streams.sinks.lost import lost, refuse_lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is there beside the ledger."""

    place: str
    """Which cache it is, in words."""
    server: str
    """The process of Redis that was asked."""
    row_count: int
    is_emptied: bool = False
    """Whether it has no rows because a pipeline has removed the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the ledger says."""

    run: int
    entry: Entry
    row_count: int = 0
    open_batch: int | None = None
    server: str = ""
    swap: str = ""

    def fields(self) -> dict[str, str]:
        """As they are kept; all of them, so that none is left from before."""
        return {
            "run": str(self.run),
            "query_id": self.entry.query_id,
            "next_batch_id": str(self.entry.next_batch_id),
            "digest": self.entry.digest,
            "row_count": str(self.row_count),
            "open_batch": "" if self.open_batch is None else str(self.open_batch),
            "server": self.server,
            "swap": self.swap,
        }


def ledger_key(cache: str, pipeline: str) -> str:
    """Where the ledger is."""
    return f"{{{cache}}}.headrace.{pipeline}"


def note_key(cache: str) -> str:
    """Where it is noted that a pipeline has removed the last row."""
    return f"{{{cache}}}.headrace.:emptied"


def read_state(key: str, found: Mapping[bytes, bytes]) -> State | None:
    """What is kept there; None if nothing is."""
    if not found:
        return None
    texts = {name.decode(): value.decode(errors="replace") for name, value in found.items()}
    try:
        entry = Entry(
            next_batch_id=int(texts["next_batch_id"]),
            query_id=texts["query_id"],
            task_count=1,
            digest=texts["digest"],
        )
        return State(
            run=int(texts["run"]),
            entry=entry,
            row_count=int(texts["row_count"]),
            open_batch=int(texts["open_batch"]) if texts["open_batch"] else None,
            server=texts["server"],
            swap=texts["swap"],
        )
    except (KeyError, ValueError):
        raise PipelineError(
            f"the key {key} is where a pipeline keeps what it has written, and it holds something else: "
            "delete it if nobody needs it, or give the cache another name"
        ) from None


def made(query_id: str = "") -> State:
    """What is kept of a cache in which nothing was written yet."""
    entry = Entry(next_batch_id=0, query_id=query_id, task_count=1, digest=NO_DIGEST)
    return State(run=0, entry=entry)


def begin_run(state: State | None, batch: Batch, seen: Seen) -> State:
    """Shut out all earlier runs, before the first batch of a new one."""
    entry = None if state is None else state.entry
    refuse_lost(entry, batch, seen.place)
    # Who can't go on with this batch, or was replaced, does not take over, either.
    decide(entry, batch, 1)
    run = 1 if state is None else state.run + 1
    if state is None or state.entry.query_id != batch.query_id:
        swap = "" if state is None else state.swap
        return State(run=run, entry=claim_before(batch, 1), row_count=seen.row_count, swap=swap)
    _refuse_emptied(state, batch, seen)
    return replace(state, run=run, row_count=seen.row_count, open_batch=None)


def open_batch(state: State | None, batch: Batch, run: int, seen: Seen) -> State | None:
    """Let tasks write the batch; None if it is written already."""
    state = _of_run(state, batch, run, seen)
    refuse_lost(state.entry, batch, seen.place)
    _refuse_emptied(state, batch, seen)
    if decide(state.entry, batch, 1) is Verdict.SKIP:
        return None
    return replace(state, open_batch=batch.batch_id, server=seen.server)


def close_batch(state: State | None, batch: Batch, run: int, seen: Seen) -> State | None:
    """Let the batch count; None if it has to be written again, because it may not be there as a whole."""
    state = _of_run(state, batch, run, seen)
    after = entry_after(batch, 1)
    if state.open_batch is None and state.entry == after:
        # It was closed, and nobody was told of it.
        return state
    if (state.open_batch, state.server) != (batch.batch_id, seen.server):
        return None
    _refuse_emptied(state, batch, seen)
    return replace(state, entry=after, row_count=seen.row_count, open_batch=None)


def swapped(live: State | None, staged: State, query_id: str, swap: str, row_count: int) -> State:
    """What the ledger says once staged rows have taken the place of all others, whose writer is shut out."""
    entry = staged.entry if staged.entry.query_id == query_id else made(query_id).entry
    run = max(staged.run, 0 if live is None else live.run) + 1
    return State(run=run, entry=entry, row_count=row_count, swap=swap)


def _of_run(state: State | None, batch: Batch, run: int, seen: Seen) -> State:
    if state is None:
        raise lost(batch.pipeline, seen.place, "nothing is there of what was written before")
    if state.run < run:
        raise lost(batch.pipeline, seen.place, f"run {run} writes it, and it knows of run {state.run} only")
    if state.run > run:
        raise taken_over(batch.pipeline)
    return state


def _refuse_emptied(state: State, batch: Batch, seen: Seen) -> None:
    """Raise if Redis has evicted, expired or deleted the rows, and left the ledger."""
    if state.row_count and not seen.row_count and not seen.is_emptied:
        raise lost(
            batch.pipeline, seen.place, f"it had {state.row_count:,} rows and has none (was it evicted?)"
        )
