"""One driver at a time on a checkpoint."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.config import StreamsConfig
from headrace.errors import DataDirectoryInUse
from headrace.streams.checkpoint import checkpoint_path, lock_checkpoint, try_lock_checkpoint


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
