"""What a checkpoint's files say was processed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headrace.errors import ConfigError
from headrace.streams.progress_log import format_offsets, has_batch, parse_offsets, read_progress_log

SETTINGS = '{"batchWatermarkMs":%d,"batchTimestampMs":9,"conf":{"spark.sql.shuffle.partitions":"2"}}'


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    write(tmp_path / "sources" / "0" / "0", '\0v1\n{"orders":{"0":5}}')
    for batch, end in enumerate((7, 9)):
        ends = format_offsets({("orders", 0): end, ("orders", 1): 3})
        write(tmp_path / "offsets" / str(batch), f"v1\n{SETTINGS % (batch * 1000)}\n{ends}")
        write(tmp_path / "offsets" / f".{batch}.crc", "x")
    write(tmp_path / "commits" / "0", "v1\n{}")
    return tmp_path


def test_a_checkpoint_says_where_it_began_and_what_is_done(checkpoint: Path) -> None:
    log = read_progress_log(checkpoint)

    assert log.starts == ({("orders", 0): 5},)
    assert log.committed == 0
    assert log.next_batch == 1
    assert log.last_committed is not None
    assert log.last_committed.ends == ({("orders", 0): 7, ("orders", 1): 3},)


def test_a_batch_begins_where_the_one_before_ended(checkpoint: Path) -> None:
    log = read_progress_log(checkpoint)

    assert [log.start_of(batch) for batch in log.batches] == [log.starts, log.batches[0].ends]
    assert [batch.watermark_ms for batch in log.batches] == [0, 1000]
    assert log.batches[0].shuffle_partition_count == 2


def test_where_a_batch_began_is_unknown_once_the_one_before_was_removed(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "0").unlink()

    log = read_progress_log(checkpoint)

    assert log.start_of(log.batches[0]) is None


def test_a_source_that_had_nothing_yet_is_a_dash(checkpoint: Path) -> None:
    write(checkpoint / "offsets" / "0", f"v1\n{SETTINGS % 0}\n-\n" + '{"orders":{"0":7}}')

    assert read_progress_log(checkpoint).batches[0].ends == ({}, {("orders", 0): 7})


def test_a_checkpoint_with_its_first_batch_is_one_to_go_on_from(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "1").unlink()

    assert has_batch(checkpoint)


def test_a_checkpoint_without_a_batch_is_none(tmp_path: Path) -> None:
    assert not has_batch(tmp_path)
    log = read_progress_log(tmp_path)
    assert (log.committed, log.last_committed, log.next_batch) == (None, None, 0)


@pytest.mark.parametrize("content", ["", "v9\n{}\n{}", "v1\nno json\n", "v1\n{}\n[]"])
def test_a_file_that_can_not_be_read_is_told_with_the_way_out(checkpoint: Path, content: str) -> None:
    write(checkpoint / "offsets" / "1", content)

    with pytest.raises(ConfigError, match=r"is not a checkpoint that can be read .* remove it to start anew"):
        read_progress_log(checkpoint)


@pytest.mark.parametrize("seed", range(50))
def test_offsets_are_read_as_they_are_written(seed: int) -> None:
    chance = random.Random(seed)
    offsets = {
        (chance.choice(["orders", "a.b-c", "x"]), chance.randint(0, 200)): chance.randint(0, 2**62)
        for _ in range(chance.randint(0, 20))
    }

    assert parse_offsets(format_offsets(offsets)) == offsets
