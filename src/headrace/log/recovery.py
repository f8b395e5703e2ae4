"""What is found on disk when a partition is opened, and what is done about it.

How much is looked at does not grow with the log:

- Sealed segments (those with all three index files) were whole when they were sealed. Nothing of them is
  read; damage in them is found, and refused, when they are read.
- Of the segment that the checkpoint speaks of, the same holds up to there (see checkpoint.py).
- What was known of the producers at that offset is in a snapshot (see snapshot.py).

All that comes after is checked batch by batch. A crash may have left the newest segment with a torn end,
since nothing that was not synced is promised. The rules:

1. A batch that is cut short or does not match its checksum, beyond the recovery point and with no valid batch
   after it in its segment, is a torn end. It is cut off and reported. Later segments go with it: a segment's
   successor is acknowledged only after the segment has been sealed, so nothing in them ever was.
2. A damaged batch below the recovery point, or with a valid batch after it, is not the mark of a torn write.
   Cutting there would lose what may have been acknowledged, so opening fails with CorruptBatch, which names
   file, byte and offset, and the one command that accepts the loss. This is a decided limitation: some file
   systems write pages back out of order, so a loss of power may leave such a hole among batches of which none
   was ever acknowledged. Nothing on disk tells that hole from damage to acknowledged data, so a person
   decides, never the program.
3. An unsealed segment before a sealed one has lost its index files to somebody's hand. They are made again;
   any damage in it is rule 2.

Each file that saves looking can be done without, and what is missing or damaged is learnt from the batches:

    lost                        then
    --------------------------  -----------------------------------------------------------------------
    an index file, sealed       rule 3
    the checkpoint              the last segment is checked from its beginning
    the index files of the      they are made again when somebody looks something up before the
    last segment                checkpoint (see segment.py)
    a snapshot                  producers are learnt from the headers since the next older one, and a new
                                checkpoint is made

What is found in an unsealed segment need not be on the disk: it may be in the page cache alone, and be marked
clean there after a failed sync, so that a sync would do nothing for it. So before it counts, whatever lies
beyond the last known recovery point is written again in place, the same bytes, and then synced. The recovery
point is the offset below which all was durable when the store was last opened or closed or the last
checkpoint made, whatever is higher.
Decided against: dropping the pages and reading the disk instead, which the kernel need not do when asked; and
a mark that says that a sync has failed, which a failing disk need not take.

Decided against: keeping the readable part of a damaged log online. A gap in the middle of a partition is for
a person to judge, and the error says how to accept the loss.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.errors import CorruptBatch
from headrace.log.checkpoint import CHECKPOINT_NAME, decode_checkpoint
from headrace.log.damage import Damage, beyond_repair, has_batch_after
from headrace.log.durable_file import TEMPORARY_NAME, read_whole
from headrace.log.index import RELATIVE_OFFSET_MAX
from headrace.log.replay import DamagedBatch, Replay, read_snapshot
from headrace.log.scan import DATA_WINDOW_BYTES, FileScanner, check_place
from headrace.log.segment import Segment
from headrace.log.snapshot import SNAPSHOT_NAME, snapshot_name

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.log.checkpoint import Checkpoint
    from headrace.log.producers import FrozenProducers, ProducerStates
    from headrace.log.storage import Storage
    from headrace.log.topic_settings import TopicSettings

logger: Final = logging.getLogger(__name__)

_LOG_NAME: Final = re.compile(r"(\d{20})\.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class CutTail:
    """The torn end that a crash left, and that was cut off."""

    path: Path
    position: int
    cut_bytes: int
    next_offset: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.path}: cut {self.cut_bytes} bytes, from byte {self.position} and offset "
            f"{self.next_offset} on, which a crash had left unfinished: {self.reason}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What a partition goes on with."""

    log_start_offset: int
    """Everything below it is deleted."""
    producers: ProducerStates
    segments: list[Segment]
    """The last of them is active."""
    cut: CutTail | None
    """What had to be cut off."""
    checkpoint_offset: int
    """That of the last checkpoint."""
    unchecked_bytes: int
    """So many had to be checked because they lie after it."""
    rolled: dict[int, FrozenProducers]
    """By base offset, the producers for the segments that have no snapshot."""
    is_complete: bool
    """Whether nothing had to be learnt from batches before the checkpoint."""


