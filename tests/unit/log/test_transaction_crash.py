"""Random transactions, checkpoints, crashes and lost files, held against what a list of batches says.

Each seed is a story of its own; a failure names it. Whatever was lost or damaged beside the batches, the log
must know the same producers, the same open and the same aborted transactions as somebody who reads them all.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from headrace.clock import Clock
from headrace.errors import HeadraceError, StorageError
from headrace.log.batch import encode_batch, read_header
from headrace.log.failure import FailStop
from headrace.log.open_files import OpenFiles
from headrace.log.partition import PartitionLog
from headrace.log.producers import ProducerInfo
from headrace.log.record import Record
from headrace.log.storage import Storage
from headrace.log.topic_settings import TopicSettings
from headrace.testing.disk import PowerLoss, SimulatedDisk
from headrace.testing.partition import open_log

SIZE_MAX = 1_000_000
STORY_COUNT = 60
LIVES_PER_STORY = 5
STEPS_PER_LIFE_MAX = 40
PRODUCER_COUNT = 3
TRANSACTIONAL = 0x10
HEADER_BYTES = 61


@dataclass
class Known:
    """What is known of a producer."""

    epoch: int
    sequences: list[tuple[int, int, int]] = field(default_factory=list)
    """First and last sequence and offset of the last five batches."""
    coordinator_epoch: int = -1
    timestamp_ms: int = -1
    first_offset: int | None = None


class Reference:
    """What a list of batches says, read one by one from the first."""

    def __init__(self, batches: list[bytes]) -> None:
        self.producers: dict[int, Known] = {}
        self.transactions: list[tuple[int, int, int | None, bool]] = []
        """Producer, first offset, marker's offset, committed."""
        for batch in batches:
            header = read_header(batch)
            if header.producer_id >= 0:
                self._apply(batch)

    def _apply(self, batch: bytes) -> None:
        header = read_header(batch)
        known = self.producers.setdefault(header.producer_id, Known(header.producer_epoch))
        if known.epoch != header.producer_epoch:
            known.epoch, known.sequences = header.producer_epoch, []
        known.timestamp_ms = header.max_timestamp_ms
        if header.is_control:
            commits = batch[HEADER_BYTES + 5 + 3] == 1
            known.coordinator_epoch = batch[-2]
            if known.first_offset is not None:
                self.transactions.remove((header.producer_id, known.first_offset, None, False))
                ended = (header.producer_id, known.first_offset, header.base_offset, commits)
                self.transactions.append(ended)
            known.first_offset = None
            return
        known.sequences = [
            *known.sequences[-4:],
            (header.base_sequence, header.last_sequence, header.base_offset),
        ]
        if header.is_transactional and known.first_offset is None:
            known.first_offset = header.base_offset
            self.transactions.append((header.producer_id, header.base_offset, None, False))

    def infos(self) -> dict[int, ProducerInfo]:
        return {
            producer_id: ProducerInfo(
                producer_id=producer_id,
                producer_epoch=known.epoch,
                last_sequence=known.sequences[-1][1] if known.sequences else -1,
                last_timestamp_ms=known.timestamp_ms,
                coordinator_epoch=known.coordinator_epoch,
                transaction_start_offset=known.first_offset,
            )
            for producer_id, known in self.producers.items()
        }

    def last_stable_offset(self, high_watermark: int) -> int:
        unsettled = [
            first for _, first, marker, _ in self.transactions if marker is None or marker >= high_watermark
        ]
        return min([high_watermark, *unsettled])

    def aborted(self, from_offset: int, below_offset: int) -> list[tuple[int, int, int]]:
        return [
            (producer_id, first, marker)
            for producer_id, first, marker, commits in self.transactions
            if marker is not None and not commits and marker >= from_offset and first < below_offset
        ]


