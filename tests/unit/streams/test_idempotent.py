"""A user's own function writes each batch once, whatever happens between its write and Spark's checkpoint."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import PipelineError
from headrace.streams.sinks.idempotent import idempotent


class Boom(Exception):
    """What a test breaks off with."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE orders (number integer)")
    connection.close()
    return path


def rows_of(query_id: str, *numbers: int) -> Any:
    """What a batch of a streaming query looks like from here."""
    context = SimpleNamespace(getLocalProperty={"sql.streaming.queryId": query_id}.get)
    return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context), numbers=numbers)


def orders_writer(path: Path, *, fail: bool = False) -> Callable[[Any, int], None]:
    @idempotent("orders", connect=lambda: sqlite3.connect(path))
    def write(rows: Any, batch_id: int, connection: sqlite3.Connection) -> None:
        connection.executemany("INSERT INTO orders VALUES (?)", [(number,) for number in rows.numbers])
        if fail:
            raise Boom

    return write


def orders(path: Path) -> list[int]:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT number FROM orders ORDER BY number").fetchall()
    connection.close()
    return [number for (number,) in found]


def test_a_batch_that_is_done_is_skipped(path: Path) -> None:
    for _restart in range(3):
        orders_writer(path)(rows_of("q", 1, 2), 0)
    orders_writer(path)(rows_of("q", 3), 1)
    assert orders(path) == [1, 2, 3]


def test_a_function_that_raises_leaves_nothing_and_its_batch_is_written_later(path: Path) -> None:
    with pytest.raises(Boom):
        orders_writer(path, fail=True)(rows_of("q", 1), 0)
    assert orders(path) == []
    orders_writer(path)(rows_of("q", 1), 0)
    assert orders(path) == [1]


def test_queries_with_one_function_do_not_take_each_others_batches_for_theirs(path: Path) -> None:
    write = orders_writer(path)
    write(rows_of("a", 1), 0)
    write(rows_of("b", 2), 0)
    write(rows_of("a", 1), 0)
    assert orders(path) == [1, 2]


def test_a_checkpoint_that_was_put_back_is_refused(path: Path) -> None:
    write = orders_writer(path)
    write(rows_of("q", 1), 7)
    with pytest.raises(PipelineError, match="can't go on with batch 3, because batch 7 was written already"):
        write(rows_of("q", 2), 3)
    assert orders(path) == [1]


def test_rows_of_no_query_are_written_too(path: Path) -> None:
    rows: Any = SimpleNamespace(numbers=[5])
    orders_writer(path)(rows, 0)
    assert orders(path) == [5]


@pytest.mark.parametrize("seed", range(20))
def test_random_crashes_and_retries_write_each_row_once(path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for batch_id in range(10):
        is_checkpointed = False
        while not is_checkpointed:
            fails = chance.random() < 0.3
            try:
                orders_writer(path, fail=fails)(rows_of("q", 2 * batch_id, 2 * batch_id + 1), batch_id)
            except Boom:
                continue
            is_checkpointed = chance.random() < 0.6
    assert orders(path) == list(range(20))


def test_a_connection_that_commits_by_itself_is_refused(path: Path) -> None:
    @idempotent("orders", connect=lambda: sqlite3.connect(path, isolation_level=None))
    def write(rows: Any, batch_id: int, connection: sqlite3.Connection) -> None:
        raise AssertionError("it must not come so far")

    with pytest.raises(PipelineError, match="switch autocommit off"):
        write(rows_of("q", 1), 0)


@pytest.mark.parametrize("name", ["", "it's", "a b", "x" * 250])
def test_a_name_is_checked_when_the_function_is_made(name: str) -> None:
    with pytest.raises(PipelineError, match="can't name a function"):
        idempotent(name, connect=lambda: sqlite3.connect(":memory:"))


def test_the_function_keeps_its_name_and_its_words(path: Path) -> None:
    assert orders_writer(path).__name__ == "write"
