"""A directory of one's own, that nobody leaves behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.streams.workspace import workspace


def test_a_workspace_is_gone_afterwards(tmp_path: Path) -> None:
    with workspace(tmp_path) as directory:
        (directory / "library.so").write_text("")

    assert [path.name for path in (tmp_path / "work").iterdir()] == [".lock"]


def test_two_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    with workspace(tmp_path) as first, workspace(tmp_path) as second:
        assert first != second
        assert first.is_dir()


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path) -> None:
    left = tmp_path / "work" / "left"
    left.mkdir(parents=True)
    (left / ".lock").touch()
    (left / "library.so").write_text("")

    with workspace(tmp_path):
        assert not left.exists()


def test_others_may_remove_what_is_theirs_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = os.unlink, ["a", "b"]

    def unlink_theirs_first(path: str, *, dir_fd: int | None = None) -> None:
        if path in left:
            left.remove(path)
            real(path, dir_fd=dir_fd)
        real(path, dir_fd=dir_fd)

    with workspace(tmp_path) as directory:
        for name in left:
            (directory / name).touch()
        monkeypatch.setattr(os, "unlink", unlink_theirs_first)

    assert not left
    assert not directory.exists()