class Story:
    """One disk, a partition that is opened on it again and again, and what must be true of it."""

    def __init__(self, seed: int, directory: Path, clock: Clock) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk()
        self.directory = directory
        self.clock = clock
        self.settings = TopicSettings(
            segment_bytes=self.random.choice((1024, 3000, 20_000)),
            index_interval_bytes=self.random.choice((1, 150, 1000)),
            segment_ms=10**15,
        )
        self.checkpoint_bytes = self.random.choice((200, 1000, 5000))
        self.appended: list[bytes] = []
        self.acknowledged: list[bytes] = []

    def live(self, *, can_fail: bool, loses_files: bool) -> None:
        """Open the log, check it, use it until it is closed, the process is killed or the power goes."""
        if self.random.random() < 0.5:
            self.disk.lose_power_after(self.random.randint(0, 80))
        due: list[PartitionLog] = []
        storage = Storage(
            disk=self.disk,
            files=OpenFiles(self.disk),
            fail_stop=FailStop(),
            checkpoint_bytes=self.checkpoint_bytes,
            on_checkpoint_due=due.append,
        )
        try:
            log = open_log(self.directory, self.settings, self.clock, storage=storage)
            self.check(log)
            for _ in range(self.random.randint(0, STEPS_PER_LIFE_MAX)):
                self.step(log, due, can_fail=can_fail)
            self.check_transactions(log)
            if self.random.random() < 0.3:
                log._checkpoints.appended(10**6)
                log.close()
                self.acknowledge(log)
        except PowerLoss:
            pass
        except StorageError:
            if not can_fail:
                raise
        if self.random.random() < 0.3:
            self.disk.kill()
        else:
            self.disk.crash(self.random)
        if loses_files:
            self.lose_files()

    def lose_files(self) -> None:
        names = [name for name in self.disk.names(self.directory) if not name.endswith(".log")]
        for name in self.random.sample(names, min(len(names), self.random.randint(0, 3))):
            path = self.directory / name
            content = bytearray(self.disk.content(path))
            if self.random.random() < 0.5 or not content:
                self.disk.unlink(path)
                self.disk.sync_directory(self.directory)
            elif self.random.random() < 0.5:
                content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)
                self.disk.overwrite(path, bytes(content))
            else:
                self.disk.overwrite(path, bytes(content[: self.random.randrange(len(content))]))

    def step(self, log: PartitionLog, due: list[PartitionLog], *, can_fail: bool) -> None:
        action = self.random.random()
        if can_fail and action < 0.04:
            code = self.random.choice((errno.ENOSPC, errno.EIO))
            operations = ("append", "sync_file", "sync_directory", "rename", "truncate", "unlink")
            self.disk.fail(self.random.choice(operations), code)
        elif can_fail and action < 0.1:
            self.disk.fail(self.random.choice(("open", "sync_directory")), errno.EMFILE)
        elif action < 0.6:
            self.append(log)
        elif action < 0.8:
            self.append_marker(log)
        elif action < 0.9:
            self.sync(log)
        elif due:
            due.clear()
            try:
                log.checkpoint()
            except StorageError:
                return
            self.acknowledge(log)

    def append(self, log: PartitionLog) -> None:
        count = self.random.randint(1, 4)
        producer_id = self.random.randint(-1, PRODUCER_COUNT - 1)
        fields: dict[str, int] = {}
        if producer_id >= 0:
            known = Reference(self.appended).producers.get(producer_id) or Known(0)
            is_transactional = known.first_offset is not None or self.random.random() < 0.7
            fields = {
                "producer_id": producer_id,
                "producer_epoch": known.epoch,
                "base_sequence": known.sequences[-1][1] + 1 if known.sequences else 0,
                "attributes": TRANSACTIONAL if is_transactional else 0,
            }
        value = self.random.randbytes(self.random.randint(0, 200))
        record = Record(timestamp_ms=self.random.randint(0, 1000), key=None, value=value)
        batch = encode_batch([record] * count, **fields)
        expected = log.end_offset
        self.appended.append(expected.to_bytes(8, "big") + batch[8:])
        self.write(lambda: log.append(batch, size_bytes_max=SIZE_MAX))

    def append_marker(self, log: PartitionLog) -> None:
        producer_id = self.random.randint(0, PRODUCER_COUNT - 1)
        known = Reference(self.appended).producers.get(producer_id) or Known(0)
        epoch = known.epoch + self.random.randint(0, 1)
        commits = self.random.random() < 0.4
        coordinator_epoch = max(known.coordinator_epoch, 0) + self.random.randint(0, 1)
        record = Record(
            timestamp_ms=self.clock.now_ms(),
            key=bytes((0, 0, 0, commits)),
            value=bytes((0, 0, 0, 0, 0, coordinator_epoch)),
        )
        batch = encode_batch([record], producer_id=producer_id, producer_epoch=epoch, attributes=0x30)
        self.appended.append(log.end_offset.to_bytes(8, "big") + batch[8:])
        self.write(
            lambda: log.append_marker(
                producer_id, epoch, commits=commits, coordinator_epoch=coordinator_epoch
            )
        )

    def write(self, write: object) -> None:
        """Write the batch that was noted last; it counts even when the power goes meanwhile."""
        assert callable(write)
        try:
            write()
        except StorageError as error:
            if error.definite or "no writes are taken after" in str(error):
                self.appended.pop()

    def sync(self, log: PartitionLog) -> None:
        try:
            log.sync()
        except StorageError:
            return
        self.acknowledge(log)

    def acknowledge(self, log: PartitionLog) -> None:
        self.acknowledged = [
            batch for batch in self.appended if read_header(batch).last_offset < log.durable_offset
        ]

    def check(self, log: PartitionLog) -> None:
        """What must hold whenever the log has been opened."""
        found = _read_all(log)
        assert found == self.appended[: len(found)], "what is there is a prefix of what was appended"
        assert found[: len(self.acknowledged)] == self.acknowledged, "what was acknowledged is there"
        assert log.durable_offset == log.end_offset == _end(found), "what is there now stays"
        self.appended = found
        self.acknowledged = list(found)
        self.check_transactions(log)
        self.check_duplicates(log)
        self.check_times(log)

    def check_transactions(self, log: PartitionLog) -> None:
        if log.end_offset != _end(self.appended):
            return  # A write has failed, and whether it happened is not known.
        reference = Reference(self.appended)
        assert {info.producer_id: info for info in log.producers()} == reference.infos()
        for _ in range(4):
            first, below = sorted(self.random.choices(range(log.end_offset + 2), k=2))
            aborted = log.aborted_transactions(first, below)
            spans = [(each.producer_id, each.first_offset, each.last_offset) for each in aborted]
            assert spans == reference.aborted(first, below)
        for high_watermark in range(log.durable_offset, log.end_offset + 1):
            assert log.last_stable_offset(high_watermark) == reference.last_stable_offset(high_watermark)

    def check_duplicates(self, log: PartitionLog) -> None:
        """The last five batches of each producer's epoch are recognised."""
        for producer_id, known in Reference(self.appended).producers.items():
            for first, last, offset in known.sequences:
                record = Record(timestamp_ms=0, key=None, value=None)
                again = encode_batch(
                    [record] * (last - first + 1),
                    producer_id=producer_id,
                    producer_epoch=known.epoch,
                    base_sequence=first,
                    attributes=TRANSACTIONAL,
                )
                written = log.append(again, size_bytes_max=SIZE_MAX)
                assert (written.duplicate, written.base_offset) == (True, offset)

    def check_times(self, log: PartitionLog) -> None:
        headers = [read_header(batch) for batch in self.appended]
        time = self.random.randint(0, 1100)
        first = next((header.base_offset for header in headers if header.max_timestamp_ms >= time), None)
        found = log.offset_for_timestamp(time)
        assert (None if found is None else found.offset) == first
        highest = log.max_timestamp()
        assert (None if highest is None else highest.timestamp_ms) == max(
            (header.max_timestamp_ms for header in headers), default=None
        )


