from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from subprocess import run

import pytest

from headrace.clock import Clock
from headrace.errors import CorruptBatch
from headrace.log.batch import read_header, split_batches
from headrace.log.durable_file import make_directory_durably
from headrace.log.partition import PartitionLog
from headrace.log.topic_settings import TopicSettings
from headrace.testing.disk import SimulatedDisk
from headrace.testing.partition import open_log

MakeBatch = Callable[..., bytes]
OpenPartition = Callable[..., PartitionLog]
SIZE_MAX = 1_000_000
ONE_SEGMENT = 1_000_000


def _segment(directory: Path, base_offset: int = 0, suffix: str = "log") -> Path:
    return directory / f"{base_offset:020d}.{suffix}"


def _read_all(log: PartitionLog) -> list[bytes]:
    batches: list[bytes] = []
    offset = log.start_offset
    while data := log.read(offset, size_bytes_max=200):
        batches += [bytes(batch.data) for batch in split_batches(data, SIZE_MAX)]
        offset = read_header(batches[-1]).last_offset + 1
    return batches


@pytest.fixture
def three_batches(
    open_partition: OpenPartition, make_batch: MakeBatch, disk: SimulatedDisk, partition_dir: Path
) -> bytes:
    """An active segment of three batches, closed; its bytes."""
    log = open_partition(ONE_SEGMENT)
    for count in (2, 1, 3):
        log.append(make_batch(count), size_bytes_max=SIZE_MAX)
    log.close()
    return disk.content(_segment(partition_dir))


@pytest.fixture
def sealed_segment(
    open_partition: OpenPartition, make_batch: MakeBatch, disk: SimulatedDisk, partition_dir: Path
) -> bytes:
    """A sealed segment of four batches, with another segment after it, closed; the first one's bytes."""
    log = open_partition()
    for n in range(6):
        log.append(make_batch(2, at=10 * n, value=b"x" * 80), size_bytes_max=SIZE_MAX)
    log.close()
    assert disk.names(partition_dir) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000000.txnindex",
        "00000000000000000008.log",
        "00000000000000000008.snapshot",
        "checkpoint",
    ]
    return disk.content(_segment(partition_dir))


def _ends(segment: bytes) -> list[int]:
    ends = [0]
    while ends[-1] < len(segment):
        ends.append(ends[-1] + read_header(segment, ends[-1]).size_bytes)
    return ends


def test_a_segment_cut_short_anywhere_keeps_the_batches_that_are_whole(
    open_partition: OpenPartition, disk: SimulatedDisk, partition_dir: Path, three_batches: bytes
) -> None:
    ends = _ends(three_batches)
    for size_bytes in range(len(three_batches)):
        disk.overwrite(_segment(partition_dir), three_batches[:size_bytes])
        log = open_partition(ONE_SEGMENT)
        whole = max(end for end in ends if end <= size_bytes)
        assert b"".join(_read_all(log)) == three_batches[:whole]
        assert (log.cut is None) == (size_bytes == whole)
        log.close()
        assert disk.content(_segment(partition_dir)) == three_batches[:whole]


