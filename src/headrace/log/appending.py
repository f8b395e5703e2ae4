"""How batches get to the end of a partition: checked, given their offsets, and written.

A batch that is plain, as most are, is written as it came, but for its base offset. All others are taken apart
first: those of several in one request, those that are to be compressed in another way or get the time of the
append, and those that may have come before (see intake.py and producers.py).

When the active segment is full, the next batch begins another one. After so many bytes the partition asks for
a checkpoint (see checkpoints.py).
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import CorruptBatch
from headrace.failpoints import hit
from headrace.log.batch import Batch, place, place_plain, read_header, split_batches, with_base_offset
from headrace.log.failure import storage_error
from headrace.log.index import NO_TIMESTAMP
from headrace.log.intake import Intake
from headrace.log.marker import encode_marker
from headrace.log.producers import ACCEPT, Duplicate, apply_batch
from headrace.log.rolling import Rolling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.clock import Clock
    from headrace.log.batch import BatchHeader
    from headrace.log.checkpoints import Checkpoints
    from headrace.log.disk import Buffer
    from headrace.log.marker import Marker
    from headrace.log.producers import ProducerStates
    from headrace.log.segment import Segment
    from headrace.log.segment_list import SegmentList
    from headrace.log.storage import Storage
    from headrace.log.topic_settings import TopicSettings


class Appended(NamedTuple):
    """Where batches have been written, or, for a duplicate, where they had been written before."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    duplicate: bool = False
    log_append_time_ms: int = NO_TIMESTAMP
    """The timestamp that the records got, where the topic has append time."""


class Appending:
    """Writes to the end of one partition. Belongs to the event loop's thread."""

    def __init__(
        self,
        segments: SegmentList,
        settings: TopicSettings,
        producers: ProducerStates,
        checkpoints: Checkpoints,
        *,
        clock: Clock,
        storage: Storage,
        on_checkpoint_due: Callable[[], None],
    ) -> None:
        self._segments = segments
        self._producers = producers
        self._checkpoints = checkpoints
        self._clock = clock
        self._fail_stop = storage.fail_stop
        self._checkpoint_bytes = storage.checkpoint_bytes
        self._on_checkpoint_due = on_checkpoint_due
        self._name = segments.active.path.parent.name
        self._intake: Intake
        self._rolling: Rolling
        self._settings = settings
        self.end_offset = segments.active.next_offset
        """The offset that the next record will get."""
        segments.active.begun_ms = clock.now_ms()
        self.change_settings(settings)

    def change_settings(self, settings: TopicSettings) -> None:
        """Take other settings for what is appended from now on."""
        self._settings = settings
        self._intake = Intake(settings)
        self._rolling = self._new_rolling()

    def append(self, records: bytes | memoryview, *, size_bytes_max: int, is_sequenced: bool) -> Appended:
        """Check batches, give them the next offsets and write them, without waiting for the disk."""
        now_ms = self._clock.now_ms()
        base_offset = self.end_offset
        plain = place_plain(records, base_offset, size_bytes_max)
        if plain is not None and self._takes_as_it_is(plain[0], now_ms):
            self._write_placed([plain[0]], plain[1], len(records))
            return Appended(base_offset, self.end_offset - 1, now_ms)
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
            last_offset=self.end_offset - 1,
            append_time_ms=now_ms,
            log_append_time_ms=now_ms if has_append_time else NO_TIMESTAMP,
        )

    def append_marker(self, marker: Marker, producer_id: int, producer_epoch: int) -> Appended:
        """Write the control batch that ends the producer's transaction, without waiting for the disk."""
        self._producers.check_marker(producer_id, producer_epoch, marker.coordinator_epoch)
        now_ms = self._clock.now_ms()
        data = memoryview(
            encode_marker(marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=now_ms)
        )
        offset = self.end_offset
        self._write([Batch(read_header(data), data)], marker)
        return Appended(base_offset=offset, last_offset=offset, append_time_ms=now_ms)

    def roll(self) -> Segment:
        """Begin a new segment."""
        hit("log.roll")
        self._segments.active.indexes.growing.seal()
        self._checkpoints.rolled(self.end_offset)
        segment = self._segments.begin(self.end_offset)
        segment.begun_ms = self._clock.now_ms()
        self._rolling = self._new_rolling()
        self._on_checkpoint_due()
        return segment

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
        offset = self.end_offset
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
                segment = self.roll()
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
                apply_batch(self._producers, segment.indexes.transactions, header, marker, now_s=now_s)
        self.end_offset = segment.next_offset
        if self._checkpoints.appended(size_bytes) >= self._checkpoint_bytes:
            self._checkpoints.capture(segment)
            self._on_checkpoint_due()

    def _new_rolling(self) -> Rolling:
        """What says when the active segment is full."""
        # Chance spreads the work, but it is the same chance each time, so that a simulation can be repeated.
        seed = f"{self._name} {self._segments.active.base_offset}"
        return Rolling(self._settings, Random(seed))  # noqa: S311  # Nothing is secret about it.
