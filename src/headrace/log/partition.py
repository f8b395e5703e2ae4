"""One partition: an append-only sequence of batches, numbered by offset, kept in segments.

    start_offset <= durable_offset <= end_offset

`append` writes and returns; `sync` makes durable what has been written so far, for many appends at once. An
append is promised to nobody until `durable_offset` is past it. After a crash, everything below
`durable_offset` is there, byte for byte, and what is there beyond it is a prefix of what was appended.

A sync for which no file could be opened is no failed sync: nothing becomes durable, and the next one does all
of it. A failed write or sync stops all writes for good (see failure.py); reads go on up to `end_offset`.
"""

from __future__ import annotations

import logging
from random import Random
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from headrace.errors import CorruptBatch, OffsetOutOfRange, PartitionClosed
from headrace.failpoints import hit
from headrace.log.batch import Batch, place, place_plain, read_header, split_batches, with_base_offset
from headrace.log.checkpoints import Checkpoints
from headrace.log.compaction import LastWord
from headrace.log.disk import SYSTEM_DISK
from headrace.log.durable_file import make_directory_durably
from headrace.log.failure import FailStop, storage_error
from headrace.log.index import NO_TIMESTAMP
from headrace.log.intake import Intake
from headrace.log.log_start import remove_deleted
from headrace.log.marker import Marker, encode_marker
from headrace.log.open_files import OpenFiles
from headrace.log.producers import ACCEPT, Duplicate, ProducerStates, apply_batch
from headrace.log.record_deletion import LogStart
from headrace.log.recovery import Recovery
from headrace.log.replay import rebuild_transaction_index
from headrace.log.rolling import Rolling
from headrace.log.segment import Segment
from headrace.log.segment_list import SegmentList
from headrace.log.segment_swap import finish_swaps
from headrace.log.storage import Storage
from headrace.log.timestamps import TimestampedOffset, first_record_since
from headrace.log.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from headrace.clock import Clock
    from headrace.errors import StorageError
    from headrace.log.batch import BatchHeader
    from headrace.log.change import Change
    from headrace.log.disk import Buffer, Disk
    from headrace.log.producers import ProducerInfo
    from headrace.log.recovery import CutTail
    from headrace.log.segment_cleaner import CleanedSegment
    from headrace.log.stored_batches import StoredBatches
    from headrace.log.topic_settings import TopicSettings
    from headrace.log.transaction_index import AbortedTransaction, TransactionIndex

logger: Final = logging.getLogger(__name__)

_Found = TypeVar("_Found")


