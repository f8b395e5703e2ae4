"""Stores that somebody has changed behind their pipeline's back, and that are put right from the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import DataDirectoryInUse, PipelineError, PipelineReplaced
from headrace.streams.admin import ensure_topics
from headrace.streams.checkpoint import lock_checkpoint
from headrace.streams.pipeline import Pipeline
from headrace.streams.plan import make_plan
from headrace.streams.queries import Queries
from headrace.streams.repair import Repaired, repair_in
from headrace.streams.replay_note import ReplayNote, write_note

pytestmark = pytest.mark.spark

WITHIN_S = 280.0

TOO_LONG = "n" * 70_000
named = hr.topic("named", schema="name string, v bigint", format="upsert", key="name", partitions=1)
products = hr.topic("products", schema="id bigint, name string", format="upsert", key="id", partitions=2)


def copied(products: DataFrame) -> DataFrame:
    return hr.upserts(hr.changes(products))


def delta(tmp_path: Path) -> tuple[Any, Callable[[], None], Callable[[], list[Any]]]:
    """A table, what spoils it, and what it holds."""
    path = tmp_path / "products"

    def spoil() -> None:
        table = DeltaTable(path)
        table.update({"name": "'nonsense'"}, predicate="id = 1")
        table.delete("id = 2")
        added = pa.table({"id": pa.array([99], pa.int64()), "name": pa.array(["ghost"])})
        write_deltalake(path, added, mode="append")

    def rows() -> list[Any]:
        return sorted(tuple(row.values()) for row in DeltaTable(path).to_pyarrow_table().to_pylist())

    return hr.delta_table(path, key="id", writers=2), spoil, rows


def postgres(database: Any) -> tuple[Any, Callable[[], None], Callable[[], list[Any]]]:
    """The same in PostgreSQL."""

    def spoil() -> None:
        database.execute("UPDATE SCHEMA.products SET name = 'nonsense' WHERE id = 1")
        database.execute("DELETE FROM SCHEMA.products WHERE id = 2")
        database.execute("INSERT INTO SCHEMA.products VALUES (99, 'ghost')")

    def rows() -> list[Any]:
        return list(database.execute("SELECT id, name FROM SCHEMA.products ORDER BY id"))

    return hr.postgres_table(database.dsn, database.table("products"), key="id", writers=2), spoil, rows


def cache(headrace_redis: Any) -> tuple[Any, Callable[[], None], Callable[[], list[Any]]]:
    """The same in Redis."""
    client = headrace_redis.client

    def spoil() -> None:
        client.hset("products", "1", json.dumps({"id": 1, "name": "nonsense"}))
        client.hdel("products", "2")
        client.hset("products", "99", json.dumps({"id": 99, "name": "ghost"}))

    def rows() -> list[Any]:
        return sorted(tuple(json.loads(row).values()) for row in client.hvals("products"))

    return hr.cache(headrace_redis.url, "products", key="id", writers=2), spoil, rows


@pytest.fixture(params=["delta", "postgres", "cache"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[Any, Callable[[], None], Callable[[], list[Any]]]:
    match request.param:
        case "delta":
            return delta(tmp_path)
        case "postgres":
            return postgres(request.getfixturevalue("database"))
    return cache(request.getfixturevalue("headrace_redis"))


def product(number: int, name: str | None) -> tuple[str, str | None]:
    return str(number), None if name is None else json.dumps({"id": number, "name": name})


def process_all(session: SparkSession, config: StreamsConfig, pipeline: Pipeline[Any]) -> None:
    plan = make_plan([pipeline])
    ensure_topics(config, plan.topics())
    queries = Queries(session=session, config=config, realtime=False, until_now=True)
    queries.start(plan)
    queries.await_done(WITHIN_S)
    queries.stop()


def test_rows_that_were_changed_lost_or_added_are_put_right_and_the_pipeline_goes_on(
    spark: SparkSession, kafka: Any, config: StreamsConfig, store: Any
) -> None:
    table, spoil, rows = store
    pipeline = hr.pipeline(writes=table)(copied)
    named = [(number, f"product {number}") for number in range(50)]
    kafka.produce("products", [product(*each) for each in named] + [product(7, None)])
    process_all(spark, config, pipeline)
    right = [each for each in named if each[0] != 7]
    assert rows() == right
    assert repair_in(spark, pipeline, config) == Repaired(
        row_count=49, range_count=1024, different_ranges=0, written_count=0, removed_count=0
    )

    spoil()
    spoilt = rows()
    planned = repair_in(spark, pipeline, config, dry_run=True)
    assert (planned.written_count, planned.removed_count) == (2, 1)
    assert rows() == spoilt
    assert repair_in(spark, pipeline, config) == planned
    assert rows() == right

    kafka.produce("products", [product(1, "new name"), product(3, None)])
    process_all(spark, config, pipeline)
    assert rows() == [(n, "new name" if n == 1 else name) for n, name in right if n != 3]


def test_a_checkpoint_that_was_replaced_does_not_repair_and_what_is_refused_does_not_keep_others_from_it(
    spark: SparkSession, kafka: Any, config: StreamsConfig, headrace_redis: Any, tmp_path: Path
) -> None:
    table = hr.cache(headrace_redis.url, "named", key="name", writers=2)
    client = headrace_redis.client

    @hr.pipeline(writes=table)
    def by_name(named: DataFrame) -> DataFrame:
        return hr.upserts(hr.changes(named))

    def produce(*names: str) -> None:
        kafka.produce("named", [(name, json.dumps({"name": name, "v": 1})) for name in names])

    produce("a", "b")
    process_all(spark, config, by_name)
    newer = replace(config, data_dir=tmp_path / "newer")
    produce("c", TOO_LONG)
    process_all(spark, newer, by_name)
    client.hdel("named", "a")
    with pytest.raises(PipelineReplaced, match="another run of pipeline by_name has taken over"):
        repair_in(spark, by_name, config)
    assert sorted(client.hkeys("named")) == ["b", "c"], "nothing of the newer one is removed"

    steps: list[str] = []
    repaired = repair_in(spark, by_name, newer, on_step=steps.append)
    assert (repaired.written_count, repaired.refused_count, repaired.removed_count) == (1, 1, 0)
    assert sorted(client.hkeys("named")) == ["a", "b", "c"]
    assert "1 rows are refused by the store, nnn" in steps[-1]
    assert "its key has 70,000 bytes" in steps[-1]


def test_a_store_whose_replay_is_not_finished_is_not_repaired(
    spark: SparkSession, config: StreamsConfig, tmp_path: Path
) -> None:
    pipeline = hr.pipeline(writes=hr.delta_table(tmp_path / "t", key="id"))(copied)
    write_note(config, "copied", ReplayNote(id="1", code=None, stage="replaying", swap=True))
    with pytest.raises(PipelineError, match="a replay of copied was interrupted"):
        repair_in(spark, pipeline, config)


def test_a_store_with_values_that_json_does_not_bring_back_is_not_repaired(
    spark: SparkSession, kafka: Any, config: StreamsConfig, headrace_redis: Any
) -> None:
    @hr.pipeline(writes=hr.cache(headrace_redis.url, "mapped", key="id"))
    def mapped(products: DataFrame) -> DataFrame:
        names = F.expr("array(map(id, name))")
        return hr.upserts(hr.changes(products)).withColumn("names", names).drop("name")

    kafka.produce("products", [product(1, "tea")])
    process_all(spark, config, mapped)
    with pytest.raises(PipelineError, match=r"the column names has a map whose keys are not text .* rebuild"):
        repair_in(spark, mapped, config)


def test_a_store_whose_pipeline_runs_is_not_repaired(
    spark: SparkSession, config: StreamsConfig, tmp_path: Path
) -> None:
    pipeline = hr.pipeline(writes=hr.delta_table(tmp_path / "t", key="id"))(copied)
    with ExitStack() as held:
        lock_checkpoint(config, "copied", held)
        with pytest.raises(DataDirectoryInUse, match="stop that one first"):
            repair_in(spark, pipeline, config)


@pytest.mark.parametrize(
    ("target", "others", "told"),
    [
        (hr.topic("copies", key="id"), (), "which is a log: what is in it stays"),
        (hr.delta_table("somewhere"), (), "has no key, so that nobody can tell which row"),
        (hr.delta_table("somewhere", key="id", writers=3), ("other",), "is also written by other"),
    ],
)
def test_what_can_not_be_repaired_says_why(
    spark: SparkSession, config: StreamsConfig, target: Any, others: tuple[str, ...], told: str
) -> None:
    pipeline = hr.pipeline(writes=target)(copied)
    # It is the same table, however many tasks write it.
    sharing = [hr.pipeline(writes=replace(target, writers=1), name=name)(copied) for name in others]
    with pytest.raises(PipelineError, match=told):
        repair_in(spark, pipeline, config, others=sharing)
