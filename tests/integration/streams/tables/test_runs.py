"""Pipelines that write tables, as a process that is killed between their writes and Spark's checkpoint."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import PipelineError
from headrace.streams.queries import Queries
from headrace.testing.failpoints import kill_at
from headrace.testing.redis import TestRedis
from headrace.testing.waiting import eventually

pytestmark = pytest.mark.spark

WITHIN_S = 600.0
RUN = """
import sys
from pathlib import Path
from headrace.config import StreamsConfig
from headrace.streams.load import load_pipelines
from headrace.streams.run import run

pipelines, bootstrap, data = sys.argv[1:]
run(load_pipelines(pipelines), StreamsConfig(bootstrap=bootstrap, data_dir=Path(data)), realtime=False)
"""
PIPELINES = """
import headrace.streams as hr

numbers = hr.topic("numbers", schema="n bigint not null", partitions=2)

@hr.pipeline(writes=hr.postgres_table({dsn!r}, {table!r}, writers=2))
def to_postgres(numbers):
    return numbers

@hr.pipeline(writes=hr.delta_table({path!r}))
def to_delta(numbers):
    return numbers

@hr.pipeline(writes=hr.duckdb_table({file!r}, "numbers", key="n", writers=2))
def to_duckdb(numbers):
    return numbers

@hr.pipeline(writes=hr.cache({url!r}, "numbers", key="n", writers=2))
def to_cache(numbers):
    return numbers
"""


@pytest.mark.long
def test_whatever_is_killed_between_write_and_checkpoint_each_row_is_in_each_table_once(
    kafka: Any, config: StreamsConfig, database: Any, headrace_redis: TestRedis, tmp_path: Path
) -> None:
    path, duck = tmp_path / "numbers", tmp_path / "numbers.duckdb"
    file = tmp_path / "pipelines.py"
    places = {"dsn": database.dsn, "table": database.table("numbers"), "path": str(path), "file": str(duck)}
    file.write_text(PIPELINES.format(**places, url=headrace_redis.url))
    produce(kafka, range(500))
    # So that the query for dead letters has something to write, too: who comes by second is killed.
    kafka.produce("numbers", [(None, "no number")])
    with running(file, config, kill_at("pipeline.task.committed", after=1)) as process:
        assert process.wait(WITHIN_S) == -signal.SIGKILL
    produce(kafka, range(500, 1000))
    # By now all of a batch is in its table, and Spark does not know it.
    with running(file, config, kill_at("pipeline.written", after=1)) as process:
        assert process.wait(WITHIN_S) == -signal.SIGKILL

    def in_postgres() -> list[int]:
        return [n for (n,) in database.execute("SELECT n FROM SCHEMA.numbers ORDER BY n")]

    def in_delta() -> list[int]:
        try:
            return sorted(DeltaTable(path).to_pyarrow_table()["n"].to_pylist())
        except TableNotFoundError:
            return []

    def in_duckdb() -> list[int]:
        try:
            with duckdb.connect(str(duck), read_only=True) as connection:
                return [n for (n,) in connection.execute("SELECT n FROM numbers ORDER BY n").fetchall()]
        except duckdb.Error:
            # It is not there yet, or its pipeline has it open.
            return []

    def in_cache() -> list[int]:
        return sorted(map(int, headrace_redis.client.hkeys("numbers")))

    finders = (in_postgres, in_delta, in_duckdb, in_cache)
    with running(file, config):
        # A batch that is there shows that nothing of those before it is still to come.
        produce(kafka, range(1000, 1010))
        eventually(
            lambda: all({*find()} >= {*range(1010)} for find in finders),
            "the coming of all rows",
            within_s=WITHIN_S,
            pause_s=0.2,
        )
    for find in finders:
        assert find() == list(range(1010))


def test_real_time_mode_refuses_a_table_before_it_starts(
    start: Callable[..., Queries], tmp_path: Path
) -> None:
    numbers = hr.topic("numbers", schema="n bigint")
    pipeline = hr.pipeline(writes=hr.delta_table(tmp_path / "t"), reads={"rows": numbers}, name="copy")
    with pytest.raises(PipelineError, match="which real-time mode can't: run it without --realtime"):
        start(pipeline(lambda rows: rows), realtime=True)


def produce(kafka: Any, numbers: range) -> None:
    kafka.produce("numbers", [(str(number), json.dumps({"n": number})) for number in numbers])


@contextmanager
def running(
    file: Path, config: StreamsConfig, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[subprocess.Popen[bytes]]:
    """The pipelines of the file, in a process of their own that is gone afterwards."""
    command = [sys.executable, "-c", RUN, str(file), config.bootstrap, str(config.data_dir)]
    with ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen(command, env={**os.environ, **environment}))
        stack.callback(process.send_signal, signal.SIGTERM)
        yield process
