"""A directory of one's own, that nobody leaves behind."""

from __future__ import annotations

from pathlib import Path

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
