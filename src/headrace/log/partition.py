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
from threading import Lock
from typing import TYPE_CHECKING, Final

from headrace.errors import OffsetOutOfRange, PartitionClosed
from headrace.log.appending import Appending
from headrace.log.checkpoints import Checkpoints
from headrace.log.compaction import last_words
from headrace.log.durability import Durability
from headrace.log.failure import storage_error
from headrace.log.log_start import remove_deleted
from headrace.log.marker import Marker
from headrace.log.partition_reading import PartitionReading
from headrace.log.partition_search import PartitionSearch
from headrace.log.producers import ProducerStates
from headrace.log.record_deletion import LogStart
from headrace.log.recovery import Recovery
from headrace.log.segment import Segment
from headrace.log.segment_list import SegmentList
from headrace.log.segment_swap import finish_swaps
from headrace.log.timestamps import TimestampedOffset
from headrace.log.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.clock import Clock
    from headrace.errors import StorageError
    from headrace.log.appending import Appended
    from headrace.log.change import Change
    from headrace.log.compaction import LastWord
    from headrace.log.disk import Disk
    from headrace.log.producers import ProducerInfo
    from headrace.log.recovery import CutTail, Recovered
    from headrace.log.segment_cleaner import CleanedSegment
    from headrace.log.storage import Storage
    from headrace.log.stored_batches import StoredBatches
    from headrace.log.topic_settings import TopicSettings
    from headrace.log.transaction_index import AbortedTransaction

