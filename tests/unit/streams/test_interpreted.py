"""Which batches are interpreted, and which compiled."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.streams.interpreted import SMALL_ROWS_MAX, Interpreting
from headrace.streams.progress_log import format_offsets

SETTINGS = '{"batchWatermarkMs":0,"batchTimestampMs":9,"conf":{}}'
WHOLE_STAGE, FACTORY = "spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode"


class Query:
    """A query that reads two topics, and keeps account of it as Spark does."""

    def __init__(self, checkpoint: Path, **chosen: str) -> None:
        self.checkpoint = checkpoint
        (checkpoint / "offsets").mkdir()
        self.settings = {WHOLE_STAGE: "true", FACTORY: "FALLBACK", **chosen}
        self.set_count = 0
        conf = SimpleNamespace(get=self.settings.__getitem__, set=self._set)
        self.session: Any = SimpleNamespace(conf=conf)
        self.ends = [0, 0]
        self.batch_id = -1

    def read(self, row_count: int, *, by: Interpreting) -> bool:
        """Have a batch of so many rows written; say whether the next one is interpreted."""
        self.batch_id += 1
        self.ends[self.batch_id % 2] += row_count
        ends = "\n".join(format_offsets({(f"topic{i}", 0): end}) for i, end in enumerate(self.ends))
        (self.checkpoint / "offsets" / str(self.batch_id)).write_text(f"v1\n{SETTINGS}\n{ends}")
        by.settle_next(self.batch_id, self.session)
        return self.settings[WHOLE_STAGE] == "false" and self.settings[FACTORY] == "NO_CODEGEN"

    def _set(self, key: str, value: str) -> None:
        self.settings[key] = value
        self.set_count += 1


def test_a_batch_behind_a_small_one_is_interpreted(tmp_path: Path) -> None:
    query, by = Query(tmp_path), Interpreting(tmp_path)

    assert not query.read(10, by=by), "where the first batch began is not known"
    assert query.read(SMALL_ROWS_MAX, by=by)
    assert query.read(0, by=by)
    assert query.set_count == 2, "nothing is set that is so already"


def test_a_batch_behind_a_large_one_is_compiled(tmp_path: Path) -> None:
    query, by = Query(tmp_path), Interpreting(tmp_path)

    sizes = [1, SMALL_ROWS_MAX + 1, SMALL_ROWS_MAX, 2 * SMALL_ROWS_MAX, 2 * SMALL_ROWS_MAX + 1, 3_000, 5]

    assert [query.read(size, by=by) for size in sizes] == [False, False, True, True, False, False, True]


def test_a_query_that_is_resumed_goes_on_from_the_batch_before(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.read(10, by=Interpreting(tmp_path))

    assert query.read(10, by=Interpreting(tmp_path))


@pytest.mark.parametrize("chosen", [{WHOLE_STAGE: "false"}, {FACTORY: "CODEGEN_ONLY"}])
def test_what_a_user_has_set_stays(tmp_path: Path, chosen: dict[str, str]) -> None:
    query, by = Query(tmp_path, **chosen), Interpreting(tmp_path)

    for size in (1, 1, 10 * SMALL_ROWS_MAX, 1):
        query.read(size, by=by)

    assert query.settings == {WHOLE_STAGE: "true", FACTORY: "FALLBACK"} | chosen
    assert query.set_count == 0


def test_a_checkpoint_that_does_not_tell_changes_nothing(tmp_path: Path) -> None:
    query, by = Query(tmp_path), Interpreting(tmp_path)
    query.read(1, by=by)
    query.read(1, by=by)
    (tmp_path / "offsets" / "2").write_text("v1\n{}\n17")

    by.settle_next(2, query.session)
    by.settle_next(3, query.session)

    assert query.settings[FACTORY] == "NO_CODEGEN"
    assert query.set_count == 2
