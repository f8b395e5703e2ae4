"""Who may write a table of DuckDB, and what is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import duckdb
import pytest

from headrace.errors import PipelineError, PipelineReplaced
from headrace.streams.sinks.duck.connection import Connection
from headrace.streams.sinks.duck.ledger import Run, TableLedger
from headrace.streams.sinks.ledger import Batch

BATCH = Batch(pipeline="copies", query_id="q", batch_id=0, digest="d0", is_first=True)
NEXT = replace(BATCH, batch_id=1, digest="d1", is_first=False)
LEDGER = TableLedger(pipeline="copies", target="t", place="the table t")
LOST = "the table t has lost rows of pipeline copies"


@pytest.fixture
def connection() -> Iterator[Connection]:
    with duckdb.connect() as connection:
        LEDGER.create(connection)
        LEDGER.create(connection)
        yield connection


def begin(connection: Connection, batch: Batch, run_id: str, *, has_table: bool = True) -> Run:
    return LEDGER.begin_run(connection, batch, run_id, has_table=has_table)


def test_a_batch_is_written_once_and_the_next_one_follows(connection: Connection) -> None:
    run = begin(connection, BATCH, "r1", has_table=False)
    assert run == Run(number=1, id="r1")
    assert not LEDGER.is_written(connection, BATCH, run)
    LEDGER.write(connection, BATCH)
    assert LEDGER.is_written(connection, BATCH, run)
    assert not LEDGER.is_written(connection, NEXT, run)
    again = begin(connection, NEXT, "r2")
    assert (again.number, LEDGER.is_written(connection, NEXT, again)) == (2, False)


def test_a_run_that_was_replaced_writes_no_more(connection: Connection) -> None:
    old = begin(connection, BATCH, "r1")
    begin(connection, replace(BATCH, query_id="q2"), "r2")
    with pytest.raises(PipelineReplaced):
        LEDGER.is_written(connection, BATCH, old)
    with pytest.raises(PipelineReplaced):
        begin(connection, replace(BATCH, has_claimed=True), "r3")


def test_a_file_that_was_put_back_is_noticed(connection: Connection) -> None:
    first = begin(connection, BATCH, "r1")
    LEDGER.write(connection, BATCH)
    with pytest.raises(PipelineError, match=LOST):
        LEDGER.is_written(connection, NEXT, replace(first, number=2))
    with pytest.raises(PipelineError, match="the last batch that is there is 0"):
        LEDGER.is_written(connection, replace(NEXT, batch_id=2), first)
    with pytest.raises(PipelineReplaced):
        LEDGER.is_written(connection, NEXT, replace(first, id="another of the same number"))
    with pytest.raises(PipelineError, match="there is no such table any more"):
        begin(connection, replace(NEXT, has_claimed=True), "r2", has_table=False)
    connection.execute("DELETE FROM headrace_batches")
    with pytest.raises(PipelineError, match=LOST):
        LEDGER.is_written(connection, NEXT, first)
    with pytest.raises(PipelineError, match=LOST):
        begin(connection, replace(NEXT, has_claimed=True), "r2")


def test_a_swap_hands_the_ledger_over_and_shuts_out_whoever_writes(connection: Connection) -> None:
    staged = replace(LEDGER, target="staging")
    replayed = replace(BATCH, query_id="q2")
    live = begin(connection, BATCH, "r1")
    staged.begin_run(connection, replayed, "r2", has_table=True)
    staged.write(connection, replayed)
    assert LEDGER.swap_id(connection) is None
    LEDGER.take(connection, staged, "q2", "r3", "swap-1")
    assert LEDGER.swap_id(connection) == "swap-1"
    assert connection.execute("SELECT DISTINCT target FROM headrace_batches").fetchall() == [("t",)]
    with pytest.raises(PipelineReplaced):
        LEDGER.is_written(connection, NEXT, live)
    following = replace(replayed, batch_id=1, digest="d1")
    run = begin(connection, following, "r4")
    assert not LEDGER.is_written(connection, following, run)
    # Nothing was replayed: the next batch is the first.
    LEDGER.take(connection, staged, "q3", "r5", "swap-2")
    run = begin(connection, replace(BATCH, query_id="q3"), "r6")
    assert not LEDGER.is_written(connection, replace(BATCH, query_id="q3"), run)
