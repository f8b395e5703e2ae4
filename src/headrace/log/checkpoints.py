"""When a partition's checkpoints are made, and in which order their files are written.

    appending thread                            another thread
    ------------------------------------------  ---------------------------------------------------------
    enough was appended: `capture` keeps what
    the checkpoint will say
                                                what was `captured` is taken, then the log is synced
                                                `write`: .index, .timeindex, .snapshot, then checkpoint
    a segment is rolled: `rolled` keeps what
    is known of the producers
                                                the segment is synced
                                                `seal`: the successor's .snapshot, .index, .timeindex,
                                                .txnindex, then the successor's checkpoint

Each file is complete when it gets its name, and one that a crash takes away is made up for by the next older
one (see recovery.py), so one sync of the directory at the end suffices.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Final

from headrace.config import KIB
from headrace.failpoints import hit
from headrace.log.checkpoint import CHECKPOINT_NAME, Checkpoint, encode_checkpoint
from headrace.log.durable_file import write_durably, write_whole
from headrace.log.index import SegmentIndex
from headrace.log.snapshot import encode_snapshot, snapshot_name

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.log.disk import Disk
    from headrace.log.producers import FrozenProducers, ProducerStates
    from headrace.log.segment import Segment

UNCHECKED_BYTES_MAX: Final = 64 * KIB
"""So many bytes are not worth a checkpoint when a log is closed: checking them takes no time."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What a checkpoint will say once all that it speaks of is durable."""

    segment: Segment
    index: SegmentIndex
    checkpoint: Checkpoint
    producers: FrozenProducers


class Checkpoints:
    """The checkpoints of one partition. What is said to be another thread's work may run in one."""

    def __init__(
        self,
        directory: Path,
        disk: Disk,
        producers: ProducerStates,
        *,
        unchecked_bytes: int,
        last_offset: int,
        rolled: dict[int, FrozenProducers],
    ) -> None:
        """Go on from the last checkpoint, whose offset is given, with so many bytes after it.

        `rolled` has, by base offset, the producers for the segments that have no snapshot.
        """
        self.lock = Lock()
        """Held by whoever writes files beside the segments: a directory has one writer at a time."""
        self._directory = directory
        self._disk = disk
        self._producers = producers
        self._unchecked_bytes = unchecked_bytes
        self._last_offset = last_offset
        self._rolled = rolled
        self._captured: Captured | None = None

    def appended(self, size_bytes: int) -> int:
        """Note that the log has grown, and return by how much since the last checkpoint was captured."""
        self._unchecked_bytes += size_bytes
        return self._unchecked_bytes

    @property
    def is_worth_it(self) -> bool:
        """Whether to make a checkpoint when the log is closed."""
        return self._unchecked_bytes > UNCHECKED_BYTES_MAX

    def capture(self, segment: Segment) -> None:
        """Keep what the next checkpoint will say: all that has been written up to now."""
        index = segment.indexes.growing
        checkpoint = Checkpoint(
            base_offset=segment.base_offset,
            size_bytes=segment.size_bytes,
            next_offset=segment.next_offset,
            index=index.mark,
            index_checksums=(0, 0),
            aborted=segment.indexes.transactions.entries,
        )
        self._captured = Captured(segment, index, checkpoint, self._producers.freeze())
        self._unchecked_bytes = 0

    def rolled(self, base_offset: int) -> None:
        """Keep what is known of the producers where a segment begins."""
        self._rolled[base_offset] = self._producers.freeze()
        self._unchecked_bytes = 0

    def forget(self) -> None:
        """Write nothing any more. Whoever calls this holds the lock."""
        self._captured = None

    @property
    def captured(self) -> Captured | None:
        """What was captured last and is not written yet."""
        return self._captured

    def write(self, captured: Captured | None, base_offsets: tuple[int, ...]) -> None:
        """Another thread's work: write a checkpoint that was captured before the last sync began.

        Snapshots for these base offsets are kept.
        """
        with self.lock:
            # Of a sealed segment nothing needs to be known, and it may be compacted any time.
            if captured is None or self._captured is None or captured.segment.is_sealed:
                return
            checkpoint = captured.checkpoint
            checksums = captured.segment.indexes.write_entries(captured.index, checkpoint.index)
            self._write_snapshot(checkpoint.next_offset, captured.producers)
            self._write_checkpoint(replace(checkpoint, index_checksums=checksums), base_offsets)
            if self._captured is captured:
                self._captured = None

    def seal(self, segment: Segment, successor: Segment, base_offsets: tuple[int, ...]) -> None:
        """Another thread's work: seal a segment that has been synced."""
        base_offset = successor.base_offset
        with self.lock:
            if (producers := self._rolled.get(base_offset)) is not None:
                self._write_snapshot(base_offset, producers)
            hit("log.seal")
            segment.write_indexes()
            hit("log.sealed")
            if successor.is_sealed:
                self._disk.sync_directory(self._directory)
            else:
                self._write_checkpoint(_nothing_known(base_offset), base_offsets)
            segment.is_sealed = True
            self._rolled.pop(base_offset, None)

    def _write_snapshot(self, offset: int, producers: FrozenProducers) -> None:
        write_whole(self._disk, self._directory / snapshot_name(offset), encode_snapshot(producers))

    def _write_checkpoint(self, checkpoint: Checkpoint, base_offsets: tuple[int, ...]) -> None:
        hit("log.checkpoint")
        write_durably(self._disk, self._directory / CHECKPOINT_NAME, encode_checkpoint(checkpoint))
        before, self._last_offset = self._last_offset, checkpoint.next_offset
        if before != self._last_offset and before not in base_offsets:
            with suppress(FileNotFoundError):
                self._disk.unlink(self._directory / snapshot_name(before))


def _nothing_known(base_offset: int) -> Checkpoint:
    return Checkpoint(
        base_offset=base_offset,
        size_bytes=0,
        next_offset=base_offset,
        index=SegmentIndex(base_offset, 1).mark,
        index_checksums=(0, 0),
        aborted=(),
    )
