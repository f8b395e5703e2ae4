"""Which segments of a partition have had their time, by Kafka's rules.

From the oldest on, whole segments go: first as long as the partition keeps retention.bytes or more without
them, then as long as the newest record of the next one is older than retention.ms. The first that stays ends
it. The active segment goes too once all of it is due; then a new one is begun first, so that the partition
goes on with its next offset.

What a segment's age is:

    its newest timestamp                                     where that is not in the future
    when its file was last written                           where it is, or no record has a timestamp
    nothing: the segment is new                              where even that is in the future

Kafka takes a timestamp in the future at its word, so that one event that is dated to the next century keeps
everything after it, for ever. Here its segment goes when the time of its writing has passed, as if the event
had been dated right.

"Now" is not simply what the clock says (see trusted_time.py): when it jumps ahead, a jump of a week would
delete a week too much. A clock that goes back, or stands still, only makes records younger: nothing is
deleted that should stay. But a broker that starts has nothing to compare its clock with: if that was further
behind when a file was written, and is still behind the timestamps in it, the file looks older than it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.log.index import NO_TIMESTAMP
from headrace.log.topic_settings import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.log.topic_settings import TopicSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentExtent:
    """A segment, for those who only want to know how large it is."""

    base_offset: int
    end_offset: int
    """Where the next segment begins, or the log ends."""
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTimes:
    """When a segment came to be."""

    newest_ms: int
    """The highest timestamp of its records; NO_TIMESTAMP where none has one."""
    written_ms: int
    """When its file was last written."""


def start_after_retention(
    extents: Sequence[SegmentExtent],
    settings: TopicSettings,
    times_of: Callable[[int], SegmentTimes],
    now_ms: int,
) -> int | None:
    """Where the partition would begin if everything that is due went; None when nothing is due.

    `times_of` is asked, by number, only for segments on which time decides.
    """
    if not settings.is_deleted or not extents:
        return None
    count = _surplus_count(extents, settings.retention_bytes)
    if settings.retention_ms != UNLIMITED:
        while count < len(extents) and age_ms(times_of(count), now_ms) > settings.retention_ms:
            count += 1
    return extents[count - 1].end_offset if count else None


def age_ms(times: SegmentTimes, now_ms: int) -> int:
    """How old the newest record of a segment is."""
    if NO_TIMESTAMP < times.newest_ms <= now_ms:
        return now_ms - times.newest_ms
    return max(now_ms - times.written_ms, 0)


def _surplus_count(extents: Sequence[SegmentExtent], retention_bytes: int) -> int:
    """How many of the oldest segments the partition can do without and still have its size."""
    if retention_bytes < 0:
        return 0
    surplus_bytes = sum(extent.size_bytes for extent in extents) - retention_bytes
    count = 0
    for extent in extents:
        if surplus_bytes < extent.size_bytes:
            break
        surplus_bytes -= extent.size_bytes
        count += 1
    return count
