"""One driver at a time on a checkpoint."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.config import StreamsConfig
from headrace.errors import DataDirectoryInUse
from headrace.streams.checkpoint import (
    checkpoint_path,
    clear_unfinished_writes,
    lock_checkpoint,
    try_lock_checkpoint,
)


def test_a_checkpoint_lies_below_the_data_directory(tmp_path: Path) -> None:
    assert checkpoint_path(StreamsConfig(data_dir=tmp_path), "alerts") == tmp_path / "checkpoints" / "alerts"


def test_a_checkpoint_that_is_in_use_is_refused(tmp_path: Path) -> None:
    config = StreamsConfig(data_dir=tmp_path)
    with ExitStack() as first, ExitStack() as second:
        lock_checkpoint(config, "alerts", first)

        with pytest.raises(DataDirectoryInUse, match="alerts is running already"):
            lock_checkpoint(config, "alerts", second)
        assert not try_lock_checkpoint(config, "alerts", second)


def test_another_checkpoint_is_free(tmp_path: Path) -> None:
    config = StreamsConfig(data_dir=tmp_path)
    with ExitStack() as held:
        lock_checkpoint(config, "alerts", held)
        lock_checkpoint(config, "others", held)


def test_a_checkpoint_is_free_again_when_its_holder_lets_go(tmp_path: Path) -> None:
    config = StreamsConfig(data_dir=tmp_path)
    with ExitStack() as first:
        lock_checkpoint(config, "alerts", first)

    with ExitStack() as second:
        assert try_lock_checkpoint(config, "alerts", second)


def test_only_what_a_query_had_not_finished_writing_is_cleared(tmp_path: Path) -> None:
    finished = [tmp_path / log / name for log in ("offsets", "commits") for name in ("0", ".0.crc")]
    unfinished = [tmp_path / "commits" / name for name in (".1.8c0f.tmp", "..1.8c0f.tmp.crc")]
    for path in (*finished, *unfinished):
        path.parent.mkdir(exist_ok=True)
        path.touch()

    clear_unfinished_writes(tmp_path)

    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(finished)


def test_a_checkpoint_that_is_not_there_has_nothing_to_clear(tmp_path: Path) -> None:
    clear_unfinished_writes(tmp_path / "none")

    assert not (tmp_path / "none").exists()
