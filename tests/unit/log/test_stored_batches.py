"""Batches that are given out unread: the same bytes, checked as those that are read at once."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headrace.errors import CorruptBatch, StorageError
from headrace.log.partition import PartitionLog
from headrace.log.stored_batches import Lending, StoredBatches
from headrace.testing.disk import SimulatedDisk

MakeBatch = Callable[..., bytes]
OpenPartition = Callable[..., PartitionLog]
OpenLending = Callable[[], PartitionLog]
SIZE_MAX = 1_000_000
BATCH_COUNT = 40
ALL = 1 << 20


@pytest.fixture
def open_lending(open_partition: OpenPartition) -> OpenLending:
    """Open the partition so that little is lent already, in small pieces."""
    lending = Lending(size_bytes_min=500, piece_bytes=300)
    return lambda: open_partition(segment_bytes_max=1_500, lending=lending)


@pytest.fixture
def log(open_lending: OpenLending, make_batch: MakeBatch) -> PartitionLog:
    """A log of several segments."""
    return _filled(open_lending(), make_batch)


def _filled(log: PartitionLog, make_batch: MakeBatch) -> PartitionLog:
    for number in range(BATCH_COUNT):
        log.append(make_batch(2, value=bytes([number]) * (number % 7 * 10)), size_bytes_max=SIZE_MAX)
    log.sync()
    return log


def _path(directory: Path) -> Path:
    return directory / f"{0:020d}.log"


def test_what_is_lent_is_what_is_read(log: PartitionLog, open_lending: OpenLending) -> None:
    chance = Random(3)
    kinds = set()
    log.close()
    log = open_lending()
    for _ in range(300):
        offset = chance.randrange(log.end_offset)
        wanted: dict[str, Any] = {
            "size_bytes_max": chance.choice((0, 400, 700, ALL)),
            "below_offset": chance.choice((None, chance.randrange(log.end_offset + 1))),
        }
        lent = log.lend(offset, **wanted)
        kinds.add(type(lent))
        expected = log.read(offset, **wanted)
        assert len(lent) == len(expected)
        if isinstance(lent, StoredBatches):
            pieces = list(lent.pieces())
            assert max(map(len, pieces)) <= 300
            assert lent.read() == b"".join(pieces) == expected
        else:
            assert lent == expected
    assert kinds == {bytes, StoredBatches}


def test_what_nobody_has_checked_is_not_lent_before_it_was_read_once(
    log: PartitionLog, open_lending: OpenLending
) -> None:
    log.close()
    log = open_lending()
    first = log.lend(0, size_bytes_max=ALL)
    assert isinstance(first, bytes)
    second = log.lend(0, size_bytes_max=ALL)
    assert isinstance(second, StoredBatches)
    assert second.read() == first


def test_damage_is_not_lent(
    log: PartitionLog, open_lending: OpenLending, disk: SimulatedDisk, partition_dir: Path
) -> None:
    log.close()
    content = bytearray(disk.content(_path(partition_dir)))
    content[-1] ^= 1
    disk.overwrite(_path(partition_dir), bytes(content))
    log = open_lending()
    sound = log.lend(0, size_bytes_max=ALL)
    assert isinstance(sound, bytes)
    assert content.startswith(sound)
    assert len(sound) < len(content)


def test_a_file_that_has_lost_its_end_is_not_lent(
    log: PartitionLog, disk: SimulatedDisk, partition_dir: Path
) -> None:
    content = disk.content(_path(partition_dir))
    assert isinstance(log.lend(0, size_bytes_max=ALL), StoredBatches)
    disk.overwrite(_path(partition_dir), content[:-1])
    shorter = log.lend(0, size_bytes_max=ALL)
    assert isinstance(shorter, bytes)
    assert len(shorter) < len(content)


@pytest.mark.parametrize("failure", ["error", "end"])
def test_a_disk_that_fails_in_between_is_told_and_whoever_comes_next_reads_at_once(
    log: PartitionLog, disk: SimulatedDisk, partition_dir: Path, failure: str
) -> None:
    lent = log.lend(0, size_bytes_max=ALL)
    assert isinstance(lent, StoredBatches)
    pieces = lent.pieces()
    content = disk.content(_path(partition_dir))
    assert next(pieces) == content[:300]
    if failure == "error":
        disk.fail("read")
    else:
        disk.overwrite(_path(partition_dir), content[:400])
    with pytest.raises(StorageError if failure == "error" else CorruptBatch):
        next(pieces)
    disk.heal()
    disk.overwrite(_path(partition_dir), content)
    assert log.lend(0, size_bytes_max=ALL) == content


def test_what_is_lent_can_be_sent_as_far_as_a_socket_takes_it_and_read_from_there_on(
    log: PartitionLog, disk: SimulatedDisk, partition_dir: Path
) -> None:
    content = disk.content(_path(partition_dir))
    lent = log.lend(0, size_bytes_max=ALL)
    assert isinstance(lent, StoredBatches)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        assert lent.send(ours.fileno(), len(content)) == len(content)
        assert theirs.recv(2 * len(content)) == content
    rest = lent.after(700)
    assert len(rest) == len(content) - 700
    assert rest.read() == content[700:]


def test_what_is_held_is_there_whatever_becomes_of_its_segment_until_it_is_let_go_of(
    log: PartitionLog, disk: SimulatedDisk, partition_dir: Path
) -> None:
    content = disk.content(_path(partition_dir))
    lent = log.lend(0, size_bytes_max=ALL)
    assert isinstance(lent, StoredBatches)
    held = lent.hold()
    log.close()
    disk.unlink(_path(partition_dir))
    assert disk.open_file_count == 1
    assert held.read() == content
    assert held.after(700).read() == content[700:]
    held.let_go()
    assert disk.open_file_count == 0


def test_what_can_not_be_opened_is_not_sent_and_told_when_it_is_read(
    log: PartitionLog, disk: SimulatedDisk
) -> None:
    lent = log.lend(0, size_bytes_max=ALL)
    assert isinstance(lent, StoredBatches)
    for segment in log.segments:
        segment.close()
    disk.fail("open")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert lent.send(ours.fileno(), ALL) == 0
    disk.fail("open")
    with pytest.raises(StorageError):
        lent.read()


def test_a_file_that_was_closed_to_make_room_is_opened_again(
    log: PartitionLog, disk: SimulatedDisk, partition_dir: Path
) -> None:
    lent = log.lend(0, size_bytes_max=ALL)
    assert isinstance(lent, StoredBatches)
    for segment in log.segments:
        segment.close()
    assert disk.open_file_count == 0
    assert lent.read() == disk.content(_path(partition_dir))
