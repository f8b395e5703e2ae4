"""What has been written already: the ledger of an exactly-once topic, and what it says about a batch. No I/O.

Each task of a batch writes its share in one Kafka transaction, which also commits an offset for a consumer
group that nobody is a member of. That offset is the ledger: it says which batch comes next, and it is there
if and only if the rows are.

    group      headrace.<pipeline>
    partition  (the topic that the pipeline writes, number of the task)
    offset     id of the next batch: that of the batch whose share was written, plus one
    metadata   `headrace 1 <query id> <task count> <digest>`

The query id is Spark's: a checkpoint that is removed and begun anew has another. The task count says how the
batch was spread; shares of two different spreads don't add up to one batch. The digest is that of the batch's
input, as Spark has written it down before the batch began; the same batch id with another input is another
batch, which a checkpoint that was put back, or lost its last file, would make.

| entry | batch | |
|---|---|---|
| none | | write |
| of another query | first since the start, of a query that never had the ledger | write: it begins afresh |
| of another query | any other | refuse: another run of the pipeline has taken over, from another checkpoint |
| of this query, up to an earlier batch | | write |
| of this query, this batch | same input, same spread | skip: the share was written |
| of this query, this batch | other input, the entry's was given up by real-time mode | write |
| of this query, this batch | other input or other spread | refuse |
| of this query, a later batch | | refuse: the checkpoint was put back |

Whoever decides has fenced all earlier writers of the same share first, so that the entry can't change between
the decision and the commit.

Who begins afresh puts an entry into each share before he writes anything: up to the batch that he begins
with, and of no input. So a run that is fenced sees at once by whom, and that it must not come back: see
claim.py. The first share comes first. Of runs that begin at the same time, the last one to take it wins, and
goes on to take the others from whoever has come there before; one that has lost it takes no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headrace.errors import PipelineError, PipelineReplaced
from headrace.streams.claim import CLAIM

_MARK: Final = "headrace"
_VERSION: Final = "1"
NO_DIGEST: Final = "-"
"""Where there is no input that could be told from others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch that is about to be written."""

    pipeline: str
    query_id: str
    batch_id: int
    digest: str
    """Of its input."""
    given_up: frozenset[str] = frozenset()
    """Digests of inputs that had this id and were given up by a change to real-time mode."""
    is_first: bool
    """Whether no batch was written since the query was started."""
    has_claimed: bool = False
    """Whether the query had the ledger before: see claim.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the ledger says of one task's share."""

    next_batch_id: int
    query_id: str
    task_count: int
    digest: str

    @property
    def metadata(self) -> str:
        """All but the offset, as it is kept beside it."""
        return f"{_MARK} {_VERSION} {self.query_id} {self.task_count} {self.digest}"


class Verdict(Enum):
    """What to do with a share."""

    WRITE = "write"
    SKIP = "skip"


def group_of(pipeline: str) -> str:
    """The consumer group whose offsets are the ledger."""
    return f"headrace.{pipeline}"


def transactional_id_of(pipeline: str, task: int) -> str:
    """Who writes a share: the broker lets only the newest producer of this name commit."""
    return f"headrace.{pipeline}.{task}"


def entry_after(batch: Batch, task_count: int) -> Entry:
    """What the ledger says once a share of the batch is written."""
    return Entry(
        next_batch_id=batch.batch_id + 1,
        query_id=batch.query_id,
        task_count=task_count,
        digest=batch.digest,
    )


def claim_before(batch: Batch, task_count: int) -> Entry:
    """What the ledger says of a share of which nothing was written yet, by a query that begins afresh."""
    return Entry(
        next_batch_id=batch.batch_id, query_id=batch.query_id, task_count=task_count, digest=NO_DIGEST
    )


