"""Rows that a store refuses by themselves."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.errors import PipelineFailed
from headrace.streams.sinks import refused
from headrace.streams.sinks.refused import Refusals, refused_files


def test_they_are_kept_with_their_key_and_their_cause(tmp_path: Path) -> None:
    files = refused_files(tmp_path)
    assert files is not None
    refusals = Refusals(files=files, batch_id=3, part="0")
    refusals.add("[1]", '{"id": 1}', "too long")
    refusals.add("[2]", None, "too long, too")
    refusals.flush()
    (part,) = files.parts(3)
    assert part == tmp_path / "side" / "refused" / "3" / "0.parquet"
    assert pq.read_table(part).to_pylist() == [
        {"key": "[1]", "row": '{"id": 1}', "cause": "too long"},
        {"key": "[2]", "row": None, "cause": "too long, too"},
    ]


def test_where_nothing_is_refused_nothing_is_written(tmp_path: Path) -> None:
    Refusals(files=refused_files(tmp_path), batch_id=3, part="0").flush()
    assert not list(tmp_path.iterdir())


def test_where_they_can_not_be_kept_the_first_one_ends_the_batch() -> None:
    refusals = Refusals(files=refused_files(None), batch_id=3, part="0")
    with pytest.raises(PipelineFailed, match=r"a row is refused, with the key k{200}\.\.\.: too long$"):
        refusals.add("k" * 300, None, "too long")
    refusals.flush()


def test_too_many_are_no_matter_of_single_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused, "REFUSED_MAX", 2)
    refusals = Refusals(files=refused_files(tmp_path), batch_id=3, part="0")
    refusals.add("[1]", None, "bad")
    refusals.add("[2]", None, "bad")
    with pytest.raises(PipelineFailed, match=r"more than 2 rows of batch 3 are refused, .* \[3\]: worse"):
        refusals.add("[3]", None, "worse")
