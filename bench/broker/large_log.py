"""Whether a large log is slower than a small one: appending, seeking, opening at 10 GB beside 100 MB.

    python bench/broker/large_log.py                 # needs 10 GB of disk, about 3 minutes
    python bench/broker/large_log.py --large-mb 2000

The log is used as the broker uses it, without the network: batches of 16 KB in segments of Kafka's default
size (1 GiB). Each figure is the median of several rounds, in which the two logs take turns. An append is a
write to the page cache. A seek is the look-up of a random offset, or of a random moment, and the read of the
batch that is there. Opening is what a restart costs after a clean stop. The first look-up in each segment
after that loads its indexes, which is measured apart from the seeks that follow.

Seeks are measured twice. First as the system has left the log: it may have dropped pages of a large one from
memory, and then a seek waits for the disk; how much came from there is counted. Then after the whole log was
read once, so that both are in memory, and the difference is what the look-up costs.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace.clock import SystemClock
from headrace.config import KIB, MIB, LogConfig
from headrace.log.batch import encode_batch
from headrace.log.partition import PartitionLog
from headrace.log.record import Record
from headrace.log.store import LogStore

TOPIC: Final = "bench"
RECORDS_PER_BATCH: Final = 16
RECORD_BYTES: Final = 1_000
BATCH_BYTES_MAX: Final = 1 * MIB
SYNC_EVERY: Final = 2_048
APPENDS: Final = 2_000
SEEKS: Final = 2_000
TIME_STEP_MS: Final = 10
"""How far apart the timestamps of two batches are."""


@dataclass
class Subject:
    """A log of some size, and what was measured on it."""

    directory: Path
    size_mb: int
    store: LogStore = field(init=False)
    batch_count: int = 0
    figures: dict[str, list[float]] = field(default_factory=dict)

    @property
    def log(self) -> PartitionLog:
        """The one partition."""
        return self.store.topics[TOPIC].partitions[0]

    def fill(self) -> None:
        """Make the log as large as it is to be."""
        self.store = LogStore.open(self.directory, LogConfig(), SystemClock())
        self.store.catalog.begin_creation(TOPIC, 1).at_once()
        while self.log.size_bytes < self.size_mb * 1_000_000:
            self.append()
            if self.batch_count % SYNC_EVERY == 0:
                self.log.sync()
        self.log.sync()

    def append(self) -> None:
        """Append one batch."""
        self._append(_batch(self.batch_count * TIME_STEP_MS))

    def _append(self, batch: bytes) -> None:
        self.log.append(batch, size_bytes_max=BATCH_BYTES_MAX)
        self.batch_count += 1

    def open_again(self) -> None:
        """Close the store, then measure how long it takes to open."""
        self.store.close()
        self._measure("open, us", 1, self._open)

    def _open(self) -> None:
        self.store = LogStore.open(self.directory, LogConfig(), SystemClock())

    def measure_round(self, chance: random.Random) -> None:
        """One round of everything but opening."""
        batches = [_batch((self.batch_count + number) * TIME_STEP_MS) for number in range(APPENDS)]
        self._measure("append a batch of 16 KB, us", APPENDS, lambda: self._append(batches.pop(0)))
        self.log.sync()
        self._measure("first look-up in a segment, us", len(self.log.segments), self._look_up_first())
        before_bytes = _bytes_from_disk()
        self._measure("seek an offset, as found, us", SEEKS, lambda: self._seek_offset(chance))
        self._measure("seek a moment, as found, us", SEEKS, lambda: self._seek_moment(chance))
        from_disk_kib = (_bytes_from_disk() - before_bytes) / KIB / (2 * SEEKS)
        self.figures.setdefault("from disk for a seek, as found, KiB", []).append(from_disk_kib)
        self._read_through()
        self._measure("seek an offset, in memory, us", SEEKS, lambda: self._seek_offset(chance))
        self._measure("seek a moment, in memory, us", SEEKS, lambda: self._seek_moment(chance))

    def _read_through(self) -> None:
        """Have all batches in memory."""
        for segment in self.log.segments:
            with segment.path.open("rb", buffering=0) as file:
                while file.read(BATCH_BYTES_MAX):
                    pass

    def _look_up_first(self) -> Callable[[], None]:
        """Look something up in a segment, in the next one each time."""
        offsets = [segment.base_offset for segment in self.log.segments]
        return lambda: self._read(offsets.pop())

    def _seek_offset(self, chance: random.Random) -> None:
        self._read(chance.randrange(self.log.start_offset, self.log.end_offset))

    def _read(self, offset: int) -> None:
        if not self.log.read(offset, size_bytes_max=1):
            raise SystemExit(f"there is nothing at offset {offset}")

    def _seek_moment(self, chance: random.Random) -> None:
        if self.log.offset_for_timestamp(chance.randrange((self.batch_count - 1) * TIME_STEP_MS)) is None:
            raise SystemExit("there is nothing at that moment")

    def _measure(self, name: str, count: int, work: Callable[[], None]) -> None:
        begin_s = time.perf_counter()
        for _ in range(count):
            work()
        elapsed_s = time.perf_counter() - begin_s
        self.figures.setdefault(name, []).append(elapsed_s / count * 1e6)


def main() -> None:
    """Fill both logs, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--small-mb", type=int, default=100)
    parser.add_argument("--large-mb", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        subjects = [
            Subject(Path(name) / str(size_mb), size_mb) for size_mb in (options.small_mb, options.large_mb)
        ]
        for subject in subjects:
            subject.fill()
        chance = random.Random(7)
        for _ in range(options.rounds):
            for subject in subjects:
                subject.open_again()
                subject.measure_round(chance)
        for subject in subjects:
            subject.store.close()
    print(_table(*subjects))


def _table(small: Subject, large: Subject) -> str:
    lines = [f"| | {small.size_mb:,} MB | {large.size_mb:,} MB | ratio |", "|---|---|---|---|"]
    for name in small.figures:
        one, other = (statistics.median(each.figures[name]) for each in (small, large))
        ratio = f"{other / one:.2f}" if one else ""
        lines.append(f"| {name} | {one:,.1f} | {other:,.1f} | {ratio} |")
    return "\n".join(lines)


def _bytes_from_disk() -> int:
    """What this process has had read from disk so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("read_bytes:")).split()[1])


def _batch(timestamp_ms: int) -> bytes:
    value = bytes(RECORD_BYTES)
    return encode_batch(
        [Record(timestamp_ms=timestamp_ms, key=None, value=value) for _ in range(RECORDS_PER_BATCH)]
    )


if __name__ == "__main__":
    main()
