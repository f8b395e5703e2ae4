"""Who may write a Delta table, and what its log says of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import CommitProperties

from headrace.errors import PipelineError, PipelineReplaced
from headrace.streams.sinks.delta import log as log_module
from headrace.streams.sinks.delta.log import TableLog, Write
from headrace.streams.sinks.delta.swap import DeltaSwap
from headrace.streams.sinks.ledger import Batch
from headrace.streams.table import delta_table

OLD = Batch(pipeline="totals", query_id="old", batch_id=0, digest="d0", is_first=False, has_claimed=True)
NEW = replace(OLD, query_id="new", has_claimed=False)


@pytest.fixture
def log(tmp_path: Path) -> TableLog:
    """That of an empty table."""
    log = TableLog(path=tmp_path / "totals", pipeline="totals")
    log.ensure_table(pa.schema([("who", pa.string())]))
    return log


def row(who: str) -> Write:
    def write(table: DeltaTable, properties: CommitProperties) -> None:
        write_deltalake(table, pa.table({"who": [who]}), mode="append", commit_properties=properties)

    return write


def rows(log: TableLog) -> list[Any]:
    return sorted(DeltaTable(log.path).to_pyarrow_table()["who"].to_pylist())


def take_over(log: TableLog) -> None:
    log.begin_run(NEW)


def write_first(log: TableLog) -> None:
    log.commit(NEW, log.begin_run(NEW), row("new"))


def swap(log: TableLog) -> None:
    table_swap = DeltaSwap(table=delta_table(log.path), pipeline="totals", swap_id="s")
    table_swap.make()
    write_first(replace(log, path=table_swap.staging.path))
    table_swap.commit("new")


@pytest.mark.parametrize("take", [take_over, write_first, swap])
def test_a_run_that_was_replaced_before_it_has_written_anything_never_does(
    log: TableLog, take: Callable[[TableLog], None]
) -> None:
    log.commit(OLD, log.begin_run(OLD), row("old"))
    again = replace(OLD, batch_id=1)
    run = log.begin_run(again)
    take(log)
    kept = rows(log)
    for batch in (OLD, again):
        with pytest.raises(PipelineReplaced):
            log.is_written(batch, run)
        with pytest.raises(PipelineReplaced):
            log.commit(batch, run, row("late"))
        with pytest.raises(PipelineReplaced):
            log.begin_run(batch)
    assert rows(log) == kept
    newer = replace(NEW, batch_id=1, has_claimed=True)
    log.commit(newer, log.begin_run(newer), row("newer"))
    assert rows(log) == sorted([*kept, "newer"])


def test_a_run_that_is_replaced_while_it_commits_writes_nothing(log: TableLog) -> None:
    run = log.begin_run(OLD)

    def overtaken(table: DeltaTable, properties: CommitProperties) -> None:
        log.begin_run(NEW)
        row("late")(table, properties)

    with pytest.raises(PipelineReplaced):
        log.commit(OLD, run, overtaken)
    assert rows(log) == []


def test_a_run_that_is_replaced_while_it_begins_does_not_begin(
    log: TableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.begin_run(OLD)
    append, others = log_module.append, [NEW]

    def overtaken(*arguments: Any) -> None:
        if others:
            log.begin_run(others.pop())
        append(*arguments)

    monkeypatch.setattr(log_module, "append", overtaken)
    with pytest.raises(PipelineReplaced):
        log.begin_run(OLD)


def test_a_checkpoint_that_was_put_back_takes_nothing_over(log: TableLog) -> None:
    run = log.begin_run(OLD)
    log.commit(replace(OLD, batch_id=7), run, row("old"))
    with pytest.raises(PipelineError, match="batch 7 was written already: its checkpoint was put back"):
        log.begin_run(OLD)
    log.commit(replace(OLD, batch_id=8), run, row("old"))
    assert rows(log) == ["old", "old"]


def test_a_batch_whose_input_was_given_up_is_written_with_its_new_one_and_once(log: TableLog) -> None:
    log.commit(OLD, log.begin_run(OLD), row("given up"))
    anew = replace(OLD, digest="d1", given_up=frozenset({"d0"}))
    run = log.begin_run(anew)
    assert not log.is_written(anew, run)
    for _ in range(2):
        log.commit(anew, run, row("anew"))
    assert log.is_written(anew, run)
    assert rows(log) == ["anew", "given up"]


def test_a_batch_of_several_inputs_is_refused_where_the_log_does_not_tell_which_was_written(
    log: TableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = log.begin_run(OLD)
    log.commit(OLD, run, row("old"))
    monkeypatch.setattr(log_module, "_HISTORY_MAX", 1)
    write_deltalake(log.path, pa.table({"who": ["somebody else"]}), mode="append")
    assert log.is_written(OLD, run)
    with pytest.raises(PipelineError, match="batch 0 was written already, with other input"):
        log.is_written(replace(OLD, digest="d1", given_up=frozenset({"d0"})), run)
