"""Checks of what groups and transactional producers commit.

A committed offset is a register: who asks for it must be given what the last acknowledged commit wrote, or a
commit that overlaps with it or came later. Whether a commit whose outcome is unknown has happened, and when,
nobody can say: it may explain any value from its invocation on.

A process is a zombie from the moment on when another one has certainly taken its place: it has asked for and
was given the partition, or has opened the transactional id anew. What a zombie asks for after that
moment must be refused.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.testing.anomalies.kinds import Anomaly, AnomalyKind
from headrace.testing.history import (
    Assignment,
    OffsetCommit,
    OffsetFetch,
    Outcome,
    ProducerInit,
    TopicPartition,
    TransactionEnd,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.testing.anomalies.evidence import Evidence

NEVER: Final = float("inf")
NOTHING: Final = -1
"""What a register holds before the first commit."""


class Write(NamedTuple):
    """A commit as a write to a register."""

    offset: int
    invoked: float
    completed: float
    is_certain: bool


INITIAL: Final = Write(NOTHING, -NEVER, -NEVER, is_certain=True)


def check_committed_offsets(evidence: Evidence) -> Iterator[Anomaly]:
    """A group is given what was committed last."""
    writes: dict[tuple[str, TopicPartition], list[Write]] = defaultdict(lambda: [INITIAL])
    for commit in evidence.of_type(OffsetCommit):
        write = _write_of(evidence, commit)
        if write is not None:
            writes[commit.group, commit.partition].append(write)
    for fetch in evidence.of_type(OffsetFetch):
        if fetch.outcome is Outcome.OK:
            yield from _check_fetch(fetch, writes[fetch.group, fetch.partition])


def _write_of(evidence: Evidence, commit: OffsetCommit) -> Write | None:
    """What a commit writes, and when; None if it certainly writes nothing."""
    if commit.outcome is Outcome.FAILED:
        return None
    if commit.transaction is None:
        is_certain = commit.outcome is Outcome.OK
        return Write(commit.offset, commit.invoked, commit.completed if is_certain else NEVER, is_certain)
    ends = [end for end in evidence.ends_of(commit.transaction) if end.commits]
    acknowledged = [end.completed for end in ends if end.outcome is Outcome.OK]
    invoked = min((end.invoked for end in ends), default=commit.invoked)
    if acknowledged and commit.outcome is Outcome.OK:
        return Write(commit.offset, invoked, min(acknowledged), is_certain=True)
    may_commit = any(end.outcome is not Outcome.FAILED for end in ends)
    return Write(commit.offset, invoked, NEVER, is_certain=False) if may_commit else None


def _check_fetch(fetch: OffsetFetch, writes: Sequence[Write]) -> Iterator[Anomaly]:
    given = NOTHING if fetch.offset is None else fetch.offset
    candidates = [write for write in writes if write.offset == given and write.invoked < fetch.completed]
    if any(not _is_overwritten(write, writes, fetch) for write in candidates):
        return
    asked = (
        f"{fetch.process} asked for the offset of {fetch.group} in {fetch.partition} and was given {given}"
    )
    newer = max(
        (write.offset for write in writes if write.is_certain and write.completed < fetch.invoked),
        default=NOTHING,
    )
    if candidates or given < newer:
        yield Anomaly(AnomalyKind.COMMITTED_OFFSET_WENT_BACK, f"{asked}, but {newer} had been committed")
    else:
        yield Anomaly(AnomalyKind.INVENTED, f"{asked}, which nobody has committed")


def _is_overwritten(write: Write, writes: Sequence[Write], fetch: OffsetFetch) -> bool:
    """Whether another commit certainly came after the write and before the fetch."""
    return any(
        other.is_certain and other.invoked > write.completed and other.completed < fetch.invoked
        for other in writes
    )


def check_zombies(evidence: Evidence) -> Iterator[Anomaly]:
    """Who has been replaced can't commit any more."""
    yield from _check_members(evidence)
    yield from _check_producers(evidence)


def _check_members(evidence: Evidence) -> Iterator[Anomaly]:
    assignments: dict[tuple[str, TopicPartition], list[Assignment]] = defaultdict(list)
    for assignment in evidence.of_type(Assignment):
        for partition in assignment.partitions:
            assignments[assignment.group, partition].append(assignment)
    for commit in evidence.of_type(OffsetCommit):
        if commit.generation is None or commit.outcome is not Outcome.OK:
            continue
        earlier = [
            each for each in assignments[commit.group, commit.partition] if each.completed < commit.invoked
        ]
        own_completed = max(
            (each.completed for each in earlier if each.process == commit.process), default=NEVER
        )
        for other in earlier:
            if other.process != commit.process and other.invoked > own_completed:
                yield Anomaly(
                    AnomalyKind.ZOMBIE_COMMIT,
                    f"{commit.process} committed offset {commit.offset} of {commit.partition} for "
                    f"{commit.group} in generation {commit.generation}, but {other.process} had been given "
                    f"the partition since, in generation {other.generation}",
                )
                break


def _check_producers(evidence: Evidence) -> Iterator[Anomaly]:
    inits: dict[str, list[ProducerInit]] = defaultdict(list)
    for init in evidence.of_type(ProducerInit):
        if init.outcome is Outcome.OK:
            inits[init.transactional_id].append(init)
    for end in evidence.of_type(TransactionEnd):
        if not end.commits or end.outcome is not Outcome.OK:
            continue
        own = [
            init.completed
            for init in inits[end.transactional_id]
            if init.process == end.process and init.completed < end.invoked
        ]
        for init in inits[end.transactional_id]:
            if own and init.process != end.process and own[-1] < init.invoked < init.completed < end.invoked:
                yield Anomaly(
                    AnomalyKind.ZOMBIE_COMMIT,
                    f"{end.process} committed {end.transaction!r}, but {init.process} had opened "
                    f"{end.transactional_id} anew",
                )
                break