def read_entry(pipeline: str, offset: int, metadata: str | None) -> Entry | None:
    """The entry that a committed offset is; None where nothing was committed."""
    if offset < 0:
        return None
    match (metadata or "").split():
        case [mark, version, query_id, task_count, digest] if (
            mark == _MARK and version == _VERSION and task_count.isdecimal()
        ):
            return Entry(next_batch_id=offset, query_id=query_id, task_count=int(task_count), digest=digest)
    raise PipelineError(
        f"the consumer group {group_of(pipeline)} is where pipeline {pipeline} keeps what it has written, "
        f"and it holds an offset of somebody else ({offset}, {metadata!r}): give that consumer another "
        "group, and delete this one with `headrace groups delete`"
    )


def decide(entry: Entry | None, batch: Batch, task_count: int) -> Verdict:
    """Whether a share is to be written; raises where neither writing nor skipping is right."""
    if entry is None:
        return Verdict.WRITE
    if entry.query_id != batch.query_id:
        if batch.is_first and not batch.has_claimed:
            return Verdict.WRITE
        raise taken_over(batch.pipeline)
    if entry.next_batch_id <= batch.batch_id or _is_given_up(entry, batch):
        return Verdict.WRITE
    if entry.next_batch_id > batch.batch_id + 1 or entry.digest != batch.digest:
        raise PipelineError(_put_back(entry, batch))
    if entry.task_count != task_count:
        raise PipelineError(
            f"batch {batch.batch_id} of pipeline {batch.pipeline} was begun with {entry.task_count} writers "
            f"and can't be finished with {task_count}: start the pipeline again"
        )
    return Verdict.SKIP


def taken_over(pipeline: str) -> PipelineReplaced:
    """What ends a run for good that was replaced by another."""
    return PipelineReplaced(
        f"another run of pipeline {pipeline} has taken over, from a newer checkpoint, and this one ends: run "
        "a pipeline from one --data only, or give one of the two another name. To go on from this checkpoint "
        f"all the same, stop the other run, and remove {CLAIM} from the checkpoint"
    )


def refuse_replaced(entries: Iterable[Entry | None], batch: Batch) -> None:
    """Raise if the ledger is in other hands by now."""
    if batch.has_claimed and any(entry and entry.query_id != batch.query_id for entry in entries):
        raise taken_over(batch.pipeline)


def refuse_overtaken(first: Entry | None, batch: Batch) -> None:
    """Raise if the first share, which the run had claimed, is in other hands while it claims another."""
    if first is not None and first.query_id != batch.query_id:
        raise taken_over(batch.pipeline)


def _is_given_up(entry: Entry, batch: Batch) -> bool:
    return (
        entry.next_batch_id == batch.batch_id + 1
        and entry.digest != batch.digest
        and entry.digest in batch.given_up
    )


def _put_back(entry: Entry, batch: Batch) -> str:
    written = entry.next_batch_id - 1
    known = (
        f"batch {written} was written already"
        if written > batch.batch_id
        else f"batch {written} was written already, with other input"
    )
    return (
        f"pipeline {batch.pipeline} can't go on with batch {batch.batch_id}, because {known}: its checkpoint "
        "was put back to an older state or has lost a file. Bring the newest checkpoint back; or remove it "
        "and start afresh, which writes everything once more"
    )


def begun_task_count(entries: Iterable[Entry | None], batch: Batch) -> int | None:
    """With how many tasks the batch was begun, where a share of it is written already."""
    for entry in entries:
        if (
            entry is not None
            and entry.query_id == batch.query_id
            and entry.next_batch_id == batch.batch_id + 1
            and not _is_given_up(entry, batch)
        ):
            return entry.task_count
    return None


def check_all(entries: Iterable[Entry | None], batch: Batch, task_count: int) -> None:
    """Raise if one share of the batch can't be written: then none is to be.

    Shares get rows at different times, so a checkpoint that was put back shows in some of them only.
    """
    for entry in entries:
        decide(entry, batch, task_count)


def is_settled(entries: Iterable[Entry | None], batch: Batch, task_count: int) -> bool:
    """Whether every share has an entry of this query and of this spread.

    Then no writer of an earlier run can still be at work on another spread of the batch.
    """
    return all(
        entry is not None and entry.query_id == batch.query_id and entry.task_count == task_count
        for entry in entries
    )
