"""Files of rows that leave an operator beside its results."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.streams.side_files import SideFiles


@pytest.fixture
def files(tmp_path: Path) -> SideFiles:
    return SideFiles.of(tmp_path, "window")


def rows(*numbers: int) -> pa.Table:
    return pa.table({"number": pa.array(numbers, pa.int64())})


def kept(files: SideFiles, batch_id: int) -> list[list[int]]:
    return [pq.read_table(part)["number"].to_pylist() for part in files.parts(batch_id)]


def test_each_part_of_a_batch_is_kept(files: SideFiles) -> None:
    files.write(3, "0", rows(1, 2))
    files.write(3, "1", rows(3))
    assert kept(files, 3) == [[1, 2], [3]]


def test_a_part_that_is_written_again_takes_the_place_of_the_first(files: SideFiles) -> None:
    files.write(3, "0", rows(1))
    files.write(3, "0", rows(1, 2))
    assert kept(files, 3) == [[1, 2]]


def test_a_batch_without_rows_has_no_parts(files: SideFiles) -> None:
    assert files.parts(0) == []
    files.forget_all_but(0)


def test_what_an_interrupted_task_has_left_is_no_part(files: SideFiles) -> None:
    files.write(3, "0", rows(1))
    (files.of_batch(3) / ".1.4711.tmp").write_bytes(b"PAR1")
    assert kept(files, 3) == [[1]]


def test_those_of_other_batches_are_forgotten(files: SideFiles) -> None:
    for batch_id in (3, 4, 5):
        files.write(batch_id, "0", rows(batch_id))
    files.forget_all_but(4)
    assert [kept(files, batch_id) for batch_id in (3, 4, 5)] == [[], [[4]], []]


def test_operators_have_files_of_their_own(files: SideFiles, tmp_path: Path) -> None:
    files.write(3, "0", rows(1))
    assert SideFiles.of(tmp_path, "window-2").parts(3) == []
