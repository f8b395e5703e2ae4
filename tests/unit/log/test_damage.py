"""Damage to sealed segments: never served, named by its offsets, and the rest stays readable."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from headrace.errors import CorruptBatch
from headrace.log.batch import read_header
from headrace.log.partition import PartitionLog
from headrace.testing.disk import SimulatedDisk
from headrace.testing.partition import delete_records

MakeBatch = Callable[..., bytes]
OpenPartition = Callable[..., PartitionLog]
SIZE_MAX = 1_000_000
BATCH_COUNT = 5
OFFSETS = 2 * BATCH_COUNT


@pytest.fixture
def sealed(
    open_partition: OpenPartition,
    make_batch: MakeBatch,
    disk: SimulatedDisk,
    partition_dir: Path,
    request: pytest.FixtureRequest,
) -> list[bytes]:
    """The batches of a sealed segment, after which comes another with one batch.

    A test may say how many bytes lie between two entries of its index.
    """
    interval = getattr(request, "param", 100)
    log = open_partition(segment_bytes_max=100_000, index_interval_bytes=interval)
    for number in range(BATCH_COUNT):
        value = bytes([number]) * (30 + 10 * number)
        log.append(make_batch(2, at=[100 * number, 100 * number + 1], value=value), size_bytes_max=SIZE_MAX)
    log.roll_idle(log.end_offset)
    log.append(make_batch(2, at=900, value=b"next segment"), size_bytes_max=SIZE_MAX)
    log.close()
    content = disk.content(_path(partition_dir))
    batches = []
    while content:
        size = read_header(content).size_bytes
        batches.append(content[:size])
        content = content[size:]
    assert len(batches) == BATCH_COUNT
    return batches


def _path(directory: Path) -> Path:
    return directory / f"{0:020d}.log"


def readable(log: PartitionLog) -> dict[int, bytes]:
    """By offset, the batch that a reader gets first; nothing where it gets an error."""
    found = {}
    errors: list[str] = []
    for offset in range(OFFSETS + 2):
        try:
            data = log.read(offset, size_bytes_max=1)
        except CorruptBatch as error:
            errors.append(str(error))
            continue
        assert read_header(data).base_offset <= offset <= read_header(data).last_offset, "nobody is led past"
        found[offset] = data
    assert all(f"{0:020d}.log: offsets " in error for error in errors), "errors name the file and the offsets"
    return found


def check(
    disk: SimulatedDisk, directory: Path, log: PartitionLog, sealed: list[bytes], damaged: set[int]
) -> None:
    """All batches but those of these numbers can be read, one by one and in a row."""
    expected = {
        offset: batch
        for number, batch in enumerate(sealed)
        if number not in damaged
        for offset in (2 * number, 2 * number + 1)
    }
    found = readable(log)
    assert {offset: data for offset, data in found.items() if offset < OFFSETS} == expected
    assert OFFSETS in found, "the next segment is not concerned"
    for number in range(BATCH_COUNT):
        if number not in damaged:
            row = log.read(2 * number, size_bytes_max=SIZE_MAX)
            assert row.startswith(sealed[number])
            assert b"".join(sealed).find(row) >= 0, "what comes in one answer lies in a row"
    assert disk.names(directory)


_TELLING = [(7, 0), (7, 1), (0, 7), (11, 0), (8, 7), (23, 7), (26, 0), (26, 1)]
"""The lowest and highest bits of the base offset, the length and the last offset's delta."""


def test_a_flipped_bit_anywhere_costs_the_batch_that_it_is_in_and_no_other(
    open_partition: OpenPartition, disk: SimulatedDisk, partition_dir: Path, sealed: list[bytes]
) -> None:
    whole = b"".join(sealed)
    begin = 0
    random = Random(1)
    for number, batch in enumerate(sealed):
        header = [(position, bit) for position in range(61) for bit in range(8)]
        body = [(random.randrange(61, len(batch)), random.randrange(8)) for _ in range(8)]
        for position, bit in random.sample(header, 80) + body + _TELLING:
            content = bytearray(whole)
            content[begin + position] ^= 1 << bit
            disk.overwrite(_path(partition_dir), bytes(content))
            log = open_partition()
            check(disk, partition_dir, log, sealed, {number})
            log.close()
        begin += len(batch)


