"""Learning from batches what is not written down beside them: producers, and how transactions ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import CorruptBatch
from headrace.log.durable_file import read_whole
from headrace.log.marker import decode_marker
from headrace.log.producers import ProducerStates, apply_batch
from headrace.log.scan import HEADER_WINDOW_BYTES, check_place
from headrace.log.snapshot import decode_snapshot, snapshot_name
from headrace.log.transaction_index import TransactionIndex

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.log.batch import BatchHeader
    from headrace.log.disk import Disk
    from headrace.log.producers import FrozenProducers
    from headrace.log.scan import FileScanner
    from headrace.log.segment import Segment


class DamagedBatch(CorruptBatch):
    """Where a walk met damage."""

    def __init__(self, path: Path, position: int, next_offset: int, reason: str) -> None:
        super().__init__(f"{path}, byte {position}, offset {next_offset}: {reason}")
        self.position = position
        self.next_offset = next_offset
        self.reason = reason


class Replay:
    """Applies batches to the producers of a partition."""

    def __init__(self, producers: ProducerStates, now_s: float) -> None:
        self._producers = producers
        self._now_s = now_s

    def learn(
        self, header: BatchHeader, scanner: FileScanner, position: int, index: TransactionIndex
    ) -> None:
        """Take note of the batch at a position, and of the transaction that it aborts."""
        marker = None
        if header.is_control:
            marker = decode_marker(header, scanner.bytes_at(position, header.size_bytes))
        apply_batch(self._producers, index, header, marker, now_s=self._now_s)

    def walk(self, segment: Segment, begin: int, end: int) -> TransactionIndex:
        """Take note of all batches between two positions, by their headers; return what was aborted there."""
        index = TransactionIndex()
        scanner = segment.scanner(HEADER_WINDOW_BYTES)
        position, next_offset = begin, segment.base_offset
        while position < end:
            try:
                header = scanner.header_at(position)
                check_place(header, next_offset, gaps=True)
                self.learn(header, scanner, position, index)
            except CorruptBatch as error:
                raise DamagedBatch(segment.path, position, next_offset, str(error)) from error
            next_offset = header.last_offset + 1
            position += header.size_bytes
        return index


def read_snapshot(disk: Disk, directory: Path, offset: int) -> FrozenProducers:
    """The snapshot for an offset; raises CorruptBatch when it is missing or damaged."""
    return decode_snapshot(read_whole(disk, directory / snapshot_name(offset)))


def rebuild_transaction_index(
    disk: Disk, directory: Path, segments: Sequence[Segment], wanted: Segment
) -> TransactionIndex:
    """Learn from the batches which transactions were aborted in a segment.

    Begins with the last segment before it, or with itself, for which there is a sound snapshot.
    """
    until = [segment for segment in segments if segment.base_offset <= wanted.base_offset]
    names = set(disk.names(directory))
    producers = ProducerStates()
    begin = 0
    for number in reversed(range(len(until))):
        if snapshot_name(until[number].base_offset) not in names:
            continue
        try:
            producers.thaw(read_snapshot(disk, directory, until[number].base_offset), now_s=0)
        except CorruptBatch:
            continue
        begin = number
        break
    replay = Replay(producers, now_s=0)
    index = TransactionIndex()
    for segment in until[begin:]:
        index = replay.walk(segment, 0, segment.size_bytes)
    return index
