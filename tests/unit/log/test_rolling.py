"""When a new segment begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from headrace.config import DAY_MS
from headrace.log.partition import PartitionLog
from headrace.log.rolling import Rolling
from headrace.log.topic_settings import TopicSettings
from headrace.testing.clock import ManualClock
from headrace.testing.disk import SimulatedDisk
from headrace.testing.partition import open_log

MakeBatch = Callable[..., bytes]
SIZE_MAX = 1_000_000


class Rolled:
    """A partition on a disk in memory, and where its segments begin."""

    def __init__(self, directory: Path, **settings: int | str | tuple[str, ...]) -> None:
        self.clock = ManualClock()
        self.disk = SimulatedDisk()
        self._directory = directory
        self._settings = TopicSettings(**settings)  # type: ignore[arg-type] # Each test knows its own.
        self.log = self._open()

    def _open(self) -> PartitionLog:
        return open_log(self._directory, self._settings, self.clock, disk=self.disk)

    def restart(self) -> None:
        self.log.close()
        self.log = self._open()

    def append(self, *batches: bytes) -> None:
        for batch in batches:
            self.log.append(batch, size_bytes_max=SIZE_MAX)

    @property
    def bases(self) -> list[int]:
        self.log.sync()
        return [int(name[:20]) for name in self.disk.names(self._directory) if name.endswith(".log")]


@pytest.fixture
def rolled(partition_dir: Path) -> Callable[..., Rolled]:
    return lambda **settings: Rolled(partition_dir, **settings)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_segment_spans_no_more_time_than_it_may_by_its_records(
    rolled: Callable[..., Rolled], make_batch: MakeBatch, restarts: bool
) -> None:
    case = rolled(segment_ms=100)
    case.append(make_batch(at=1000), make_batch(at=1100), make_batch(at=500))
    case.clock.advance(DAY_MS)
    if restarts:
        case.restart()
    case.append(make_batch(at=1099), make_batch(at=1101), make_batch(at=1201), make_batch(at=1202))
    assert case.bases == [0, 4, 6]


def test_the_clock_counts_where_records_have_no_time(
    rolled: Callable[..., Rolled], make_batch: MakeBatch
) -> None:
    case = rolled(segment_ms=100)
    case.append(make_batch(at=-1))
    case.clock.advance(100)
    case.append(make_batch(at=-1))
    case.clock.advance(1)
    case.append(make_batch(at=-1))
    assert case.bases == [0, 2]


def test_a_compacted_topic_rolls_so_that_nothing_is_compacted_too_late(
    rolled: Callable[..., Rolled], make_batch: MakeBatch
) -> None:
    for policy, expected in ((("compact",), [0, 2]), (("delete",), [0])):
        case = rolled(cleanup_policy=policy, max_compaction_lag_ms=50)
        case.append(make_batch(at=1000), make_batch(at=1050), make_batch(at=1051))
        assert case.bases == expected


def test_an_index_has_no_more_entries_than_its_file_may_have(
    rolled: Callable[..., Rolled], make_batch: MakeBatch
) -> None:
    case = rolled(segment_index_bytes=40, index_interval_bytes=0)
    case.append(*(make_batch(at=1000) for _ in range(12)))
    assert case.bases == [0, 6]
    case = rolled(segment_index_bytes=60, index_interval_bytes=0)
    case.append(*(make_batch(at=1000 + number) for number in range(12)))
    assert case.bases == [0, 5, 10]


def test_jitter_shortens_the_time_by_chance_and_never_by_all_of_it() -> None:
    settings = TopicSettings(segment_ms=100, segment_jitter_ms=1000)
    spans = {Rolling(settings, Random(seed))._span_ms_max for seed in range(1000)}
    assert spans == set(range(1, 101))


def test_new_settings_hold_for_the_segment_that_is_being_written(
    rolled: Callable[..., Rolled], make_batch: MakeBatch
) -> None:
    case = rolled()
    case.append(make_batch(at=1000), make_batch(at=2000))
    case.log.change_settings(TopicSettings(segment_ms=100))
    case.append(make_batch(at=2000))
    assert case.bases == [0, 2]