def _read_all(log: PartitionLog) -> list[bytes]:
    batches: list[bytes] = []
    while data := log.read(_end(batches), size_bytes_max=500):
        position = 0
        while position < len(data):
            size_bytes = read_header(data, position).size_bytes
            batches.append(data[position : position + size_bytes])
            position += size_bytes
    return batches


def _end(batches: list[bytes]) -> int:
    return read_header(batches[-1]).last_offset + 1 if batches else 0


def _tell(seed: int, directory: Path, clock: Clock, *, can_fail: bool, loses_files: bool) -> None:
    story = Story(seed, directory, clock)
    try:
        for _ in range(LIVES_PER_STORY):
            story.live(can_fail=can_fail, loses_files=loses_files)
    except (AssertionError, HeadraceError) as error:
        error.add_note(f"seed {seed}")
        raise


@pytest.mark.parametrize("seed", range(0, STORY_COUNT, 20))
def test_transactions_and_producers_survive_every_crash(seed: int, clock: Clock, partition_dir: Path) -> None:
    for each in range(seed, seed + 20):
        _tell(each, partition_dir, clock, can_fail=False, loses_files=False)


@pytest.mark.parametrize("seed", range(1000, 1000 + STORY_COUNT, 20))
def test_transactions_and_producers_survive_failing_writes_and_syncs(
    seed: int, clock: Clock, partition_dir: Path
) -> None:
    for each in range(seed, seed + 20):
        _tell(each, partition_dir, clock, can_fail=True, loses_files=False)


@pytest.mark.parametrize("seed", range(2000, 2000 + STORY_COUNT, 20))
def test_whatever_file_beside_the_batches_is_lost_or_damaged_nothing_changes(
    seed: int, clock: Clock, partition_dir: Path
) -> None:
    for each in range(seed, seed + 20):
        _tell(each, partition_dir, clock, can_fail=False, loses_files=True)