def test_a_cut_says_how_many_bytes_and_from_which_offset(
    open_partition: OpenPartition,
    disk: SimulatedDisk,
    partition_dir: Path,
    three_batches: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk.overwrite(_segment(partition_dir), three_batches[:-5])
    cut = open_partition(ONE_SEGMENT).cut
    assert cut is not None
    last = _ends(three_batches)[-2]
    assert (cut.position, cut.cut_bytes, cut.next_offset) == (last, len(three_batches) - 5 - last, 3)
    assert f"cut {cut.cut_bytes} bytes, from byte {last} and offset 3 on" in caplog.text


def test_offsets_go_on_after_a_cut(
    open_partition: OpenPartition,
    make_batch: MakeBatch,
    disk: SimulatedDisk,
    partition_dir: Path,
    three_batches: bytes,
) -> None:
    disk.overwrite(_segment(partition_dir), three_batches[:-5])
    log = open_partition(ONE_SEGMENT)
    assert log.append(make_batch(), size_bytes_max=SIZE_MAX).base_offset == 3
    log.close()
    assert open_partition(ONE_SEGMENT).end_offset == 4


@pytest.mark.parametrize("tail", [bytes(700), b"\xff" * 700, b"\x00\x00\x00\x00\x02" * 140])
def test_garbage_after_the_last_batch_is_cut(
    open_partition: OpenPartition,
    disk: SimulatedDisk,
    partition_dir: Path,
    three_batches: bytes,
    tail: bytes,
) -> None:
    disk.overwrite(_segment(partition_dir), three_batches + tail)
    log = open_partition(ONE_SEGMENT)
    assert log.end_offset == 6
    assert log.cut is not None
    assert log.cut.cut_bytes == len(tail)


def test_a_flipped_bit_in_the_last_batch_cuts_it(
    open_partition: OpenPartition, disk: SimulatedDisk, partition_dir: Path, three_batches: bytes
) -> None:
    last = _ends(three_batches)[-2]
    for position in range(last, len(three_batches)):
        flipped = bytearray(three_batches)
        flipped[position] ^= 1 << position % 8
        disk.overwrite(_segment(partition_dir), bytes(flipped))
        log = open_partition(ONE_SEGMENT)
        assert b"".join(_read_all(log)) == three_batches[:last]
        log.close()


def test_a_flipped_bit_before_the_last_batch_stops_with_the_place_named(
    open_partition: OpenPartition, disk: SimulatedDisk, partition_dir: Path, three_batches: bytes
) -> None:
    ends = _ends(three_batches)
    for position in range(ends[-2]):
        flipped = bytearray(three_batches)
        flipped[position] ^= 1 << position % 8
        disk.overwrite(_segment(partition_dir), bytes(flipped))
        begin = max(end for end in ends if end <= position)
        offset = 0 if begin == 0 else 2
        with pytest.raises(
            CorruptBatch, match=rf"00\.log, byte {begin}, offset {offset}: .*Restore the file"
        ):
            open_partition(ONE_SEGMENT)
        assert disk.content(_segment(partition_dir)) == bytes(flipped)


def test_a_lost_stretch_in_the_middle_is_not_cut(
    open_partition: OpenPartition, disk: SimulatedDisk, partition_dir: Path, three_batches: bytes
) -> None:
    ends = _ends(three_batches)
    for damaged in (
        three_batches[: ends[1]] + bytes(ends[2] - ends[1]) + three_batches[ends[2] :],
        three_batches[: ends[1]] + three_batches[ends[2] :],
        three_batches[: ends[1] + 7] + three_batches[ends[2] :],
    ):
        disk.overwrite(_segment(partition_dir), damaged)
        if damaged == three_batches[: ends[1]] + three_batches[ends[2] :]:
            # The last batch alone is out of place: no batch comes after the one that can't be right.
            assert open_partition(ONE_SEGMENT).end_offset == 2
        else:
            with pytest.raises(CorruptBatch, match="offset 2"):
                open_partition(ONE_SEGMENT)


def test_a_repeated_batch_is_never_served(
    open_partition: OpenPartition, disk: SimulatedDisk, partition_dir: Path, three_batches: bytes
) -> None:
    ends = _ends(three_batches)
    disk.overwrite(_segment(partition_dir), three_batches + three_batches[ends[2] :])
    assert b"".join(_read_all(open_partition(ONE_SEGMENT))) == three_batches


def test_missing_index_files_are_made_again(
    open_partition: OpenPartition, disk: SimulatedDisk, partition_dir: Path, sealed_segment: bytes
) -> None:
    for suffixes in (["index"], ["timeindex"], ["index", "timeindex"]):
        kept = {suffix: disk.content(_segment(partition_dir, 0, suffix)) for suffix in suffixes}
        for suffix in suffixes:
            disk.unlink(_segment(partition_dir, 0, suffix))
        log = open_partition()
        assert b"".join(_read_all(log)).startswith(sealed_segment)
        for suffix, content in kept.items():
            assert disk.content(_segment(partition_dir, 0, suffix)) == content
        log.close()


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_damaged_index_file_does_not_change_an_answer(
    open_partition: OpenPartition,
    disk: SimulatedDisk,
    partition_dir: Path,
    sealed_segment: bytes,
    suffix: str,
) -> None:
    path = _segment(partition_dir, 0, suffix)
    sound = disk.content(path)
    assert sound
    for bit in range(8 * len(sound)):
        flipped = bytearray(sound)
        flipped[bit // 8] ^= 1 << bit % 8
        disk.overwrite(path, bytes(flipped))
        log = open_partition()
        for offset in range(8):
            header = read_header(log.read(offset, size_bytes_max=1))
            assert header.base_offset <= offset <= header.last_offset
        for n in range(4):
            for time in (10 * n, 10 * n - 5):
                found = log.offset_for_timestamp(time)
                assert found is not None
                assert found.offset == 2 * n
        log.close()


def test_damage_in_a_sealed_segment_is_never_served_and_the_rest_is(
    open_partition: OpenPartition, disk: SimulatedDisk, partition_dir: Path, sealed_segment: bytes
) -> None:
    ends = _ends(sealed_segment)
    attributes_at, delta_at, timestamps_at = (ends[1] + relative for relative in (21, 23, 27))
    for position in (*range(attributes_at, delta_at), *range(timestamps_at, ends[2])):
        flipped = bytearray(sealed_segment)
        flipped[position] ^= 1 << position % 8
        disk.overwrite(_segment(partition_dir), bytes(flipped))
        log = open_partition()
        with pytest.raises(CorruptBatch, match=rf"00\.log: offsets 2 to 3 are damaged: byte {ends[1]}: "):
            log.read(2, size_bytes_max=1)
        assert log.read(0, size_bytes_max=1) == sealed_segment[: ends[1]]
        assert log.read(4, size_bytes_max=SIZE_MAX) == sealed_segment[ends[2] :]
        log.close()


def test_damaged_offsets_and_lengths_in_a_sealed_segment_are_never_served(
    open_partition: OpenPartition, disk: SimulatedDisk, partition_dir: Path, sealed_segment: bytes
) -> None:
    ends = _ends(sealed_segment)
    for position in range(ends[1], ends[1] + 27):
        flipped = bytearray(sealed_segment)
        flipped[position] ^= 1 << position % 8
        disk.overwrite(_segment(partition_dir), bytes(flipped))
        with pytest.raises(CorruptBatch):
            open_partition().read(2, size_bytes_max=1)


def test_damage_in_an_unsealed_segment_before_a_sealed_one_is_not_cut(
    open_partition: OpenPartition,
    make_batch: MakeBatch,
    disk: SimulatedDisk,
    partition_dir: Path,
) -> None:
    log = open_partition()
    for _ in range(12):
        log.append(make_batch(2, value=b"x" * 80), size_bytes_max=SIZE_MAX)
    log.close()
    segment = disk.content(_segment(partition_dir))
    disk.overwrite(_segment(partition_dir), segment[:-1])
    disk.unlink(_segment(partition_dir, 0, "index"))
    with pytest.raises(CorruptBatch, match="not the torn end"):
        open_partition()
    assert _segment(partition_dir, 8).name in disk.names(partition_dir)


def test_segments_after_a_torn_one_were_never_promised_and_go(
    open_partition: OpenPartition, make_batch: MakeBatch, disk: SimulatedDisk, partition_dir: Path
) -> None:
    log = open_partition()
    for _ in range(10):
        log.append(make_batch(2, value=b"x" * 80), size_bytes_max=SIZE_MAX)
    assert log.durable_offset == 0
    first = disk.content(_segment(partition_dir))
    for torn in (first[:-1], first[: _ends(first)[2]]):
        crashed = SimulatedDisk()
        make_directory_durably(crashed, partition_dir)
        for name in disk.names(partition_dir):
            crashed.close(crashed.open(partition_dir / name))
            crashed.overwrite(partition_dir / name, disk.content(partition_dir / name))
        crashed.overwrite(_segment(partition_dir), torn)
        log = open_log(partition_dir, log.settings, log._clock, disk=crashed)
        assert log.end_offset == (6 if len(torn) > _ends(first)[2] else 4)
        assert crashed.names(partition_dir) == ["00000000000000000000.log"]
        assert log.cut is not None
        assert log.cut.cut_bytes > len(disk.content(_segment(partition_dir, 8)))


def test_a_sealed_segment_that_is_the_last_is_written_again_and_so_not_sealed(
    open_partition: OpenPartition,
    make_batch: MakeBatch,
    disk: SimulatedDisk,
    partition_dir: Path,
    sealed_segment: bytes,
) -> None:
    disk.unlink(_segment(partition_dir, 8))
    log = open_partition(ONE_SEGMENT)
    assert disk.names(partition_dir) == ["00000000000000000000.log"]
    assert log.append(make_batch(), size_bytes_max=SIZE_MAX).base_offset == 8
    log.close()
    disk.overwrite(_segment(partition_dir), disk.content(_segment(partition_dir))[:-1])
    assert open_partition(ONE_SEGMENT).end_offset == 8


def test_what_is_cut_off_does_not_come_back_with_the_next_crash(
    open_partition: OpenPartition, make_batch: MakeBatch, disk: SimulatedDisk, partition_dir: Path
) -> None:
    log = open_partition()
    for _ in range(5):
        log.append(make_batch(2, value=b"x" * 80), size_bytes_max=SIZE_MAX)
    disk.sync_directory(partition_dir)
    first = disk.content(_segment(partition_dir))
    disk.overwrite(_segment(partition_dir), first[: _ends(first)[3]])
    disk.kill()
    log = open_partition()
    assert log.append(make_batch(2), size_bytes_max=SIZE_MAX).base_offset == 6
    log.sync()
    for seed in range(10):
        disk.crash(Random(seed))
        assert disk.names(partition_dir) == ["00000000000000000000.log"]
        assert open_partition().end_offset == 8


def test_segments_that_overlap_are_not_touched(
    open_partition: OpenPartition, disk: SimulatedDisk, partition_dir: Path, sealed_segment: bytes
) -> None:
    disk.rename(_segment(partition_dir, 8), _segment(partition_dir, 6))
    with pytest.raises(CorruptBatch, match="base offset 8 where 6 was expected"):
        open_partition()


def test_a_log_may_begin_above_zero(
    open_partition: OpenPartition, disk: SimulatedDisk, partition_dir: Path, sealed_segment: bytes
) -> None:
    assert sealed_segment
    for suffix in ("log", "index", "timeindex"):
        disk.unlink(_segment(partition_dir, 0, suffix))
    log = open_partition()
    assert (log.start_offset, log.end_offset) == (8, 12)


def test_duplicates_are_recognised_after_a_restart_in_any_segment(
    open_partition: OpenPartition, make_batch: MakeBatch
) -> None:
    log = open_partition()
    early = make_batch(2, value=b"x" * 80, producer=(1, 0, 0))
    log.append(early, size_bytes_max=SIZE_MAX)
    late = [make_batch(2, value=b"x" * 80, producer=(2, 0, 2 * n)) for n in range(8)]
    written = [log.append(batch, size_bytes_max=SIZE_MAX) for batch in late]
    log.close()
    log = open_partition()
    assert log.append(early, size_bytes_max=SIZE_MAX).base_offset == 0
    for batch, first in zip(late[-5:], written[-5:], strict=True):
        again = log.append(batch, size_bytes_max=SIZE_MAX)
        assert (again.duplicate, again.base_offset) == (True, first.base_offset)
    assert log.end_offset == 18


def test_the_command_that_the_error_names_gives_up_what_is_after_the_damage_and_nothing_else(
    tmp_path: Path, clock: Clock, make_batch: MakeBatch
) -> None:
    directory = tmp_path / "it's a directory" / "topic-0"
    settings = TopicSettings(segment_bytes=1024)
    log = open_log(directory, settings, clock)
    for _ in range(12):
        log.append(make_batch(2, value=b"x" * 80), size_bytes_max=SIZE_MAX)
    log.close()
    path = _segment(directory)
    content = bytearray(path.read_bytes())
    damaged = _ends(bytes(content))[1]
    content[damaged : damaged + 100] = bytes(100)
    path.write_bytes(content)
    # Without its index files, a segment is checked when the log is opened.
    _segment(directory, 0, "txnindex").unlink()
    with pytest.raises(CorruptBatch, match=f"truncate -s {damaged} {path.name}") as refusal:
        open_log(directory, settings, clock)
    command = str(refusal.value).partition(" run: ")[2]
    run(["/bin/sh", "-c", command], check=True, cwd=tmp_path)
    log = open_log(directory, settings, clock)
    assert (log.end_offset, log.cut) == (2, None)
    assert [each.name for each in directory.iterdir()] == [path.name]
    log.close()
