"""Random appends, syncs, crashes and restarts of a partition, held against a list of what was appended.

Each seed is a story of its own; a failure names it.
"""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from headrace.clock import Clock
from headrace.errors import HeadraceError, StorageError, TooManyOpenFiles
from headrace.log.batch import encode_batch, read_header, split_batches
from headrace.log.partition import PartitionLog
from headrace.log.record import Record
from headrace.log.topic_settings import TopicSettings
from headrace.testing.disk import PowerLoss, SimulatedDisk
from headrace.testing.partition import open_log

SIZE_MAX = 1_000_000
STORY_COUNT = 150
LIVES_PER_STORY = 4
STEPS_PER_LIFE_MAX = 25
PRODUCER_COUNT = 3


class Story:
    """One disk, a partition that is opened on it again and again, and what must be true of it."""

    def __init__(self, seed: int, directory: Path, clock: Clock) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk()
        self.directory = directory
        self.clock = clock
        self.settings = TopicSettings(
            segment_bytes=self.random.choice((1024, 2000, 4000)),
            index_interval_bytes=self.random.choice((1, 150, 1000)),
        )
        self.appended: list[bytes] = []
        """Every batch of this log as it lies on disk, in order; cut after a crash to what has survived."""
        self.acknowledged: list[bytes] = []
        """The batches of which a sync has returned."""
        self.sequences = [0] * PRODUCER_COUNT

    def live(self, *, can_fail: bool) -> None:
        """Open the log, check it, use it until the process is killed or the power goes."""
        if self.random.random() < 0.5:
            self.disk.lose_power_after(self.random.randint(0, 60))
        try:
            log = open_log(self.directory, self.settings, self.clock, disk=self.disk)
            self.check(log)
            for _ in range(self.random.randint(0, STEPS_PER_LIFE_MAX)):
                self.step(log, can_fail=can_fail)
        except PowerLoss:
            pass
        if self.random.random() < 0.3:
            self.disk.kill()
        else:
            self.disk.crash(self.random)

    def step(self, log: PartitionLog, *, can_fail: bool) -> None:
        action = self.random.random()
        if can_fail and action < 0.05:
            code = self.random.choice((errno.ENOSPC, errno.EIO))
            self.disk.fail(self.random.choice(("append", "sync_file", "sync_directory", "rename")), code)
        elif can_fail and action < 0.15:
            self.disk.fail(self.random.choice(("open", "sync_directory")), errno.EMFILE)
        elif action < 0.75:
            self.append(log)
        else:
            self.sync(log)

    def append(self, log: PartitionLog) -> None:
        """Append a batch, of an idempotent producer or of none, and perhaps the same one again."""
        count = self.random.randint(1, 4)
        producer_id = self.random.randint(-1, PRODUCER_COUNT - 1)
        idempotent = {}
        if producer_id >= 0:
            sequence = self.sequences[producer_id]
            idempotent = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            self.sequences[producer_id] += count
        value = self.random.randbytes(self.random.randint(0, 300))
        time = self.random.randint(0, 1000)
        batch = encode_batch([Record(timestamp_ms=time, key=None, value=value)] * count, **idempotent)
        expected = log.end_offset
        # The batch counts as appended even when the power goes meanwhile: it may survive, or not.
        self.appended.append(expected.to_bytes(8, "big") + batch[8:])
        try:
            written = log.append(batch, size_bytes_max=SIZE_MAX)
        except TooManyOpenFiles:
            # Certainly not written, so the next batch gets its offset, and its sequence.
            self.appended.pop()
            if producer_id >= 0:
                self.sequences[producer_id] -= count
            return
        except StorageError:
            return
        assert (written.base_offset, written.last_offset) == (expected, expected + count - 1)

    def sync(self, log: PartitionLog) -> None:
        try:
            log.sync()
        except StorageError:
            return
        assert log.durable_offset == log.end_offset
        self.acknowledged = _below(self.appended, log.durable_offset)

    def check(self, log: PartitionLog) -> None:
        """What must hold whenever the log has been opened."""
        found = _read_all(log)
        assert found == self.appended[: len(found)], "what is there is a prefix of what was appended"
        assert found[: len(self.acknowledged)] == self.acknowledged, "what was acknowledged is there"
        assert log.durable_offset == log.end_offset == _end(found), "what is there now stays"
        self.appended = found
        self.acknowledged = list(found)
        self.check_lookups(log)
        self.check_duplicates(log)

    def check_lookups(self, log: PartitionLog) -> None:
        headers = [read_header(batch) for batch in self.appended]
        for header in self.random.sample(headers, min(5, len(headers))):
            offset = self.random.randint(header.base_offset, header.last_offset)
            assert read_header(log.read(offset, size_bytes_max=1)) == header
        time = self.random.randint(0, 1100)
        first = next((header.base_offset for header in headers if header.max_timestamp_ms >= time), None)
        found = log.offset_for_timestamp(time)
        assert (None if found is None else found.offset) == first

    def check_duplicates(self, log: PartitionLog) -> None:
        """The last batches of each producer are recognised; then the producer goes on after them."""
        for producer_id in range(PRODUCER_COUNT):
            own = [batch for batch in self.appended if read_header(batch).producer_id == producer_id]
            for batch in own[-5:]:
                again = log.append(batch, size_bytes_max=SIZE_MAX)
                assert again.duplicate
                assert again.base_offset == read_header(batch).base_offset
            self.sequences[producer_id] = read_header(own[-1]).last_sequence + 1 if own else 0


def _read_all(log: PartitionLog) -> list[bytes]:
    batches: list[bytes] = []
    while data := log.read(_end(batches), size_bytes_max=500):
        batches += [bytes(batch.data) for batch in split_batches(data, SIZE_MAX)]
    return batches


def _end(batches: list[bytes]) -> int:
    return read_header(batches[-1]).last_offset + 1 if batches else 0


def _below(batches: list[bytes], offset: int) -> list[bytes]:
    return [batch for batch in batches if read_header(batch).last_offset < offset]


@pytest.mark.parametrize("seed", range(0, STORY_COUNT, 10))
def test_what_was_acknowledged_survives_every_crash(seed: int, clock: Clock, partition_dir: Path) -> None:
    for each in range(seed, seed + 10):
        story = Story(each, partition_dir, clock)
        try:
            for _ in range(LIVES_PER_STORY):
                story.live(can_fail=False)
        except (AssertionError, HeadraceError) as error:
            error.add_note(f"seed {each}")
            raise


@pytest.mark.parametrize("seed", range(1000, 1000 + STORY_COUNT, 10))
def test_what_was_acknowledged_survives_failing_writes_and_syncs(
    seed: int, clock: Clock, partition_dir: Path
) -> None:
    for each in range(seed, seed + 10):
        story = Story(each, partition_dir, clock)
        try:
            for _ in range(LIVES_PER_STORY):
                story.live(can_fail=True)
        except (AssertionError, HeadraceError) as error:
            error.add_note(f"seed {each}")
            raise
