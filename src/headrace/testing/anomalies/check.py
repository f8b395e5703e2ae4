"""All checks, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.testing.anomalies.completeness import check_completeness
from headrace.testing.anomalies.evidence import Evidence
from headrace.testing.anomalies.groups import check_committed_offsets, check_zombies
from headrace.testing.anomalies.records import check_places, check_polls, check_reads, check_sends

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from headrace.testing.anomalies.kinds import Anomaly
    from headrace.testing.history import Operation, TopicPartition

CHECKS: Final = (
    check_places,
    check_reads,
    check_sends,
    check_polls,
    check_completeness,
    check_committed_offsets,
    check_zombies,
)


def find_anomalies(
    operations: Iterable[Operation], *, compacted: Collection[TopicPartition] = ()
) -> list[Anomaly]:
    """Everything that went wrong in a history; an empty list if nothing did.

    In `compacted` partitions, which need keys in their sends, a record may be missing once a later one with
    the same key is there.
    """
    evidence = Evidence(operations, compacted)
    return [anomaly for check in CHECKS for anomaly in check(evidence)]
