from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cdc.spill import READ_BYTES_MAX, DiskSpill
from headrace.errors import StorageError


def test_what_was_appended_is_read_in_pieces_of_bounded_size(tmp_path: Path) -> None:
    spill = DiskSpill(tmp_path / "spill")
    spill.append(7, b"a" * READ_BYTES_MAX)
    spill.append(7, b"bc")
    pieces = list(spill.read(7))
    assert b"".join(pieces) == b"a" * READ_BYTES_MAX + b"bc"
    assert max(map(len, pieces)) <= READ_BYTES_MAX


def test_what_is_cut_off_is_gone_and_can_be_written_anew(tmp_path: Path) -> None:
    spill = DiskSpill(tmp_path)
    spill.append(7, b"abcdef")
    spill.truncate(7, 2)
    spill.append(7, b"xy")
    assert b"".join(spill.read(7)) == b"abxy"


def test_a_transaction_that_ends_leaves_nothing(tmp_path: Path) -> None:
    spill = DiskSpill(tmp_path)
    spill.append(7, b"a")
    spill.append(8, b"b")
    spill.discard(7)
    assert [path.name for path in tmp_path.iterdir()] == ["8.spill"]


def test_what_a_process_left_is_deleted_by_the_next_and_nothing_else(tmp_path: Path) -> None:
    DiskSpill(tmp_path).append(7, b"a")
    (tmp_path / "notes.txt").write_text("mine")
    DiskSpill(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_disk_that_fails_says_what_to_do(tmp_path: Path) -> None:
    spill = DiskSpill(tmp_path)
    with pytest.raises(StorageError, match=r"7\.spill.* can't be read.*nothing is lost"):
        list(spill.read(7))
    (tmp_path / "9.spill").mkdir()
    with pytest.raises(StorageError, match=r"9\.spill.* can't be written to"):
        spill.append(9, b"x")
    with pytest.raises(StorageError, match=r"can't be deleted"):
        spill.discard(9)
    with pytest.raises(StorageError, match=r"can't be cut"):
        spill.truncate(10, 1)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="can't be used for large transactions"):
        DiskSpill(tmp_path / "file")
