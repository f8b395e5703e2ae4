"""Which batches are interpreted, and which compiled."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from headrace.streams.plan_mode import COMPILED, INTERPRETED, MODE, SMALL_ROWS_MAX, PlanMode
from headrace.streams.progress_log import format_offsets

SETTINGS = '{"batchWatermarkMs":0,"batchTimestampMs":9,"conf":{}}'
WHOLE_STAGE = "spark.sql.codegen.wholeStage"


class Query:
    """A query that reads two topics, and keeps account of it as Spark does."""

    def __init__(self, checkpoint: Path, **chosen: str) -> None:
        self.checkpoint = checkpoint
        (checkpoint / "offsets").mkdir()
        self.settings = {"spark.sql.shuffle.partitions": "2", **chosen}
        self.set_count = 0
        conf = SimpleNamespace(get=self.settings.get, set=self._set)
        self.session: Any = SimpleNamespace(conf=conf)
        self.ends = [0, 0]
        self.batch_id = -1

    def run(self, row_count: int, by: PlanMode, *, written_before: int = 0) -> bool:
        """Begin a batch of so many rows; say whether it is interpreted."""
        self.batch_id += 1
        self.ends[self.batch_id % 2] += row_count
        ends = "\n".join(format_offsets({(f"topic{i}", 0): end}) for i, end in enumerate(self.ends))
        (self.checkpoint / "offsets" / str(self.batch_id)).write_text(f"v1\n{SETTINGS}\n{ends}")
        by.settle(self.batch_id, self.session, written_before)
        return self.settings.get(MODE) == INTERPRETED

    def _set(self, key: str, value: str) -> None:
        self.settings[key] = value
        self.set_count += 1


def test_small_batches_are_interpreted(tmp_path: Path) -> None:
    query, by = Query(tmp_path), PlanMode(tmp_path)

    assert not query.run(10, by), "where the first batch began is not known"
    assert query.run(SMALL_ROWS_MAX, by)
    assert query.run(0, by)
    assert query.set_count == 1, "nothing is set that is so already"


def test_large_batches_are_compiled(tmp_path: Path) -> None:
    query, by = Query(tmp_path), PlanMode(tmp_path)

    sizes = [1, SMALL_ROWS_MAX + 1, SMALL_ROWS_MAX, 2 * SMALL_ROWS_MAX, 2 * SMALL_ROWS_MAX + 1, 3_000, 5]

    assert [query.run(size, by) for size in sizes] == [False, False, True, True, False, False, True]
    assert query.settings[MODE] != COMPILED


def test_a_query_that_makes_many_rows_of_few_is_compiled(tmp_path: Path) -> None:
    query, by = Query(tmp_path), PlanMode(tmp_path)

    assert [query.run(1, by, written_before=count) for count in (0, 5, 100_000, 5)] == [
        False,
        True,
        False,
        True,
    ]


def test_a_query_that_is_resumed_goes_on_from_the_batch_before(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.run(10, PlanMode(tmp_path))

    assert query.run(10, PlanMode(tmp_path))


@pytest.mark.parametrize("chosen", [{WHOLE_STAGE: "false"}, {WHOLE_STAGE: "true"}, {MODE: COMPILED}])
def test_what_a_user_has_set_stays(tmp_path: Path, chosen: dict[str, str]) -> None:
    query, by = Query(tmp_path, **chosen), PlanMode(tmp_path)

    assert not any(query.run(size, by) for size in (1, 1, 10 * SMALL_ROWS_MAX, 1))
    assert query.set_count == 0


def test_a_batch_of_which_the_checkpoint_does_not_tell_is_compiled(tmp_path: Path) -> None:
    query, by = Query(tmp_path), PlanMode(tmp_path)
    assert [query.run(1, by), query.run(1, by)] == [False, True]
    (tmp_path / "offsets" / "2").write_text("v1\n{}\n17")

    by.settle(2, query.session)

    assert query.settings[MODE] == COMPILED


def test_a_topic_that_was_made_anew_and_is_shorter_counts_as_small(tmp_path: Path) -> None:
    query, by = Query(tmp_path), PlanMode(tmp_path)
    query.run(10, by)

    assert query.run(-5, by)


def test_a_batch_does_not_fail_because_spark_refuses_the_setting(tmp_path: Path) -> None:
    query, by = Query(tmp_path), PlanMode(tmp_path)

    def refuse(_key: str, _value: str) -> None:
        raise Py4JError("no such setting")

    query.session.conf.set = refuse
    assert not any(query.run(1, by) for _ in range(3))
