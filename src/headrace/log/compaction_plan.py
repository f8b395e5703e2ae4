"""When a partition is compacted, and how far, by Kafka's rules.

    clean                     dirty                    not to be compacted yet
    --------------------------|------------------------|---------------------------------> offsets
    start                     first dirty offset       end

The clean part was compacted before: each key is there once. What can't be compacted yet begins with the first
of: the active segment, an open transaction, a segment with a record younger than min.compaction.lag.ms. The
partition is compacted when the dirty part is more than min.cleanable.dirty.ratio of both parts, by size, or
when its oldest record is older than max.compaction.lag.ms.

Then everything before the end is written anew, since the dirty part makes records of the clean part obsolete.
Segments that are small, or have become so, are put together into one, as long as that fits a segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.config import LONG_MAX
from headrace.log.index import NO_TIMESTAMP, RELATIVE_OFFSET_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.log.topic_settings import TopicSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSegment:
    """A segment that is not written any more."""

    base_offset: int
    end_offset: int
    """Where the next segment begins."""
    size_bytes: int
    index_bytes: int
    first_ms: int
    """The timestamp of its first batch; NO_TIMESTAMP where it has none."""
    newest_ms: int
    """Its highest timestamp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Compact these segments, all from the first on; from an offset on they are dirty."""

    segment_count: int
    first_dirty_offset: int
    end_offset: int


def plan_compaction(
    segments: Sequence[SealedSegment],
    settings: TopicSettings,
    *,
    compacted_below: int,
    last_stable_offset: int,
    now_ms: int,
) -> Plan | None:
    """Whether to compact, and what; the active segment is not among those given."""
    if not settings.is_compacted or not segments:
        return None
    first_dirty = max(compacted_below, segments[0].base_offset)
    if first_dirty > segments[-1].end_offset:
        # The end of the log was lost after it had been compacted; all that is certain is to begin anew.
        first_dirty = segments[0].base_offset
    count = _compactable_count(segments, settings, first_dirty, last_stable_offset, now_ms)
    dirty = [segment for segment in segments[:count] if segment.end_offset > first_dirty]
    if not dirty or not (_is_dirty_enough(segments, dirty, settings) or _is_late(dirty, settings, now_ms)):
        return None
    return Plan(
        segment_count=count, first_dirty_offset=first_dirty, end_offset=segments[count - 1].end_offset
    )


def _compactable_count(
    segments: Sequence[SealedSegment],
    settings: TopicSettings,
    first_dirty: int,
    last_stable_offset: int,
    now_ms: int,
) -> int:
    youngest_ms = now_ms - settings.min_compaction_lag_ms
    for count, segment in enumerate(segments):
        is_too_young = (
            settings.min_compaction_lag_ms > 0
            and segment.newest_ms > youngest_ms
            and segment.end_offset > first_dirty
        )
        if segment.end_offset > last_stable_offset or is_too_young:
            return count
    return len(segments)


def _is_dirty_enough(
    segments: Sequence[SealedSegment], dirty: Sequence[SealedSegment], settings: TopicSettings
) -> bool:
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    clean_bytes = sum(
        segment.size_bytes for segment in segments if segment.base_offset < dirty[0].base_offset
    )
    return dirty_bytes > settings.min_cleanable_dirty_ratio * (clean_bytes + dirty_bytes)


def _is_late(dirty: Sequence[SealedSegment], settings: TopicSettings, now_ms: int) -> bool:
    times = [segment.first_ms for segment in dirty if segment.first_ms != NO_TIMESTAMP]
    if not times or settings.max_compaction_lag_ms == LONG_MAX:
        return False
    return now_ms - min(times) > settings.max_compaction_lag_ms


def group_by_size(segments: Sequence[SealedSegment], settings: TopicSettings) -> list[range]:
    """The numbers of segments that become one, at most as large as a segment may be before they shrink."""
    groups: list[range] = []
    for number, segment in enumerate(segments):
        if groups and _fits(segments[groups[-1].start : number + 1], settings):
            groups[-1] = range(groups[-1].start, number + 1)
        else:
            groups.append(range(number, number + 1))
        assert segment.base_offset < segment.end_offset
    return groups


def _fits(segments: Sequence[SealedSegment], settings: TopicSettings) -> bool:
    return (
        sum(segment.size_bytes for segment in segments) <= settings.segment_bytes_max
        and sum(segment.index_bytes for segment in segments) <= settings.segment_index_bytes
        and segments[-1].end_offset - segments[0].base_offset <= RELATIVE_OFFSET_MAX
    )
