"""Which micro-batch each row came with.

Where a checkpoint tells how the log was cut, the cuts are real. Else the log is cut into pieces of a given
number of rows, in the order in which records were written, and within a partition in the order of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from headrace.streams.buckets.sources import Longs, micros, sources_of
from headrace.streams.progress_log import Batch, Offsets, ProgressLog
from headrace.streams.spans import Span
from headrace.streams.topic import METADATA_COLUMN

NONE: int = -1
"""The number of no micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A part of the log that was one micro-batch."""

    batch: int
    starts: Offsets
    ends: Offsets

    @property
    def offset_count(self) -> int:
        """How many offsets it has."""
        return sum(max(0, end - self.starts.get(place, 0)) for place, end in self.ends.items())


def real_cuts(log: ProgressLog) -> list[Cut]:
    """The micro-batches that are done, as far back as the checkpoint still tells where each begins."""
    last = log.committed
    done = [batch for batch in log.batches if last is not None and batch.number <= last]
    cuts = [_cut(log, batch) for batch in done]
    first = max((number + 1 for number, cut in enumerate(cuts) if cut is None), default=0)
    return [cut for cut in cuts[first:] if cut is not None]


def last_cuts(cuts: Sequence[Cut], offset_count: int) -> list[Cut]:
    """The last micro-batches, whole, that have about so many offsets; at least one."""
    kept: list[Cut] = []
    for cut in reversed(cuts):
        if kept and sum(each.offset_count for each in kept) + cut.offset_count > offset_count:
            break
        kept.append(cut)
    return kept[::-1]


def cuts_in(cuts: Sequence[Cut], span: Span) -> list[Cut]:
    """The micro-batches from the first to the last that have something of a part of the log."""
    found = [
        number for number, cut in enumerate(cuts) if any(_overlaps(cut, span, place) for place in cut.ends)
    ]
    return list(cuts[found[0] : found[-1] + 1]) if found else []


def span_of(cuts: Sequence[Cut]) -> Span:
    """The part of the log that micro-batches cover which follow each other."""
    ends = {place: end for cut in cuts for place, end in cut.ends.items()}
    starts: dict[tuple[str, int], int] = {}
    for cut in cuts:
        for place in cut.ends:
            starts.setdefault(place, cut.starts.get(place, 0))
    return Span(starts=starts, ends=ends)


def batches_of(rows: pa.Table, cuts: Sequence[Cut]) -> Longs:
    """Of each row, the place of its micro-batch among the cuts, or NONE."""
    sources = sources_of(rows, 0)
    assert sources.offsets is not None, "rows tell where they came from"
    found = np.full(len(rows), NONE, np.int64)
    for number, name in enumerate(sources.names):
        topic, _, partition = name.rpartition("-")
        own = np.flatnonzero(sources.numbers == number)
        for index, cut in enumerate(cuts):
            place = (topic, int(partition))
            if place in cut.ends:
                offsets = sources.offsets[own]
                is_in = (offsets >= cut.starts.get(place, 0)) & (offsets < cut.ends[place])
                found[own[is_in]] = index
    return found


def assumed_batches(rows: pa.Table, row_count: int) -> Longs:
    """The same for a log that nothing has processed, in pieces of so many rows."""
    sources = sources_of(rows, 0)
    assert sources.offsets is not None, "rows tell where they came from"
    written_us, _ = micros(
        pa.chunked_array([rows.column(METADATA_COLUMN).combine_chunks().field("timestamp")])
    )
    by_offset = np.lexsort((sources.offsets, sources.numbers))
    came_us = np.zeros(len(rows), np.int64)
    bounds = np.searchsorted(sources.numbers[by_offset], np.arange(len(sources.names) + 1))
    for start, end in pairwise(bounds.tolist()):
        own = by_offset[start:end]
        # Nothing is read before what lies in front of it.
        came_us[own] = np.maximum.accumulate(written_us[own])
    order = np.lexsort((sources.offsets, sources.numbers, came_us))
    found = np.empty(len(rows), np.int64)
    found[order] = np.arange(len(rows)) // row_count
    return found


def _cut(log: ProgressLog, batch: Batch) -> Cut | None:
    starts = log.start_of(batch)
    if starts is None:
        return None
    begins = {place: offset for source in starts for place, offset in source.items()}
    ends = {place: offset for source in batch.ends for place, offset in source.items()}
    # A partition that came later began at its first record.
    return Cut(batch=batch.number, starts={place: begins.get(place, 0) for place in ends}, ends=ends)


def _overlaps(cut: Cut, span: Span, place: tuple[str, int]) -> bool:
    if place not in span.ends:
        return False
    return max(cut.starts.get(place, 0), span.starts[place]) < min(cut.ends[place], span.ends[place])
