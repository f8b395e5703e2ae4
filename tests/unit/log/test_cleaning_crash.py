"""Random lives of partitions that are compacted, retained and deleted from, with crashes at any step.

Each seed is a story of its own; a failure names it. A reader of committed records must end with the same
table whatever was compacted, and with the records of the log's start and later whatever was deleted.
"""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from headrace.errors import HeadraceError, StorageError, TooManyOpenFiles
from headrace.log.batch import TRANSACTIONAL, decode_records, encode_batch, read_header
from headrace.log.cleaning import PartitionCleaning, take_steps
from headrace.log.offset_map import ENTRY_BYTES
from headrace.log.partition import PartitionLog
from headrace.log.record import Record
from headrace.log.topic_settings import TopicSettings
from headrace.testing.clock import ManualClock
from headrace.testing.disk import PowerLoss, SimulatedDisk
from headrace.testing.partition import delete_records, open_log

SIZE_MAX = 1_000_000
STORY_COUNT = 240
LIVES_PER_STORY = 4
STEPS_PER_LIFE_MAX = 30
RETENTION_MS = 5_000
KEYS = [b"a", b"b", b"c", b"a long key, longer than its hash is"]
PRODUCERS = (1, 2)
POLICIES = [("compact",), ("delete",), ("compact", "delete"), ()]

Written = dict[int, tuple[bytes | None, bytes | None, int]]
"""By offset, the key, the value and the producer's id."""


def open_transaction_of(log: PartitionLog, producer_id: int) -> int | None:
    """The first offset of the producer's open transaction."""
    found = {info.producer_id: info.transaction_start_offset for info in log.producers()}
    return found.get(producer_id)