@pytest.mark.parametrize("interval", [1, 100_000])
def test_a_segment_that_has_lost_its_end_anywhere_says_so(
    open_partition: OpenPartition,
    disk: SimulatedDisk,
    partition_dir: Path,
    sealed: list[bytes],
    interval: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = b"".join(sealed)
    ends = [sum(map(len, sealed[:number])) for number in range(BATCH_COUNT + 1)]
    for size in (*range(0, len(whole), 41), *ends[:-1]):
        disk.overwrite(_path(partition_dir), whole[:size])
        log = open_partition(index_interval_bytes=interval)
        lost = {number for number in range(BATCH_COUNT) if ends[number + 1] > size}
        check(disk, partition_dir, log, sealed, lost)
        log.close()
    assert "has lost its end" in caplog.text


def test_bytes_that_were_added_at_the_end_are_not_read(
    open_partition: OpenPartition, disk: SimulatedDisk, partition_dir: Path, sealed: list[bytes]
) -> None:
    whole = b"".join(sealed)
    for added in (b"x", bytes(100), sealed[0], sealed[-1]):
        disk.overwrite(_path(partition_dir), whole + added)
        log = open_partition()
        check(disk, partition_dir, log, sealed, set())
        log.close()


def test_a_stretch_that_is_there_twice_is_not_served_twice(
    open_partition: OpenPartition, disk: SimulatedDisk, partition_dir: Path, sealed: list[bytes]
) -> None:
    """The file keeps its size: what was duplicated pushes the end out."""
    whole = b"".join(sealed)
    random = Random(2)
    for _ in range(60):
        begin = random.randrange(len(whole))
        end = random.randint(begin + 1, len(whole))
        content = (whole[:end] + whole[begin:end] + whole[end:])[: len(whole)]
        disk.overwrite(_path(partition_dir), content)
        log = open_partition()
        for offset, data in readable(log).items():
            if offset < OFFSETS:
                assert data == sealed[offset // 2]
        log.close()


@pytest.mark.parametrize("sealed", [1, 150, 4_096], indirect=True)
def test_a_segment_whose_last_batch_was_pushed_out_by_others_says_so(
    open_partition: OpenPartition, disk: SimulatedDisk, partition_dir: Path, sealed: list[bytes]
) -> None:
    whole, pushed_bytes = b"".join(sealed), len(sealed[-1])
    for end in range(pushed_bytes, len(whole) - pushed_bytes + 1, 7):
        content = whole[:end] + whole[end - pushed_bytes : -pushed_bytes]
        assert len(content) == len(whole)
        disk.overwrite(_path(partition_dir), content)
        log = open_partition()
        found = readable(log)
        assert not {OFFSETS - 2, OFFSETS - 1} & set(found)
        assert all(found[offset] == sealed[offset // 2] for offset in found if offset < OFFSETS)
        assert OFFSETS in found, "the next segment is not concerned"
        log.close()


@pytest.mark.parametrize("sealed", [1, 150, 4_096], indirect=True)
def test_a_stretch_that_is_written_over_leads_nobody_past_what_it_has_destroyed(
    open_partition: OpenPartition, disk: SimulatedDisk, partition_dir: Path, sealed: list[bytes]
) -> None:
    """Zeros may leave a batch whole but for its base offset, which its checksum does not cover."""
    whole = b"".join(sealed)
    ends = [sum(map(len, sealed[:number])) for number in range(BATCH_COUNT + 1)]
    random = Random(3)
    stretches = [(ends[number] + 70, ends[number + 1] + 8) for number in range(BATCH_COUNT - 1)]
    stretches += [(random.randrange(len(whole)), len(whole)) for _ in range(20)]
    stretches += [(begin, random.randint(begin, end)) for begin, end in stretches[-20:] for _ in range(5)]
    for begin, end in stretches:
        disk.overwrite(_path(partition_dir), whole[:begin] + bytes(end - begin) + whole[end:])
        log = open_partition()
        for offset, data in readable(log).items():
            if offset < OFFSETS:
                assert data == sealed[offset // 2]
        log.close()


def test_damage_to_several_batches_and_to_the_indexes_leaves_the_rest_readable(
    open_partition: OpenPartition, disk: SimulatedDisk, partition_dir: Path, sealed: list[bytes]
) -> None:
    whole = bytearray(b"".join(sealed))
    ends = [sum(map(len, sealed[:number])) for number in range(BATCH_COUNT + 1)]
    for number in (1, 3):
        whole[ends[number] + 9] ^= 0xFF
    for suffix in ("index", "timeindex", "txnindex"):
        path = partition_dir / f"{0:020d}.{suffix}"
        content = disk.content(path)
        disk.overwrite(_path(partition_dir), bytes(whole))
        disk.overwrite(path, bytes(byte ^ 0x55 for byte in content))
        log = open_partition()
        check(disk, partition_dir, log, sealed, {1, 3})
        log.close()
        disk.overwrite(path, content)


def test_searches_by_time_go_around_damage(
    open_partition: OpenPartition, disk: SimulatedDisk, partition_dir: Path, sealed: list[bytes]
) -> None:
    whole = bytearray(b"".join(sealed))
    whole[len(sealed[0]) + 10] ^= 0xFF
    disk.overwrite(_path(partition_dir), bytes(whole))
    log = open_partition()
    found = [log.offset_for_timestamp(time) for time in (0, 50, 101, 201, 850)]
    assert [each.offset if each else None for each in found] == [0, 4, 4, 5, 10]
    delete_records(log, 2)
    assert (highest := log.max_timestamp()) is not None
    assert highest.timestamp_ms == 900


def test_damage_is_said_once_with_its_place(
    open_partition: OpenPartition,
    disk: SimulatedDisk,
    partition_dir: Path,
    sealed: list[bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = bytearray(b"".join(sealed))
    whole[len(sealed[0]) + 70] ^= 1
    disk.overwrite(_path(partition_dir), bytes(whole))
    log = open_partition()
    for _ in range(3):
        with pytest.raises(CorruptBatch, match="offsets 2 to 3 are damaged"):
            log.read(2, size_bytes_max=1)
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert f"byte {len(sealed[0])}" in errors[0].getMessage()
