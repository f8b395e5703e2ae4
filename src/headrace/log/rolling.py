"""When a partition begins a new segment, by Kafka's rules.

Batches go to a new segment when, with them, the active one

    would grow past segment.bytes,
    would have an offset too far from its base for its index,
    or would span more time, from its first batch to these, than segment.ms;
    and when one of its indexes has as many entries as segment.index.bytes has room for.

Time is that of the records, not of the clock, so that reading a topic's history into a new one makes the
same segments. Only where records have no timestamps, the clock counts, from the segment's beginning on. From
segment.ms a random part of segment.jitter.ms is taken off, once for each segment. Of a compacted topic no
segment spans more time than max.compaction.lag.ms, because the active segment is never compacted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.log.index import NO_TIMESTAMP, OFFSET_ENTRY_BYTES, RELATIVE_OFFSET_MAX, TIME_ENTRY_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from headrace.clock import Clock
    from headrace.log.batch import BatchHeader
    from headrace.log.segment import Segment
    from headrace.log.topic_settings import TopicSettings


class Rolling:
    """The limits of one active segment."""

    __slots__ = (
        "_bytes_max",
        "_index_may_fill",
        "_offset_entries_max",
        "_span_ms_max",
        "_time_entries_max",
    )

    def __init__(self, settings: TopicSettings, random: Random) -> None:
        self._bytes_max = settings.segment_bytes_max
        self._span_ms_max = settings.segment_ms
        if settings.is_compacted:
            self._span_ms_max = min(self._span_ms_max, settings.max_compaction_lag_ms)
        if settings.segment_jitter_ms:
            self._span_ms_max -= random.randrange(min(settings.segment_jitter_ms, self._span_ms_max))
        self._offset_entries_max = settings.segment_index_bytes // OFFSET_ENTRY_BYTES
        self._time_entries_max = settings.segment_index_bytes // TIME_ENTRY_BYTES - 1
        # An entry stands for more bytes than the interval, so most indexes can't get so large.
        entries_max = self._bytes_max // (settings.index_interval_bytes + 1) + 1
        self._index_may_fill = entries_max >= min(self._offset_entries_max, self._time_entries_max)

    def is_due(self, active: Segment, headers: Sequence[BatchHeader], size_bytes: int, clock: Clock) -> bool:
        """Whether batches, given by their headers as placed and their size, go to a new segment."""
        if not active.size_bytes:
            return False
        last = headers[-1]
        timestamp_ms = last.max_timestamp_ms
        if len(headers) > 1:
            timestamp_ms = max(header.max_timestamp_ms for header in headers)
        first_ms = active.first_timestamp_ms
        if first_ms == NO_TIMESTAMP:
            first_ms, timestamp_ms = active.begun_ms, clock.now_ms()
        return (
            active.size_bytes + size_bytes > self._bytes_max
            or last.last_offset + 1 - active.base_offset > RELATIVE_OFFSET_MAX
            or timestamp_ms - first_ms > self._span_ms_max
            or (self._index_may_fill and self._index_is_full(active))
        )

    def _index_is_full(self, active: Segment) -> bool:
        index = active.indexes.growing
        return (
            index.offset_entry_count >= self._offset_entries_max
            or index.time_entry_count >= self._time_entries_max
        )
