"""Retention and compaction of one partition, as steps that a thread takes.

What waits for the disk, or takes long, happens between the steps, on the thread. What changes the partition
is yielded as a call, and made on the event loop's thread, which hands the result back. So the loop never
waits, and nobody sees the partition change under its hands:

    decide     from what the partition's segments are now
    prepare    write the log's new start, or the compacted segment, durably
    publish    on the loop: the segments that go are no longer there for readers
    remove     the files of those segments

When the partition has changed meanwhile, publishing fails, and what was prepared is given up. Whoever takes
the steps holds the partition's `cleaning_lock`, and its `breathe` raises to stop them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from headrace.config import LONG_MAX
from headrace.failpoints import hit
from headrace.log.cleaned_transactions import CleanedTransactions
from headrace.log.compacted import read_compacted_below, write_compacted_below
from headrace.log.compaction import Compaction, read_keys
from headrace.log.compaction_plan import SealedSegment, group_by_size, plan_compaction
from headrace.log.disk import OpenRefused
from headrace.log.index import OFFSET_ENTRY_BYTES
from headrace.log.offset_map import OffsetMap
from headrace.log.retention import SegmentExtent, SegmentTimes, start_after_retention
from headrace.log.segment_cleaner import (
    SegmentCleaner,
    first_timestamp_ms,
    newest_timestamp_ms,
    read_batches,
)
from headrace.log.segment_swap import commit_swap, finish_swap, undo_swap

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.log.compaction_plan import Plan
    from headrace.log.disk import Disk
    from headrace.log.partition import PartitionLog
    from headrace.log.segment import Segment
    from headrace.log.segment_cleaner import CleanedSegment
    from headrace.log.transaction_index import AbortedTransaction

logger: Final = logging.getLogger(__name__)

Result = TypeVar("Result")
Steps = Generator[Callable[[], Any], Any, Result]


class _Place(NamedTuple):
    """Where a compacted segment belongs."""

    disk: Disk
    directory: Path
    base_offset: int
    end_offset: int


class PartitionCleaning:
    """What one partition's retention and compaction remember from one time to the next."""

    def __init__(self, log: PartitionLog, breathe: Callable[[], None]) -> None:
        self._log = log
        self._breathe = breathe
        self._disk = log.disk
        self._compacted_below: int | None = None
        self._times: WeakKeyDictionary[Segment, tuple[int, int]] = WeakKeyDictionary()

    def retain(self, now_ms: int) -> Steps[int]:
        """Delete what is due; return how many bytes of files went."""
        log = self._log
        settings = log.settings
        deleted_bytes = log.remove_deleted_files()
        if not settings.has_retention:
            return deleted_bytes
        if log.has_rolled:
            log.sync()
        # In this order: what is appended meanwhile makes the offset too low, never too high.
        end_offset, segments = log.end_offset, log.segments
        extents = _extents(segments, end_offset)
        start = start_after_retention(
            extents, settings, lambda number: self._segment_times(segments[number]), now_ms
        )
        if start is None:
            return deleted_bytes
        if start > segments[-1].base_offset:
            if not (yield from ask(lambda: log.roll_idle(start))):
                return deleted_bytes
            log.sync()
        change = yield from ask(lambda: log.begin_record_deletion(start))
        change.run()
        yield from ask(change.finish)
        retained_bytes = log.remove_deleted_files()
        logger.info(
            "%s: retention deleted %d bytes, up to offset %d", log.directory.name, retained_bytes, start
        )
        return deleted_bytes + retained_bytes

    def compact(self, now_ms: int, memory_bytes_max: int) -> Steps[int]:
        """Compact, if it is time to; return by how many bytes the partition became smaller.

        Raises CorruptBatch when a batch can't be read.
        """
        log = self._log
        if not log.settings.is_compacted:
            return 0
        yield from self._roll_if_late(now_ms)
        if log.has_rolled:
            log.sync()
        segments = _sealed(log.segments)
        plan = (yield from self._plan(segments, now_ms)) if segments else None
        if plan is None:
            return 0
        return (yield from self._compact(segments[: plan.segment_count], plan, now_ms, memory_bytes_max))

    def _roll_if_late(self, now_ms: int) -> Steps[None]:
        """Roll an idle segment that would otherwise never be compacted, however long it waits."""
        log = self._log
        end_offset, active = log.end_offset, log.segments[-1]
        lag_ms_max = log.settings.max_compaction_lag_ms
        if lag_ms_max == LONG_MAX or not active.size_bytes:
            return
        if 0 <= first_timestamp_ms(self._disk, active) < now_ms - lag_ms_max:
            yield from ask(lambda: log.roll_idle(end_offset))

    def _plan(self, segments: Sequence[Segment], now_ms: int) -> Steps[Plan | None]:
        log = self._log
        if self._compacted_below is None:
            self._compacted_below = read_compacted_below(self._disk, log.directory)
        if self._compacted_below == segments[-1].next_offset:
            return None
        stable = yield from ask(lambda: log.last_stable_offset(log.durable_offset))
        return plan_compaction(
            self._describe(segments),
            log.settings,
            compacted_below=self._compacted_below,
            last_stable_offset=stable,
            now_ms=now_ms,
        )

    def _compact(
        self, segments: Sequence[Segment], plan: Plan, now_ms: int, memory_bytes_max: int
    ) -> Steps[int]:
        log = self._log
        settings = log.settings
        log.make_active_file()
        aborted = yield from ask(lambda: log.aborted_transactions(segments[0].base_offset, plan.end_offset))
        last_words = yield from ask(log.last_words)
        offset_map = self._read_keys(segments, plan, aborted, memory_bytes_max)
        compaction = Compaction(
            offset_map=offset_map,
            transactions=CleanedTransactions(aborted),
            last_words=last_words,
            end_offset=plan.end_offset,
            now_ms=now_ms,
            delete_retention_ms=settings.delete_retention_ms,
        )
        cleaner = SegmentCleaner(
            self._disk, log.directory, compaction, settings.index_interval_bytes, self._breathe
        )
        saved_bytes = 0
        for group in group_by_size(self._describe(segments), settings):
            replaced = segments[group.start : group.stop]
            end_offset = segments[group.stop].base_offset if group.stop < len(segments) else plan.end_offset
            cleaned = cleaner.clean(replaced)
            if not cleaned.is_changed:
                cleaner.discard(cleaned)
                continue
            if not (yield from self._swap(replaced, end_offset, cleaned)):
                return saved_bytes
            saved_bytes += sum(segment.size_bytes for segment in replaced) - cleaned.size_bytes
        self._compacted_below = min(offset_map.latest_offset + 1, plan.end_offset)
        write_compacted_below(self._disk, log.directory, self._compacted_below)
        logger.info(
            "%s: compacted up to offset %d, %d bytes less",
            log.directory.name,
            self._compacted_below,
            saved_bytes,
        )
        return saved_bytes

    def _read_keys(
        self,
        segments: Sequence[Segment],
        plan: Plan,
        aborted: Sequence[AbortedTransaction],
        memory_bytes_max: int,
    ) -> OffsetMap:
        offset_map = OffsetMap(memory_bytes_max)
        first_dirty = plan.first_dirty_offset
        count_before = max(
            (number for number, each in enumerate(segments) if each.base_offset <= first_dirty), default=0
        )
        batches = read_batches(self._disk, segments[count_before:], self._breathe)
        transactions = CleanedTransactions(each for each in aborted if each.last_offset >= first_dirty)
        read_keys(batches, transactions, offset_map, first_dirty)
        return offset_map

    def _swap(self, replaced: Sequence[Segment], end_offset: int, cleaned: CleanedSegment) -> Steps[bool]:
        """Let a compacted segment take its place; False when the segments have changed meanwhile."""
        log = self._log
        place = _Place(self._disk, log.directory, replaced[0].base_offset, end_offset)
        segment = None
        try:
            hit("log.compact")
            self._commit(place)
            hit("log.compacted")
            segment = yield from ask(lambda: log.show_cleaned(replaced, cleaned))
        finally:
            if segment is None:
                self._disk.close(cleaned.file)
        if segment is None:
            self._undo(place)
            return False
        self._finish(place)
        yield from ask(lambda: log.settle(segment))
        return True

    def _commit(self, place: _Place) -> None:
        try:
            with self._log.names_lock:
                commit_swap(*place)
        except OpenRefused:
            raise
        except OSError:
            # It may count or not; that has to be certain before anything else is compacted.
            self._undo(place)
            raise

    def _undo(self, place: _Place) -> None:
        try:
            with self._log.names_lock:
                undo_swap(*place)
        except OSError as error:
            raise self._log.fail(f"giving up a compacted segment of {place.directory}", error) from error

    def _finish(self, place: _Place) -> None:
        while True:
            try:
                with self._log.names_lock:
                    finish_swap(*place)
            except OpenRefused:
                # There will be room for an open file again; until then readers have the one that is open.
                self._breathe()
            except OSError as error:
                raise self._log.fail(f"putting a compacted segment into {place.directory}", error) from error
            else:
                return

    def _segment_times(self, segment: Segment) -> SegmentTimes:
        return SegmentTimes(
            newest_ms=self._times_of(segment)[1], written_ms=self._disk.modified_ms(segment.path)
        )

    def _times_of(self, segment: Segment) -> tuple[int, int]:
        """The first batch's time and the newest; those of a sealed segment never change."""
        known = self._times.get(segment)
        if known is not None:
            return known
        index = segment.indexes.known
        newest_ms = (
            newest_timestamp_ms(self._disk, self._log.directory, segment)
            if index is None
            else index.max_timestamp.timestamp_ms
        )
        times = first_timestamp_ms(self._disk, segment), newest_ms
        if segment.is_sealed:
            self._times[segment] = times
        return times

    def _describe(self, segments: Sequence[Segment]) -> list[SealedSegment]:
        described = []
        ends = [segment.base_offset for segment in segments[1:]] + [segments[-1].next_offset]
        for segment, end_offset in zip(segments, ends, strict=True):
            first_ms, newest_ms = self._times_of(segment)
            described.append(
                SealedSegment(
                    base_offset=segment.base_offset,
                    end_offset=end_offset,
                    size_bytes=segment.size_bytes,
                    index_bytes=segment.size_bytes
                    // max(self._log.settings.index_interval_bytes, 1)
                    * OFFSET_ENTRY_BYTES,
                    first_ms=first_ms,
                    newest_ms=newest_ms,
                )
            )
        return described


