"""Checks that whoever has read everything was given all that was acknowledged, all of each transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.testing.anomalies.kinds import Anomaly, AnomalyKind
from headrace.testing.history import Drained, Outcome

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from headrace.testing.anomalies.evidence import Evidence
    from headrace.testing.history import TopicPartition

Must = tuple["TopicPartition", int, "Hashable"]


def check_completeness(evidence: Evidence) -> Iterator[Anomaly]:
    """Nothing that was acknowledged, or read by others, is missing."""
    drained = evidence.of_type(Drained)
    reported: set[Hashable] = set()
    for reading in drained:
        seen = _seen_by(evidence, reading)
        for must in _must_be_seen(evidence, is_read_committed=reading.is_read_committed):
            partition, _, value = must
            if partition in reading.partitions and value not in seen:
                reported.add(value)
                yield _missing(evidence, must, reading.group or reading.process)
    drained_partitions = {partition for reading in drained for partition in reading.partitions}
    read_up_to = _read_up_to(evidence)
    for must in _must_be_seen(evidence, is_read_committed=True):
        partition, offset, value = must
        if value in evidence.seen or value in reported or partition in drained_partitions:
            continue
        if offset < read_up_to.get(partition, 0):
            yield _missing(evidence, must, "somebody who read further")
        else:
            yield Anomaly(AnomalyKind.UNSEEN, f"{_named(evidence, must)} was read by nobody")


def _must_be_seen(evidence: Evidence, *, is_read_committed: bool) -> Iterator[Must]:
    """What was acknowledged or read by somebody, and was neither aborted nor removed."""
    for value, places in evidence.places.items():
        send = evidence.send_of.get(value)
        if send is None or (is_read_committed and not evidence.is_committed(send)):
            continue
        partition, offset = places[0]
        if not evidence.may_be_missing(partition, offset, value):
            yield partition, offset, value
    for send in evidence.sends:
        if send.outcome is Outcome.OK and send.offset is None:
            if is_read_committed and not evidence.is_committed(send):
                continue
            yield from ((send.partition, -1, value) for value in send.values if value not in evidence.places)


def _seen_by(evidence: Evidence, reading: Drained) -> set[Hashable]:
    return {
        record.value
        for poll in evidence.polls
        if (poll.process == reading.process if reading.group is None else poll.group == reading.group)
        for record in poll.records
    }


def _read_up_to(evidence: Evidence) -> dict[TopicPartition, int]:
    highest: dict[TopicPartition, int] = {}
    for poll in evidence.polls:
        for record in poll.records:
            highest[record.partition] = max(highest.get(record.partition, 0), record.offset)
    return highest


def _missing(evidence: Evidence, must: Must, reader: str) -> Anomaly:
    value = must[2]
    send = evidence.send_of[value]
    what = f"{_named(evidence, must)} was not given to {reader}"
    if send.transaction is not None and any(
        other in evidence.seen_committed
        for each in evidence.sends
        if each.transaction == send.transaction
        for other in each.values
    ):
        if value not in evidence.seen_committed:
            return Anomaly(AnomalyKind.TORN_TRANSACTION, f"{what}, but others of {send.transaction!r} were")
    elif value not in evidence.seen:
        return Anomaly(AnomalyKind.LOST_WRITE, what)
    return Anomaly(AnomalyKind.UNSEEN, f"{what}, though others have read it")


def _named(evidence: Evidence, must: Must) -> str:
    partition, offset, value = must
    send = evidence.send_of[value]
    where = f"offset {offset} of {partition}" if offset >= 0 else str(partition)
    return f"{value!r} of {send.process}, {send.outcome.value} at {where},"
