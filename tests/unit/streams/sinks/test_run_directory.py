"""Directories of runs that may be at work at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.streams.sinks.run_directory import RunDirectory


def filled(home: Path) -> RunDirectory:
    """That of a run that has staged a file."""
    directory = RunDirectory(home=home)
    directory.clear()
    (directory.path / "file").touch()
    return directory


def test_a_run_removes_what_earlier_ones_have_left_and_nothing_of_later_ones(tmp_path: Path) -> None:
    earlier, own = filled(tmp_path / "home"), RunDirectory(home=tmp_path / "home")
    with own.beginning():
        later = filled(tmp_path / "home")
    own.clear()
    assert sorted(own.home.iterdir()) == sorted([own.path, later.path])
    assert not earlier.path.exists()
    assert list(later.path.iterdir())


def test_a_run_that_may_not_begin_removes_nothing(tmp_path: Path) -> None:
    other = filled(tmp_path)
    with pytest.raises(ValueError, match="replaced"), RunDirectory(home=tmp_path).beginning():
        raise ValueError("replaced")
    assert list(other.path.iterdir())


def test_it_is_empty_when_it_is_made_and_gone_when_it_is_removed(tmp_path: Path) -> None:
    with RunDirectory(home=tmp_path / "nowhere").beginning():
        pass
    own = filled(tmp_path)
    own.clear()
    assert list(own.path.iterdir()) == []
    own.remove()
    own.remove()
    assert list(tmp_path.iterdir()) == []