class Appended(NamedTuple):
    """Where batches have been written, or, for a duplicate, where they had been written before."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    duplicate: bool = False
    log_append_time_ms: int = NO_TIMESTAMP
    """The timestamp that the records got, where the topic has append time."""


class PartitionLog:
    """One partition on disk.

    Used from one thread, the event loop, but for `sync`, which may run in another at the same time.
    """

    def __init__(
        self,
        directory: Path,
        settings: TopicSettings,
        clock: Clock,
        storage: Storage,
        *,
        recovery_point: int,
    ) -> None:
        self.directory = directory
        self._settings = settings
        self._intake = Intake(settings)
        self._clock = clock
        self._storage = storage
        self._fail_stop = storage.fail_stop
        self._producers = ProducerStates(expiration_s=storage.producer_expiration_ms / 1000)
        finish_swaps(storage.disk, directory)
        log_start_offset = remove_deleted(storage.disk, directory)
        recovered = Recovery(
            directory,
            settings,
            self._producers,
            storage,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            now_s=clock.monotonic_s(),
        ).run()
        self.cut: CutTail | None = recovered.cut
        self._segments = SegmentList(recovered.segments, self._new_segment)
        self._log_start = LogStart(directory, storage, self._segments, log_start_offset)
        self._end_offset = self._segments.active.next_offset
        # Not from the log's start, which may be the end of a segment that has to be synced.
        self._durable_offset = self._segments.base_offset
        self._segments.active.begun_ms = clock.now_ms()
        self._rolling = self._new_rolling()
        self._sync_lock = Lock()
        self.cleaning_lock = Lock()
        """Held by whoever retains or compacts, for as long as that takes; who is to stop when it retires."""
        self.is_retiring = False
        """Whether the log is about to be closed."""
        self._is_closed = False
        self._checkpoints = Checkpoints(
            directory,
            storage.disk,
            self._producers,
            unchecked_bytes=recovered.unchecked_bytes,
            last_offset=recovered.checkpoint_offset,
            rolled=recovered.rolled,
        )
        self._wants_checkpoint = (
            not recovered.is_complete or recovered.unchecked_bytes >= storage.checkpoint_bytes
        )
        self.traffic = Traffic()

    @classmethod
    def open(
        cls,
        directory: Path,
        settings: TopicSettings,
        clock: Clock,
        *,
        disk: Disk = SYSTEM_DISK,
        storage: Storage | None = None,
    ) -> PartitionLog:
        """Open a partition, making it when it is missing, and recover what a crash has left."""
        storage = storage or Storage(disk=disk, files=OpenFiles(disk), fail_stop=FailStop())
        try:
            make_directory_durably(storage.disk, directory)
        except OSError as error:
            raise storage_error(f"making the directory {directory}", error) from error
        try:
            return cls.open_existing(directory, settings, clock, storage)
        except BaseException:
            storage.files.close_all()
            raise

    @classmethod
    def open_existing(
        cls,
        directory: Path,
        settings: TopicSettings,
        clock: Clock,
        storage: Storage,
        *,
        recovery_point: int = 0,
    ) -> PartitionLog:
        """Open a partition whose directory is there and durable, and recover what a crash has left.

        Everything below the recovery point, an offset, is known to be durable.
        """
        try:
            log = cls(directory, settings, clock, storage, recovery_point=recovery_point)
        except OSError as error:
            raise storage_error(f"opening the partition in {directory}", error) from error
        if log.cut is not None:
            logger.warning("%s", log.cut)
        # After a crash of the process alone, what was found may be in the page cache only.
        log.sync()
        if log._wants_checkpoint:
            log._checkpoints.capture(log._segments.active)
            log.checkpoint()
        # Many partitions may be idle: a file stays open only once it is used.
        for segment in log._segments:
            segment.close()
        return log

    @property
    def settings(self) -> TopicSettings:
        """The topic's settings."""
        return self._settings

    def change_settings(self, settings: TopicSettings) -> None:
        """Take other settings for what is done from now on."""
        self._settings = settings
        self._intake = Intake(settings)
        self._rolling = self._new_rolling()

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return max(self._log_start.offset, self._segments.base_offset)

    @property
    def end_offset(self) -> int:
        """The offset that the next record will get."""
        return self._end_offset

    @property
    def durable_offset(self) -> int:
        """All records below this offset would survive a loss of power."""
        return self._durable_offset

    @property
    def extent(self) -> tuple[int, int, int, bool]:
        """What whoever has read to the end can look at: while this stays, there is nothing new for it."""
        return self._end_offset, self._durable_offset, self.start_offset, self._is_closed

    @property
    def size_bytes(self) -> int:
        """The bytes of all batches."""
        return sum(segment.size_bytes for segment in self._segments)

    def append(
        self, records: bytes | memoryview, *, size_bytes_max: int, is_sequenced: bool = True
    ) -> Appended:
        """Check batches, give them the next offsets and write them, without waiting for the disk.

        The first transactional batch of a producer opens its transaction in this partition. What the broker
        itself writes in the name of a producer, such as the offsets of a transaction, has no sequence.

        Raises CorruptBatch, BatchTooLarge, InvalidRecord, InvalidTimestamp, OutOfOrderSequence,
        InvalidProducerEpoch, InvalidTransactionState, PartitionClosed or, when the disk fails or has failed,
        StorageError.
        """
        if self._is_closed or self._fail_stop.failed is not None:
            self._require_open()
            self._fail_stop.check()
        now_ms = self._clock.now_ms()
        base_offset = self._end_offset
        plain = place_plain(records, base_offset, size_bytes_max)
        if plain is not None and self._takes_as_it_is(plain[0], now_ms):
            self._write_placed([plain[0]], plain[1], len(records))
            return Appended(base_offset, self._end_offset - 1, now_ms)
        batches = split_batches(records, size_bytes_max, is_sequenced=is_sequenced)
        duplicate = self._find_duplicate(batches)
        has_append_time = self._intake.takes_append_time
        if duplicate is not None:
            return Appended(
                base_offset=duplicate.base_offset,
                last_offset=duplicate.last_offset,
                append_time_ms=now_ms,
                duplicate=True,
                log_append_time_ms=duplicate.timestamp_ms if has_append_time else NO_TIMESTAMP,
            )
        self._write(self._intake.admit(batches, now_ms, size_bytes_max))
        return Appended(
            base_offset=base_offset,
            last_offset=self._end_offset - 1,
            append_time_ms=now_ms,
            log_append_time_ms=now_ms if has_append_time else NO_TIMESTAMP,
        )

    def append_marker(
        self, producer_id: int, producer_epoch: int, *, commits: bool, coordinator_epoch: int = 0
    ) -> Appended:
        """Write the control batch that ends the producer's transaction, without waiting for the disk.

        When no transaction is open, the marker is written all the same: its epoch counts.

        Raises InvalidProducerEpoch, TransactionCoordinatorFenced, PartitionClosed or, when the disk fails or
        has failed, StorageError.
        """
        self._require_open()
        self._fail_stop.check()
        self._producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        marker = Marker(commits=commits, coordinator_epoch=coordinator_epoch)
        now_ms = self._clock.now_ms()
        data = memoryview(
            encode_marker(marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=now_ms)
        )
        offset = self._end_offset
        self._write([Batch(read_header(data), data)], marker)
        return Appended(base_offset=offset, last_offset=offset, append_time_ms=now_ms)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset below which no transaction is open, nor has ended above the high watermark."""
        stable = self._producers.transactions.last_stable_offset(high_watermark)
        # What an open transaction wrote first may have been deleted.
        return max(stable, min(self.start_offset, high_watermark))

    def aborted_transactions(self, from_offset: int, below_offset: int) -> list[AbortedTransaction]:
        """Those aborted transactions that overlap a range of offsets, in the order of their markers."""
        self._require_open()
        found: list[AbortedTransaction] = []
        try:
            for segment in self._segments.from_offset(from_offset):
                if self._transaction_index(segment).collect(from_offset, below_offset, found):
                    break
        except OSError as error:
            raise storage_error(f"searching {self.directory} for aborted transactions", error) from error
        return found

    def knows_producer(self, producer_id: int) -> bool:
        """Whether the producer has written here, not too long ago, or a marker has named it."""
        return producer_id in self._producers

    def open_transaction_of(self, producer_id: int) -> int | None:
        """The first offset of the producer's open transaction."""
        return self._producers.transactions.first_offset_of(producer_id)

    def producers(self) -> list[ProducerInfo]:
        """The producers that this partition knows, the one that wrote longest ago first."""
        return self._producers.infos(self._clock.monotonic_s())

    def read(self, offset: int, *, size_bytes_max: int, below_offset: int | None = None) -> bytes:
        """Whole batches, the first of them the one that has the offset; empty at the end of the log.

        At least one batch comes, however small the maximum is. None comes that reaches `below_offset`.
        """
        return self._first_found(
            offset,
            below_offset,
            lambda segment, stop: segment.read(offset, size_bytes_max=size_bytes_max, below_offset=stop),
        )

    def lend(
        self, offset: int, *, size_bytes_max: int, below_offset: int | None = None
    ) -> bytes | StoredBatches:
        """The same as `read`, but unread where there is much: to be read before anything else happens."""
        return self._first_found(
            offset,
            below_offset,
            lambda segment, stop: segment.lend(offset, size_bytes_max=size_bytes_max, below_offset=stop),
        )

    def _first_found(
        self, offset: int, below_offset: int | None, look: Callable[[Segment, int], _Found]
    ) -> _Found | bytes:
        """What the first segment gives that has the offset or something after it, up to where to stop."""
        self._require_open()
        if not self.start_offset <= offset <= self._end_offset:
            raise OffsetOutOfRange(
                f"{self.directory.name} has offsets {self.start_offset} to {self._end_offset}, not {offset}"
            )
        stop = self._end_offset if below_offset is None else min(below_offset, self._end_offset)
        if offset >= stop:
            return b""
        try:
            for segment in self._segments.from_offset(offset):
                if found := look(segment, stop):
                    return found
        except OSError as error:
            raise storage_error(f"reading {self.directory} at offset {offset}", error) from error
        return b""

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampedOffset | None:
        """The first record, in the order of offsets, that has this timestamp or a later one."""
        self._require_open()
        try:
            for segment in self._segments:
                offset = self.start_offset
                while (batch := segment.first_batch_since(timestamp_ms, offset)) is not None:
                    if (found := first_record_since(batch, timestamp_ms, offset)) is not None:
                        return found
                    offset = read_header(batch).last_offset + 1
        except OSError as error:
            raise storage_error(f"searching {self.directory} by time", error) from error
        return None

    def max_timestamp(self) -> TimestampedOffset | None:
        """The first record that has the highest timestamp of all; None when no record has one."""
        self._require_open()
        try:
            highest = max(segment.max_timestamp(self.start_offset) for segment in self._segments)
        except OSError as error:
            raise storage_error(f"searching {self.directory} by time", error) from error
        return None if highest == NO_TIMESTAMP else self.offset_for_timestamp(highest)

    def sync(self) -> None:
        """Make durable what was appended before the call. May run in another thread than `append`."""
        with self._sync_lock:
            self._require_open()
            self._fail_stop.check()
            # The order matters: a batch below this offset has been written, to a segment that is listed.
            end_offset = self._end_offset
            unsealed = self._segments.unsealed
            if end_offset == self._durable_offset and len(unsealed) == 1:
                return
            try:
                hit("log.sync")
                self._sync_segments(unsealed)
                hit("log.synced")
            except OSError as error:
                raise self._fail_stop.fail(f"syncing {self.directory}", error) from error
            self._durable_offset = end_offset

    @property
    def is_being_written(self) -> bool:
        """Whether a thread syncs the log, or writes its checkpoint: another one that wants to has to wait."""
        return self._sync_lock.locked() or self._checkpoints.lock.locked()

    def checkpoint(self) -> None:
        """Sync, and write the checkpoint that is due. May run in another thread than `append`."""
        # One that is captured while the sync runs speaks of more than that sync makes durable.
        captured = self._checkpoints.captured
        self.sync()
        try:
            self._checkpoints.write(captured, self._segments.base_offsets)
        except OSError as error:
            raise self._fail_stop.fail(f"making a checkpoint of {self.directory}", error) from error

    def begin_record_deletion(self, before_offset: int) -> Change[int]:
        """Delete all records below an offset; the change's outcome is where the log begins then.

        They are gone for good, and for readers, once the change has been finished. Whole segments of them
        lose their files when `remove_deleted_files` is called next.

        Raises OffsetOutOfRange when the log does not reach so far.
        """
        self._require_open()
        self._fail_stop.check()
        if not 0 <= before_offset <= self._end_offset:
            raise OffsetOutOfRange(
                f"{self.directory.name} has offsets {self.start_offset} to {self._end_offset}, "
                f"so nothing can be deleted up to {before_offset}"
            )
        return self._log_start.begin_move(before_offset, self._require_open)

    def delete_records(self, before_offset: int) -> int:
        """Delete all records below an offset, waiting for the disk; return where the log begins then."""
        change = self.begin_record_deletion(before_offset)
        change.run()
        start_offset = change.finish()
        self.remove_deleted_files()
        return start_offset

    def remove_deleted_files(self) -> int:
        """Remove the files of segments that were deleted; return how many bytes. For another thread."""
        with self.names_lock:
            return 0 if self._is_closed else self._log_start.remove_files()

    @property
    def names_lock(self) -> Lock:
        """Held by whoever removes or renames segments' files, or moves the log's start."""
        return self._log_start.names_lock

    def make_active_file(self) -> None:
        """Make sure that a segment is found after those that are compacted. For another thread."""
        self._log_start.make_active_file()

    @property
    def disk(self) -> Disk:
        """Where the log lies."""
        return self._storage.disk

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, the last of them active, as they are now. May be asked on any thread."""
        return self._segments.all

    @property
    def has_rolled(self) -> bool:
        """Whether a segment waits to be sealed by the next sync. May be asked on any thread."""
        return len(self._segments.unsealed) > 1

    def roll_idle(self, end_offset: int) -> bool:
        """Begin a new segment, unless the active one is empty or the log has grown past the offset."""
        self._require_open()
        if self._end_offset != end_offset or not self._segments.active.size_bytes:
            return False
        self._roll()
        return True

    def last_words(self) -> dict[int, LastWord]:
        """By producer that may go on, what it wrote last, for compaction to keep."""
        known = {info.producer_id for info in self.producers()}
        return {
            producer_id: LastWord(
                producer_epoch=producer.epoch,
                last_offset=producer.batches[-1].duplicate.last_offset if producer.batches else None,
            )
            for producer_id, producer in self._producers.freeze().producers.items()
            if producer_id in known
        }

    def show_cleaned(self, replaced: Sequence[Segment], cleaned: CleanedSegment) -> Segment | None:
        """Let a compacted segment take the place of others; None when these are not all there any more.

        Its file stays open until `settle` says that it has its name.
        """
        self._require_open()
        return self._segments.replace(replaced, cleaned)

    @property
    def failed(self) -> StorageError | None:
        """The first failed write or sync of the whole store; no write is taken after it."""
        return self._fail_stop.failed

    def fail(self, doing: str, error: OSError) -> StorageError:
        """Take no more writes, here and in the whole store; return the error to raise."""
        return self._fail_stop.fail(doing, error)

    def settle(self, segment: Segment) -> None:
        """Note that a compacted segment's file has its name."""
        segment.is_pinned = False

    def close(self, *, sync: bool = True) -> None:
        """Sync what is not yet durable, unless the disk has failed, and close the files."""
        if sync and not self._is_closed and self._fail_stop.failed is None:
            if self._checkpoints.is_worth_it:
                self._checkpoints.capture(self._segments.active)
            self.checkpoint()
        self.retire()
        for segment in self._segments:
            segment.close()

    def retire(self) -> None:
        """Refuse all further calls, once a sync that is running has ended. May be called on any thread."""
        self.is_retiring = True
        with self.cleaning_lock, self._sync_lock, self.names_lock, self._checkpoints.lock:
            self._is_closed = True
            self._checkpoints.forget()

    def _require_open(self) -> None:
        if self._is_closed:
            raise PartitionClosed(f"the partition {self.directory.name} is closed, or its topic deleted")

    def _takes_as_it_is(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether a plain batch is neither to be changed nor a duplicate; may raise what `append` does."""
        if not self._intake.takes_plain(header.max_timestamp_ms, now_ms):
            return False
        return header.producer_id < 0 or self._producers.check(header) is ACCEPT

    def _find_duplicate(self, batches: list[Batch]) -> Duplicate | None:
        if len(batches) > 1 and any(batch.header.is_idempotent for batch in batches):
            raise CorruptBatch(f"{len(batches)} batches of an idempotent producer came at once; send one")
        outcome = self._producers.check(batches[0].header)
        return outcome if isinstance(outcome, Duplicate) else None

    def _write(self, batches: list[Batch], marker: Marker | None = None) -> None:
        offset = self._end_offset
        size_bytes = 0
        headers = []
        buffers: list[Buffer] = []
        for batch in batches:
            header = place(batch.header, offset)
            headers.append(header)
            buffers += with_base_offset(batch, offset)
            offset += header.last_offset_delta + 1
            size_bytes += header.size_bytes
        self._write_placed(headers, buffers, size_bytes, marker)

    def _write_placed(
        self,
        headers: list[BatchHeader],
        buffers: Sequence[Buffer],
        size_bytes: int,
        marker: Marker | None = None,
    ) -> None:
        try:
            segment = self._segments.active
            if self._rolling.is_due(segment, headers, size_bytes, self._clock):
                segment = self._roll()
            segment.open()
        except OSError as error:
            raise storage_error(f"opening {self._segments.active.path}", error) from error
        try:
            segment.append(headers, buffers)
        except OSError as error:
            raise self._fail_stop.fail(f"appending to {segment.path}", error) from error
        for header in headers:
            if header.producer_id >= 0:
                now_s = self._clock.monotonic_s()
                apply_batch(self._producers, segment.transaction_index, header, marker, now_s=now_s)
        self._end_offset = segment.next_offset
        if self._checkpoints.appended(size_bytes) >= self._storage.checkpoint_bytes:
            self._checkpoints.capture(segment)
            self._storage.on_checkpoint_due(self)

    def _roll(self) -> Segment:
        hit("log.roll")
        self._segments.active.growing_index.seal()
        self._checkpoints.rolled(self._end_offset)
        segment = self._segments.begin(self._end_offset)
        segment.begun_ms = self._clock.now_ms()
        self._rolling = self._new_rolling()
        self._storage.on_checkpoint_due(self)
        return segment

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment(
            self.directory,
            base_offset,
            disk=self._storage.disk,
            files=self._storage.files,
            index_interval_bytes=self._settings.index_interval_bytes,
        )

    def _new_rolling(self) -> Rolling:
        """What says when the active segment is full."""
        # Chance spreads the work, but it is the same chance each time, so that a simulation can be repeated.
        seed = f"{self.directory.name} {self._segments.active.base_offset}"
        return Rolling(self._settings, Random(seed))  # noqa: S311  # Nothing is secret about it.

    def _sync_segments(self, unsealed: list[Segment]) -> None:
        """Sync segments in their order; all but the last have been rolled, and are sealed."""
        for segment in unsealed[:-1]:
            segment.sync()
            self._seal(segment)
            self._segments.sealed(segment)
        unsealed[-1].sync()

    def _seal(self, segment: Segment) -> None:
        successor = next(each for each in self._segments if each.base_offset > segment.base_offset)
        self._checkpoints.seal(segment, successor, self._segments.base_offsets)

    def _transaction_index(self, segment: Segment) -> TransactionIndex:
        """A segment's transaction index; one that is damaged is made again."""
        try:
            return segment.transaction_index
        except CorruptBatch as error:
            logger.warning("what was aborted in %s is learnt from its batches: %s", segment.path, error)
        segment.transaction_index = rebuild_transaction_index(
            self._storage.disk, self.directory, self._segments.all, segment
        )
        return segment.transaction_index
