"""Checks of records: each is where it was said to be, once, in order, and only if it was committed."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING

from headrace.testing.anomalies.evidence import Verdict
from headrace.testing.anomalies.kinds import Anomaly, AnomalyKind
from headrace.testing.history import Outcome, Send

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.testing.anomalies.evidence import Evidence
    from headrace.testing.history import Poll, Polled, TopicPartition


def check_places(evidence: Evidence) -> Iterator[Anomaly]:
    """One value at each offset, and each value at one offset."""
    for partition, offsets in evidence.values.items():
        for offset, values in offsets.items():
            if len(values) > 1:
                listed = " and ".join(map(repr, values))
                yield Anomaly(
                    AnomalyKind.INCONSISTENT_OFFSETS, f"offset {offset} of {partition} is both {listed}"
                )
    for value, places in evidence.places.items():
        send = evidence.send_of.get(value)
        if len(places) > 1 and send is not None and send.is_idempotent:
            listed = ", ".join(f"{partition} offset {offset}" for partition, offset in places)
            yield Anomaly(AnomalyKind.DUPLICATE, f"{value!r} of {send.process} lies at {listed}")


def check_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Nothing is read that was refused, is not committed, or was never sent."""
    for poll in evidence.polls:
        for record in poll.records:
            send = evidence.send_of.get(record.value)
            if send is None:
                where = f"{record.partition} offset {record.offset}"
                yield Anomaly(AnomalyKind.INVENTED, f"{poll.process} was given {record.value!r} at {where}")
            else:
                yield from _check_read(evidence, poll, record, send)


def _check_read(evidence: Evidence, poll: Poll, record: Polled, send: Send) -> Iterator[Anomaly]:
    given = f"{poll.process} was given {record.value!r} at {record.partition} offset {record.offset}"
    if send.outcome is Outcome.FAILED:
        yield Anomaly(AnomalyKind.ABORTED_READ, f"{given}, which had been refused")
    if send.transaction is None or not poll.is_read_committed:
        return
    if evidence.verdict(send.transaction) is Verdict.ABORTED:
        yield Anomaly(AnomalyKind.ABORTED_READ, f"{given} of {send.transaction!r}, which never committed")
        return
    commit_invoked = evidence.commit_invoked(send.transaction)
    if commit_invoked is not None and poll.completed < commit_invoked:
        yield Anomaly(
            AnomalyKind.PRECOMMITTED_READ,
            f"{given} at {poll.completed}, but the commit of {send.transaction!r} came at {commit_invoked}",
        )


def check_sends(evidence: Evidence) -> Iterator[Anomaly]:
    """A producer's records lie in the order in which it sent them."""
    last: dict[tuple[str, TopicPartition], tuple[int, Send]] = {}
    for send in sorted(evidence.sends, key=lambda send: send.invoked):
        if send.outcome is not Outcome.OK or send.offset is None or not send.is_idempotent:
            continue
        key = (send.process, send.partition)
        offset, earlier = last.get(key, (-1, send))
        if send.offset <= offset:
            yield Anomaly(
                AnomalyKind.NONMONOTONIC_SEND,
                f"{send.process} sent {send.values[0]!r} to {send.partition} after {earlier.values[0]!r}, "
                f"but it lies at offset {send.offset} and the other at {offset}",
            )
        else:
            last[key] = (send.offset, send)


def check_polls(evidence: Evidence) -> Iterator[Anomaly]:
    """A consumer is led forward, past nothing."""
    required = {
        is_read_committed: _required_offsets(evidence, is_read_committed=is_read_committed)
        for is_read_committed in (False, True)
    }
    positions: dict[tuple[str, TopicPartition], int] = {}
    for poll in evidence.polls:
        for partition, position in poll.positions:
            positions[poll.process, partition] = position
        for record in poll.records:
            key = (poll.process, record.partition)
            position = positions.get(key, record.offset)
            if record.offset < position:
                yield Anomaly(
                    AnomalyKind.NONMONOTONIC_POLL,
                    f"{poll.process} was given offset {record.offset} of {record.partition} where "
                    f"{position} was due",
                )
                continue
            must_come = required[poll.is_read_committed][record.partition]
            for offset in must_come[bisect_left(must_come, position) : bisect_left(must_come, record.offset)]:
                yield Anomaly(
                    AnomalyKind.SKIPPED_POLL,
                    f"{poll.process} was given offset {record.offset} of {record.partition} where {position} "
                    f"was due, past {evidence.values[record.partition][offset][0]!r} at {offset}",
                )
            positions[key] = record.offset + 1


def _required_offsets(evidence: Evidence, *, is_read_committed: bool) -> dict[TopicPartition, list[int]]:
    """By partition, where lies what nobody may be led past, in order."""
    required: dict[TopicPartition, list[int]] = defaultdict(list)
    for partition, offsets in evidence.values.items():
        for offset, values in offsets.items():
            send = evidence.send_of.get(values[0])
            if evidence.may_be_missing(partition, offset, values[0]):
                continue
            if not is_read_committed or send is None or evidence.is_committed(send):
                required[partition].append(offset)
        required[partition].sort()
    return required