class Story:
    """One disk, a partition that is opened on it again and again, and what must be true of it."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.disk = SimulatedDisk(self.clock)
        self.directory = directory
        policy = POLICIES[seed % len(POLICIES)]
        self.settings = TopicSettings(
            segment_bytes=self.random.choice((1024, 2000)),
            index_interval_bytes=self.random.choice((1, 150)),
            cleanup_policy=policy,
            min_cleanable_dirty_ratio=self.random.choice((0.0, 0.5)),
            delete_retention_ms=self.random.choice((0, 2_000)),
            retention_ms=self.random.choice((-1, RETENTION_MS)),
            retention_bytes=self.random.choice((-1, 0, 3_000)),
        )
        self.written: Written = {}
        self.aborted: list[tuple[int, int, int]] = []
        """Producer, first and last offset of every transaction that was ever aborted."""
        self.acknowledged_end = 0
        self.acknowledged_start = 0
        self.sequences = dict.fromkeys(PRODUCERS, 0)

    def live(self, *, can_fail: bool) -> None:
        """Open the log, check it, use it until the process is killed or the power goes."""
        if self.random.random() < 0.6:
            self.disk.lose_power_after(self.random.randint(0, 120))
        try:
            log = open_log(self.directory, self.settings, self.clock, disk=self.disk)
            self.check(log)
            self.restart_producers(log)
            cleaning = PartitionCleaning(log, breathe=lambda: None)
            for _ in range(self.random.randint(0, STEPS_PER_LIFE_MAX)):
                self.step(log, cleaning, can_fail=can_fail)
        except PowerLoss:
            pass
        if self.random.random() < 0.3:
            self.disk.kill()
        else:
            self.disk.crash(self.random)

    def step(self, log: PartitionLog, cleaning: PartitionCleaning, *, can_fail: bool) -> None:
        self.clock.advance(self.random.choice((0, 10, 1_000)))
        action = self.random.random()
        try:
            if can_fail and action < 0.06:
                code = self.random.choice((errno.ENOSPC, errno.EIO, errno.EMFILE))
                names = ("append", "sync_file", "sync_directory", "rename", "unlink", "open", "replace")
                self.disk.fail(self.random.choice(names), code, after=self.random.randint(0, 3))
            elif action < 0.45:
                self.append(log)
            elif action < 0.6:
                self.append_transaction(log)
            elif action < 0.75:
                log.sync()
                self.acknowledged_end = log.durable_offset
            elif action < 0.85:
                take_steps(cleaning.retain(self.clock.now_ms()))
                self.deleted(log)
            elif action < 0.95:
                take_steps(cleaning.compact(self.clock.now_ms(), self.random.choice((2, 100)) * ENTRY_BYTES))
                self.check_readable(log)
            elif self.settings.is_deleted:
                delete_records(log, self.random.randint(log.start_offset, log.durable_offset))
                self.deleted(log)
        except (StorageError, OSError):
            return

    def deleted(self, log: PartitionLog) -> None:
        self.acknowledged_start = log.start_offset
        self.check_readable(log)

    def append(self, log: PartitionLog) -> None:
        self.write(log, self.records(), producer_id=-1)

    def records(self) -> list[Record]:
        return [
            Record(
                timestamp_ms=self.clock.now_ms() - self.random.randint(0, 2_000),
                key=self.random.choice(KEYS),
                value=self.random.choice((None, self.random.randbytes(self.random.randint(1, 150)))),
            )
            for _ in range(self.random.randint(1, 4))
        ]

    def write(self, log: PartitionLog, records: list[Record], producer_id: int) -> int:
        """Append a batch; it counts as written even when that fails half-way."""
        first = log.end_offset
        producer = {}
        if producer_id >= 0:
            sequence = self.sequences[producer_id]
            producer = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        batch = encode_batch(records, attributes=TRANSACTIONAL if producer else 0, **producer)
        for number, record in enumerate(records):
            self.written[first + number] = (record.key, record.value, producer_id)
        try:
            appended = log.append(batch, size_bytes_max=SIZE_MAX)
        except TooManyOpenFiles:
            # Certainly not written, so something else gets its offsets.
            for number in range(len(records)):
                del self.written[first + number]
            raise
        assert (appended.base_offset, appended.duplicate) == (first, False)
        if producer_id >= 0:
            self.sequences[producer_id] += len(records)
        return first

    def append_transaction(self, log: PartitionLog) -> None:
        """A whole transaction, or all but its end."""
        producer_id = self.random.choice(PRODUCERS)
        first = open_transaction_of(log, producer_id)
        for _ in range(self.random.randint(1, 2)):
            written = self.write(log, self.records(), producer_id)
            first = written if first is None else first
        if self.random.random() < 0.8:
            commits = self.random.random() < 0.5
            end = (producer_id, first or 0, log.end_offset)
            self.aborted += [] if commits else [end]
            try:
                log.append_marker(producer_id, 0, commits=commits)
            except TooManyOpenFiles:
                self.aborted = [each for each in self.aborted if each != end]
                raise

    def restart_producers(self, log: PartitionLog) -> None:
        """Go on after the last sequence that was kept, as a producer that asks would."""
        known = {info.producer_id: info.last_sequence + 1 for info in log.producers()}
        self.sequences = {each: known.get(each, 0) for each in PRODUCERS}

    def check(self, log: PartitionLog) -> None:
        """What must hold whenever the log has been opened."""
        assert log.end_offset >= self.acknowledged_end, "no offset that was acknowledged is given again"
        assert log.start_offset >= self.acknowledged_start, "what was deleted stays deleted"
        end_offset = log.end_offset
        self.written = {offset: each for offset, each in self.written.items() if offset < end_offset}
        self.aborted = [each for each in self.aborted if each[2] < end_offset]
        self.acknowledged_end = end_offset
        self.check_readable(log)
        self.acknowledged_start = log.start_offset

    def check_readable(self, log: PartitionLog) -> None:
        found = read_all(log)
        for offset, each in found.items():
            assert self.written[offset] == each, f"offset {offset} has what was written there"
        voided = log.aborted_transactions(0, log.end_offset)
        table = committed_table(
            found, [(each.producer_id, each.first_offset, each.last_offset) for each in voided]
        )
        # What could not be written may come to light after a restart; as yet it is beyond the end.
        written = {offset: each for offset, each in self.written.items() if offset < log.end_offset}
        aborted = [each for each in self.aborted if each[2] < log.end_offset]
        if not self.settings.is_compacted:
            assert {offset: each for offset, each in written.items() if offset >= log.start_offset} == found
        elif log.start_offset == 0:
            assert table == committed_table(written, aborted)


def read_all(log: PartitionLog) -> Written:
    found: Written = {}
    offset = log.start_offset
    while data := log.read(offset, size_bytes_max=700):
        position = 0
        while position < len(data):
            header = read_header(data, position)
            if not header.is_control:
                for record in decode_records(data[position : position + header.size_bytes]):
                    if record.offset >= log.start_offset:
                        found[record.offset] = (record.key, record.value, header.producer_id)
            position += header.size_bytes
            offset = header.last_offset + 1
    return found


def committed_table(
    written: Written, aborted: list[tuple[int, int, int]]
) -> dict[bytes | None, bytes | None]:
    """The table of committed and open transactions; a key that was deleted is not in it."""
    table: dict[bytes | None, bytes | None] = {}
    for offset, (key, value, producer_id) in sorted(written.items()):
        if not any(each == producer_id and first <= offset < last for each, first, last in aborted):
            table[key] = value
    return {key: value for key, value in table.items() if value is not None}


@pytest.mark.parametrize("seed", range(0, STORY_COUNT, 12))
@pytest.mark.parametrize("can_fail", [False, True])
def test_what_is_kept_survives_every_crash_and_what_is_deleted_never_comes_back(
    seed: int, can_fail: bool, partition_dir: Path
) -> None:
    for each in range(seed + 1_000 * can_fail, seed + 1_000 * can_fail + 12):
        story = Story(each, partition_dir)
        try:
            for _ in range(LIVES_PER_STORY):
                story.live(can_fail=can_fail)
        except (AssertionError, HeadraceError, KeyError) as error:
            error.add_note(f"seed {each}")
            raise