def take_steps(
    steps: Steps[Result], call: Callable[[Callable[[], Any]], Any] = lambda step: step()
) -> Result:
    """Take all steps; `call` makes the calls that belong to the event loop's thread."""
    result: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = steps.send(result) if error is None else steps.throw(error)
        except StopIteration as end:
            value: Result = end.value
            return value
        try:
            result, error = call(step), None
        except Exception as raised:  # noqa: BLE001  # Whatever it is, the steps get it.
            error = raised


def ask(call: Callable[[], Result]) -> Steps[Result]:
    """Have a call made on the event loop's thread."""
    result: Result = yield call
    return result


def _sealed(segments: tuple[Segment, ...]) -> list[Segment]:
    """The sealed ones from the first on, without the active one."""
    sealed = []
    for segment in segments[:-1]:
        if not segment.is_sealed:
            break
        sealed.append(segment)
    return sealed


def _extents(segments: tuple[Segment, ...], end_offset: int) -> list[SegmentExtent]:
    """The sealed segments and, after them, the active one, if it is not empty."""
    sealed = _sealed(segments)
    counted = [*sealed, *(each for each in segments[len(sealed) :] if each.size_bytes)]
    ends = [*(each.base_offset for each in segments[1:]), end_offset]
    if len(sealed) < len(segments) - 1:
        # Segments that wait to be sealed come between: what is after them has to wait, too.
        counted = list(sealed)
    return [
        SegmentExtent(base_offset=each.base_offset, end_offset=end, size_bytes=each.size_bytes)
        for each, end in zip(counted, ends, strict=False)
    ]