class Recovery:
    """Opens the segments of one partition."""

    def __init__(
        self,
        directory: Path,
        settings: TopicSettings,
        producers: ProducerStates,
        storage: Storage,
        *,
        recovery_point: int,
        log_start_offset: int,
        now_s: float,
    ) -> None:
        """Everything below the recovery point, an offset, is known to be durable.

        Everything below the log's start is deleted; what lies wholly below it is gone from the directory, but
        for the last segment.
        """
        self._directory = directory
        self._settings = settings
        self._disk = storage.disk
        self._storage = storage
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._producers = producers
        self._now_s = now_s
        self._replay = Replay(producers, now_s)
        self._names: set[str] = set()
        self._sealed: set[int] = set()
        self._checkpoint: Checkpoint | None = None
        self._known_offset = 0
        """The producers are known up to here."""
        self._unchecked_bytes = 0
        self._rolled: dict[int, FrozenProducers] = {}

    def run(self) -> Recovered:
        """Find the segments, check them, and cut what is torn. What is left is whole but not yet synced."""
        self._names = set(self._disk.names(self._directory))
        self._unlink(TEMPORARY_NAME)
        bases = sorted(int(match[1]) for name in self._names if (match := _LOG_NAME.fullmatch(name)))
        self._unseal(bases[-1:])
        self._sealed = {base for base in bases if self._names.issuperset(_index_names(base))}
        self._checkpoint = self._read_checkpoint(bases)
        if self._checkpoint is None:
            self._unlink(CHECKPOINT_NAME, *(name for base in bases[-1:] for name in _index_names(base)))
        else:
            self._recovery_point = max(self._recovery_point, self._checkpoint.next_offset)
        wanted_offset = self._first_unknown_offset(bases)
        self._known_offset = self._read_snapshot(bases, wanted_offset)
        if self._known_offset < wanted_offset:
            logger.warning(
                "the producers of %s are learnt from its batches from offset %d on, which takes longer: "
                "there is no newer snapshot",
                self._directory,
                self._known_offset,
            )
        segments, cut = self._check(bases)
        if segments[-1].next_offset < self._log_start_offset:
            # The end of the log was lost, and what is left is deleted. The offsets up to there are used up.
            self._drop([segment.base_offset for segment in segments])
            segments = [self._segment(self._log_start_offset)]
        for segment in segments[:-1]:
            if not segment.is_sealed:
                segment.indexes.growing.seal()
        self._remove_strays(segments)
        return Recovered(
            log_start_offset=self._log_start_offset,
            producers=self._producers,
            segments=segments,
            cut=cut,
            checkpoint_offset=-1 if self._checkpoint is None else self._checkpoint.next_offset,
            unchecked_bytes=self._unchecked_bytes,
            rolled=self._rolled,
            is_complete=self._known_offset == wanted_offset,
        )

    def _unseal(self, bases: list[int]) -> None:
        """The last segment is written again, so it is not sealed any more."""
        for base in bases:
            if self._names.issuperset(_index_names(base)):
                self._unlink(*_index_names(base))

    def _read_checkpoint(self, bases: list[int]) -> Checkpoint | None:
        """The checkpoint, if there is one and it speaks of a segment that is there and not sealed."""
        if CHECKPOINT_NAME not in self._names:
            return None
        path = self._directory / CHECKPOINT_NAME
        try:
            checkpoint = decode_checkpoint(read_whole(self._disk, path))
        except CorruptBatch as error:
            logger.warning("%s can't be used (%s): opening takes longer without it", path, error)
            return None
        base = checkpoint.base_offset
        if base not in bases or base in self._sealed:
            return None
        segment = self._segment(base)
        size_bytes = self._disk.size_bytes(segment.open())
        segment.close()
        return checkpoint if checkpoint.size_bytes <= size_bytes else None

    def _first_unknown_offset(self, bases: list[int]) -> int:
        """Where the checks begin: in the first unsealed segment, or at the checkpoint in it."""
        first = next((base for base in bases if base not in self._sealed), 0)
        if self._checkpoint is not None and self._checkpoint.base_offset == first:
            return self._checkpoint.next_offset
        return first

    def _read_snapshot(self, bases: list[int], wanted_offset: int) -> int:
        """Learn the producers from the last sound snapshot that is not too new; return its offset."""
        known = set(bases)
        if self._checkpoint is not None:
            known.add(self._checkpoint.next_offset)
        for offset in sorted((each for each in known if each <= wanted_offset), reverse=True):
            path = self._directory / snapshot_name(offset)
            if path.name in self._names:
                try:
                    self._producers.thaw(
                        read_snapshot(self._disk, self._directory, offset), now_s=self._now_s
                    )
                except CorruptBatch as error:
                    logger.warning("%s can't be used: %s", path, error)
                else:
                    return offset
        return min(bases, default=0)

    def _check(self, bases: list[int]) -> tuple[list[Segment], CutTail | None]:
        last_sealed = max(self._sealed, default=-1)
        segments: list[Segment] = []
        for number, base in enumerate(bases):
            later = bases[number + 1 :]
            if segments and (cut := self._missing_end(segments[-1], bases[number:], last_sealed)):
                return segments, cut
            segment = self._segment(base)
            segments.append(segment)
            if base in self._sealed:
                self._adopt_sealed(segment, later)
            elif damage := self._verify(segment, later, gaps=base < last_sealed):
                return segments, self._cut(segment, damage, later, last_sealed)
        return segments or [self._segment(self._log_start_offset)], None

    def _segment(self, base_offset: int) -> Segment:
        return Segment(
            self._directory,
            base_offset,
            storage=self._storage,
            index_interval_bytes=self._settings.index_interval_bytes,
        )

    def _adopt_sealed(self, segment: Segment, later: list[int]) -> None:
        """Take over a sealed segment, which ends somewhere before the next one begins."""
        size_bytes = self._disk.size_bytes(segment.open())
        segment.adopt_sealed(size_bytes=size_bytes, next_offset=later[0])
        if later[0] > self._known_offset:
            self._learn_headers(segment, size_bytes, later)
        segment.close()

    def _learn_headers(self, segment: Segment, end: int, later: list[int]) -> None:
        try:
            self._replay.walk(segment, 0, end)
        except DamagedBatch as error:
            damage = Damage(error.position, error.next_offset, error.reason)
            raise beyond_repair(segment.path, damage, later) from error

    def _verify(self, segment: Segment, later: list[int], *, gaps: bool) -> Damage | None:
        """Check an unsealed segment up to the first damage; learn its indexes and producers on the way."""
        size_bytes = self._disk.size_bytes(segment.open())
        checkpoint = self._checkpoint
        if checkpoint is not None and checkpoint.base_offset == segment.base_offset:
            segment.adopt_checkpoint(checkpoint)
            if self._known_offset < checkpoint.next_offset:
                self._learn_headers(segment, checkpoint.size_bytes, later)
        elif segment.base_offset > self._known_offset:
            self._rolled[segment.base_offset] = self._producers.freeze()
        scanner = FileScanner(self._disk, segment.open(), size_bytes, DATA_WINDOW_BYTES)
        index, transactions = segment.indexes.growing, segment.indexes.transactions
        position, next_offset = segment.size_bytes, segment.next_offset
        begin = durable_bytes = position
        # Compaction leaves the last segment alone, and what is not durable.
        compacted_below = self._recovery_point if later else 0
        below_offset = segment.base_offset + RELATIVE_OFFSET_MAX + 1
        damage = None
        while position < size_bytes:
            try:
                header = scanner.checked_header_at(position)
                has_gaps = gaps or header.last_offset < compacted_below
                check_place(header, next_offset, gaps=has_gaps, below_offset=below_offset)
                self._replay.learn(header, scanner, position, transactions)
            except CorruptBatch as error:
                damage = Damage(position, next_offset, str(error))
                break
            index.add(header, position)
            next_offset = header.last_offset + 1
            position += header.size_bytes
            if next_offset <= self._recovery_point:
                durable_bytes = position
        segment.adopt(size_bytes=position, next_offset=next_offset, durable_bytes=durable_bytes)
        self._unchecked_bytes = position - begin
        return damage

    def _missing_end(self, segment: Segment, later: list[int], last_sealed: int) -> CutTail | None:
        """Compare where a segment ends with where the next begins."""
        if segment.next_offset > later[0]:
            reason = f"it ends before offset {segment.next_offset}, but the next segment begins at {later[0]}"
            damage = Damage(segment.size_bytes, segment.next_offset, reason)
            raise beyond_repair(segment.path, damage, later)
        if segment.next_offset == later[0] or segment.is_sealed or segment.base_offset < last_sealed:
            return None
        return CutTail(
            path=segment.path,
            position=segment.size_bytes,
            cut_bytes=self._drop(later),
            next_offset=segment.next_offset,
            reason=f"the next segment begins with offset {later[0]}, so batches between are missing",
        )

    def _cut(self, segment: Segment, damage: Damage, later: list[int], last_sealed: int) -> CutTail:
        """Cut off a torn end, after making sure that it is one."""
        size_bytes = self._disk.size_bytes(segment.open())
        was_durable = segment.base_offset < last_sealed or damage.next_offset < self._recovery_point
        if was_durable or has_batch_after(self._disk, segment.open(), size_bytes, damage):
            raise beyond_repair(segment.path, damage, later)
        self._disk.truncate(segment.open(), damage.position)
        # What is left may all be durable, so that the next sync would find nothing to do.
        self._disk.sync_file(segment.open())
        return CutTail(
            path=segment.path,
            position=damage.position,
            cut_bytes=size_bytes - damage.position + self._drop(later),
            next_offset=damage.next_offset,
            reason=damage.reason,
        )

    def _drop(self, bases: list[int]) -> int:
        """Remove segments that were never acknowledged; return how many bytes they had."""
        dropped_bytes = 0
        for base in bases:
            segment = self._segment(base)
            dropped_bytes += self._disk.size_bytes(segment.open())
            segment.close()
            self._unlink(segment.path.name, *_companion_names(base))
        return dropped_bytes

    def _remove_strays(self, segments: list[Segment]) -> None:
        """Keep only the snapshots for segments and for the checkpoint, and that if its segment is there."""
        kept = {segment.base_offset for segment in segments}
        if self._checkpoint is not None and self._checkpoint.base_offset not in kept:
            self._unlink(CHECKPOINT_NAME)
            self._checkpoint = None
        if self._checkpoint is not None:
            kept.add(self._checkpoint.next_offset)
        self._unlink(
            *(
                name
                for name in self._names
                if (match := SNAPSHOT_NAME.fullmatch(name)) and int(match[1]) not in kept
            )
        )

    def _unlink(self, *names: str) -> None:
        """Remove those of the files that are there, for good: they must not come back after a crash."""
        present = self._names.intersection(names)
        for name in sorted(present):
            self._disk.unlink(self._directory / name)
        if present:
            self._disk.sync_directory(self._directory)
            self._names -= present


def _index_names(base_offset: int) -> tuple[str, ...]:
    return tuple(f"{base_offset:020d}.{suffix}" for suffix in ("index", "timeindex", "txnindex"))


def _companion_names(base_offset: int) -> tuple[str, ...]:
    return *_index_names(base_offset), snapshot_name(base_offset)