logger: Final = logging.getLogger(__name__)


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
        recovered: Recovered,
    ) -> None:
        self.directory = directory
        self._settings = settings
        self._clock = clock
        self._storage = storage
        self._fail_stop = storage.fail_stop
        self._producers = recovered.producers
        self.cut: CutTail | None = recovered.cut
        self._segments = SegmentList(recovered.segments, self._new_segment)
        self._log_start = LogStart(directory, storage, self._segments, recovered.log_start_offset)
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
        self._appending = Appending(
            self._segments,
            settings,
            self._producers,
            self._checkpoints,
            clock=clock,
            storage=storage,
            on_checkpoint_due=lambda: storage.on_checkpoint_due(self),
        )
        self._durability = Durability(
            directory,
            self._segments,
            self._checkpoints,
            storage.fail_stop,
            end_offset=lambda: self.end_offset,
            require_open=self._require_open,
        )
        self._search = PartitionSearch(directory, storage.disk, self._segments)
        self._reading = PartitionReading(
            directory, self._segments, extent=lambda: (self.start_offset, self.end_offset)
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
        storage: Storage,
        *,
        recovery_point: int = 0,
    ) -> PartitionLog:
        """Open a partition whose directory is there and durable, and recover what a crash has left.

        Everything below the recovery point, an offset, is known to be durable.
        """
        try:
            recovered = _recovered(directory, settings, clock, storage, recovery_point)
            log = cls(directory, settings, clock, storage, recovered)
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
        self._appending.change_settings(settings)

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return max(self._log_start.offset, self._segments.base_offset)

    @property
    def end_offset(self) -> int:
        """The offset that the next record will get."""
        return self._appending.end_offset

    @property
    def durable_offset(self) -> int:
        """All records below this offset would survive a loss of power."""
        return self._durability.offset

    @property
    def extent(self) -> tuple[int, int, int, bool]:
        """What whoever has read to the end can look at: while this stays, there is nothing new for it."""
        return self._appending.end_offset, self._durability.offset, self.start_offset, self._is_closed

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
        return self._appending.append(records, size_bytes_max=size_bytes_max, is_sequenced=is_sequenced)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commits: bool,
        coordinator_epoch: int = 0,
        is_settled: bool = False,
    ) -> Appended:
        """Write the control batch that ends the producer's transaction, without waiting for the disk.

        When no transaction is open, the marker is written all the same: its epoch counts. A marker that is
        settled lets committed readers go on before it is durable: its writer has the outcome and the records
        on disk, and writes it again after a crash.

        Raises InvalidProducerEpoch, TransactionCoordinatorFenced, PartitionClosed or, when the disk fails or
        has failed, StorageError.
        """
        self._require_open()
        self._fail_stop.check()
        marker = Marker(commits=commits, coordinator_epoch=coordinator_epoch, is_settled=is_settled)
        return self._appending.append_marker(marker, producer_id, producer_epoch)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset below which no transaction is open, nor has ended above the high watermark."""
        stable = self._producers.transactions.last_stable_offset(high_watermark)
        # What an open transaction wrote first may have been deleted.
        return max(stable, min(self.start_offset, high_watermark))

    def aborted_transactions(self, from_offset: int, below_offset: int) -> list[AbortedTransaction]:
        """Those aborted transactions that overlap a range of offsets, in the order of their markers."""
        self._require_open()
        return self._search.aborted_transactions(from_offset, below_offset)

    def knows_producer(self, producer_id: int) -> bool:
        """Whether the producer has written here, not too long ago, or a marker has named it."""
        return producer_id in self._producers

    def producers(self) -> list[ProducerInfo]:
        """The producers that this partition knows, the one that wrote longest ago first."""
        return self._producers.infos(self._clock.monotonic_s())

    def read(self, offset: int, *, size_bytes_max: int, below_offset: int | None = None) -> bytes:
        """Whole batches, the first of them the one that has the offset; empty at the end of the log.

        At least one batch comes, however small the maximum is. None comes that reaches `below_offset`.
        """
        self._require_open()
        return self._reading.read(offset, size_bytes_max=size_bytes_max, below_offset=below_offset)

    def lend(
        self, offset: int, *, size_bytes_max: int, below_offset: int | None = None
    ) -> bytes | StoredBatches:
        """The same as `read`, but unread where there is much: to be read before anything else happens."""
        self._require_open()
        return self._reading.lend(offset, size_bytes_max=size_bytes_max, below_offset=below_offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampedOffset | None:
        """The first record, in the order of offsets, that has this timestamp or a later one."""
        self._require_open()
        return self._search.offset_for_timestamp(timestamp_ms, self.start_offset)

    def max_timestamp(self) -> TimestampedOffset | None:
        """The first record that has the highest timestamp of all; None when no record has one."""
        self._require_open()
        return self._search.max_timestamp(self.start_offset)

    def sync(self) -> None:
        """Make durable what was appended before the call. May run in another thread than `append`."""
        self._durability.sync()

    def checkpoint(self) -> None:
        """Sync, and write the checkpoint that is due. May run in another thread than `append`."""
        self._durability.checkpoint()

    @property
    def is_being_written(self) -> bool:
        """Whether a thread syncs the log, or writes its checkpoint: another one that wants to has to wait."""
        return self._durability.lock.locked() or self._checkpoints.lock.locked()

    def begin_record_deletion(self, before_offset: int) -> Change[int]:
        """Delete all records below an offset; the change's outcome is where the log begins then.

        They are gone for good, and for readers, once the change has been finished. Whole segments of them
        lose their files when `remove_deleted_files` is called next.

        Raises OffsetOutOfRange when the log does not reach so far.
        """
        self._require_open()
        self._fail_stop.check()
        if not 0 <= before_offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"{self.directory.name} has offsets {self.start_offset} to {self.end_offset}, "
                f"so nothing can be deleted up to {before_offset}"
            )
        return self._log_start.begin_move(before_offset, self._require_open)

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
        if self.end_offset != end_offset or not self._segments.active.size_bytes:
            return False
        self._appending.roll()
        return True

    def last_words(self) -> dict[int, LastWord]:
        """By producer that may go on, what it wrote last, for compaction to keep."""
        return last_words(self._producers, self._clock.monotonic_s())

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
        with self.cleaning_lock, self._durability.lock, self.names_lock, self._checkpoints.lock:
            self._is_closed = True
            self._checkpoints.forget()

    def _require_open(self) -> None:
        if self._is_closed:
            raise PartitionClosed(f"the partition {self.directory.name} is closed, or its topic deleted")

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment(
            self.directory,
            base_offset,
            storage=self._storage,
            index_interval_bytes=self._settings.index_interval_bytes,
        )


def _recovered(
    directory: Path, settings: TopicSettings, clock: Clock, storage: Storage, recovery_point: int
) -> Recovered:
    """What a partition goes on with, once what was begun before has been finished or undone."""
    finish_swaps(storage.disk, directory)
    return Recovery(
        directory,
        settings,
        ProducerStates(expiration_s=storage.producer_expiration_ms / 1000),
        storage,
        recovery_point=recovery_point,
        log_start_offset=remove_deleted(storage.disk, directory),
        now_s=clock.monotonic_s(),
    ).run()
