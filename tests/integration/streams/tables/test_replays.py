"""Tables that are replayed into, swapped and verified."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import ConfigError, PipelineError
from headrace.streams import replay as replay_module
from headrace.streams.comparison import Comparison
from headrace.streams.go_live import GoLive
from headrace.streams.load import load_pipelines
from headrace.streams.pipeline import Pipeline
from headrace.streams.replay import Replay, Replayed
from headrace.streams.replay_note import read_note
from headrace.streams.sinks.context import BatchWriter
from headrace.streams.sinks.stores import store_of
from headrace.streams.verify import verify_in
from headrace.testing.failpoints import kill_at
from headrace.testing.waiting import eventually

pytestmark = pytest.mark.spark

orders = hr.topic("orders", schema="id string not null, amount double", partitions=2)

WITHIN_S = 280.0
PIPELINES = """
import headrace.streams as hr
from pyspark.sql import functions as F

orders = hr.topic("orders", schema="id string not null, amount double", partitions=2)

@hr.pipeline(writes={target})
def totals(orders):
    return orders.groupBy("id").agg(F.sum("amount").alias("total"))
"""
Rows = list[tuple[Any, ...]]


class Store:
    """A store of either kind, and what its tables hold."""

    def __init__(self, kind: str, database: Any, directory: Path) -> None:
        self.kind = kind
        self._database = database
        self._directory = directory

    def name(self, table: str) -> str:
        """What `--into` is given."""
        return str(self._database.table(table)) if self.kind == "postgres" else str(self._directory / table)

    def table(self, table: str, **options: Any) -> Any:
        """The table as a pipeline is told of it."""
        if self.kind == "postgres":
            return hr.postgres_table(self._database.dsn, self.name(table), writers=2, **options)
        return hr.delta_table(self.name(table), writers=2, **options)

    def code(self, table: str, **options: Any) -> str:
        """The same, as a file says it."""
        if self.kind == "postgres":
            return f"hr.postgres_table({self._database.dsn!r}, {self.name(table)!r}, **{options!r})"
        return f"hr.delta_table({self.name(table)!r}, **{options!r})"

    def rows(self, table: str, *columns: str) -> Rows:
        """All rows, in order."""
        if self.kind == "postgres":
            chosen = ", ".join(columns)
            found = self._database.execute(f"SELECT {chosen} FROM {self.name(table)}")  # noqa: S608 - our own
        else:
            found = [
                tuple(row[column] for column in columns)
                for row in DeltaTable(self.name(table)).to_pyarrow_table().to_pylist()
            ]
        return sorted(found)

    def spoil(self, table: str, id_: str) -> None:
        """Change a row behind the pipeline's back."""
        if self.kind == "postgres":
            self._database.execute(f"UPDATE {self.name(table)} SET total = -1 WHERE id = %s", id_)  # noqa: S608 - our own
        else:
            DeltaTable(self.name(table)).update({"total": "-1.0"}, predicate=f"id = '{id_}'")


@pytest.fixture(params=["postgres", "delta"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    database = request.getfixturevalue("database") if request.param == "postgres" else None
    return Store(request.param, database, tmp_path / "tables")


def totals_by(function: str, target: Any) -> Pipeline[Any]:
    def totals(orders: DataFrame) -> DataFrame:
        return orders.groupBy("id").agg(
            F.expr(f"{function}(amount)").alias("total"),
            F.max(F.struct("amount")).alias("largest"),
            # An order of nothing takes back all of its id.
            F.expr("bool_or(amount = 0)").alias("_delete"),
        )

    return hr.pipeline(writes=target)(totals)


def order(number: str, amount: float) -> tuple[str, str]:
    return number, json.dumps({"id": number, "amount": amount})


def told(comparison: Comparison) -> set[tuple[str, str | None, str]]:
    return {
        (each.kind, json.loads(each.key)["id"] if each.key else None, each.judgement)
        for each in comparison.differences
    }


@pytest.mark.long
def test_corrected_rows_of_a_key_are_swapped_in_and_go_on_live(
    spark: SparkSession,
    kafka: Any,
    config: StreamsConfig,
    start: Any,
    committed: Any,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = store.table("totals", key=["id"])
    wrong, right = totals_by("max", table), totals_by("sum", table)

    def refuse(_swap: Any) -> None:
        raise PipelineError("the role may not create tables")

    def verified(pipeline: Pipeline[Any]) -> Comparison:
        return verify_in(spark, pipeline, pipeline.sources(), config)

    kafka.produce("orders", [order("a", 1), order("a", 2), order("b", 5), order("c", 3), order("c", 0)])
    first = GoLive(pipeline=wrong, config=config)
    first.run(spark, first.plan(), first.prepare(first.plan(), swap=False))
    assert store.rows("totals", "id", "total") == [("a", 2.0), ("b", 5.0)]
    assert verified(wrong).verdict == "equal"

    store.spoil("totals", "b")
    found = verified(wrong)
    assert (found.verdict, told(found)) == ("different", {("changed", "b", "wrong")})

    # Rows that don't fit are refused before anything has happened.
    wider = hr.pipeline(writes=table, name="totals", reads={"rows": orders})(
        lambda rows: rows.select("id", "amount")
    )
    misfit = GoLive(pipeline=wider, config=config)
    with pytest.raises(PipelineError, match="totals can't write the table"):
        misfit.run(spark, misfit.plan(), misfit.prepare(misfit.plan(), swap=True))
    assert read_note(config, "totals") is None
    # So is a table that can't be made beside it.
    with monkeypatch.context() as patched:
        patched.setattr(type(store_of(table).swap(table, pipeline="totals", swap_id="x")), "make", refuse)
        unmade = GoLive(pipeline=right, config=config)
        with pytest.raises(PipelineError, match="may not create"):
            unmade.run(spark, unmade.plan(), unmade.prepare(unmade.plan(), swap=True))
    assert read_note(config, "totals") is None
    assert verified(wrong).verdict == "different"

    # Interrupted before the swap, the old rows are there; called again, it goes on with what it has.
    steps: list[str] = []

    def interrupt(step: str) -> None:
        steps.append(step)
        if "swapping" in step and len(steps) < 3:
            raise KeyboardInterrupt

    swap = GoLive(pipeline=right, config=config, on_step=interrupt)
    with pytest.raises(KeyboardInterrupt):
        swap.run(spark, swap.plan(), swap.prepare(swap.plan(), swap=True))
    assert store.rows("totals", "id", "total") == [("a", 2.0), ("b", -1.0)]
    note = swap.prepare(swap.plan(), swap=True)
    assert note.stage == "replayed"
    assert swap.finish(note).is_swapped
    assert store.rows("totals", "id", "total") == [("a", 3.0), ("b", 5.0)]
    # Killed between the swap and the note of it, it finds that it is done.
    staged = store_of(table).swap(table, pipeline="totals", swap_id=note.id)
    assert not staged.is_made()
    staged.commit("whatever")
    assert store.rows("totals", "id", "total") == [("a", 3.0), ("b", 5.0)]

    # What comes now is added to what was replayed: no gap, and nothing twice.
    kafka.produce("orders", [order("a", 4), order("d", 1), order("b", 0)])
    queries = start(right, realtime=False)
    expected = [("a", 7.0), ("d", 1.0)]
    eventually(lambda: store.rows("totals", "id", "total") == expected, "the new rows", within_s=WITHIN_S)
    committed("totals")
    queries.stop()
    assert verified(right).verdict == "equal"


def test_a_swap_that_is_killed_around_its_commit_leaves_old_or_new_rows_and_is_finished_by_the_next_call(
    spark: SparkSession,
    kafka: Any,
    config: StreamsConfig,
    store: Store,
    writer: Callable[..., BatchWriter],
    tmp_path: Path,
) -> None:
    file = tmp_path / "pipelines.py"
    file.write_text(PIPELINES.format(target=store.code("totals", key=["id"], writers=2)))
    (pipeline,) = load_pipelines(str(file))
    old, new = [("a", 2.0), ("z", 9.0)], [("a", 3.0), ("b", 5.0)]
    stale = spark.createDataFrame(old, "id string, total double")
    writer(pipeline.writes, pipeline="totals").write(stale, 0)
    kafka.produce("orders", [order("a", 1), order("a", 2), order("b", 5)])

    def interrupt(step: str) -> None:
        if "swapping" in step:
            raise KeyboardInterrupt

    def replay(environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        words = ["--swap", "--bootstrap", config.bootstrap, "--data", str(config.data_dir), "--json"]
        return subprocess.run(
            [sys.executable, "-m", "headrace", "replay", f"{file}:totals", *words],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    # What is replayed is there, so what follows needs no Spark.
    staged = GoLive(pipeline=pipeline, config=config, on_step=interrupt)
    with pytest.raises(KeyboardInterrupt):
        staged.run(spark, staged.plan(), staged.prepare(staged.plan(), swap=True))

    for place, expected in (("replay.swap", old), ("replay.swapped", new)):
        killed = replay(kill_at(place))
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert store.rows("totals", "id", "total") == expected
        assert read_note(config, "totals") is not None, "the next call is to finish it"

    done = replay({})
    assert (done.returncode, json.loads(done.stdout or "{}").get("swapped")) == (0, True), done.stderr
    assert store.rows("totals", "id", "total") == new
    assert read_note(config, "totals") is None


def test_appended_rows_are_replayed_into_a_new_table_and_verified(
    spark: SparkSession,
    kafka: Any,
    config: StreamsConfig,
    store: Store,
    writer: Callable[..., BatchWriter],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_module, "PIECE_OFFSETS_MAX", 2)

    @hr.pipeline(writes=store.table("doubled"))
    def doubled(orders: DataFrame) -> DataFrame:
        return orders.select("id", (F.col("amount") * 2).alias("double"))

    numbers = [order(number, 1) for number in "aabcde"]
    kafka.produce("orders", numbers)
    live = GoLive(pipeline=doubled, config=config)
    live.run(spark, live.plan(), live.prepare(live.plan(), swap=False))
    expected = [(number, 2.0) for number in "aabcde"]
    assert store.rows("doubled", "id", "double") == expected
    assert verify_in(spark, doubled, doubled.sources(), config).verdict == "equal"

    def replay(into: str, on_step: Callable[[str], None] = lambda _step: None) -> Replayed:
        made = Replay(pipeline=doubled, sources=doubled.sources(), into=into, config=config, on_step=on_step)
        return made.run(spark, made.begin())

    def interrupt(step: str) -> None:
        if "part 3" in step:
            raise KeyboardInterrupt

    again = store.name("again")
    with pytest.raises(KeyboardInterrupt):
        replay(again, interrupt)
    assert replay(again).row_count == 6
    assert store.rows("again", "id", "double") == expected
    with pytest.raises(ConfigError, match="has rows already: name a new one, or drop it"):
        replay(again)
    with pytest.raises(ConfigError, match="itself writes the table"):
        replay(store.name("doubled"))

    # A pipeline whose table holds what another has computed: that of the replay, and one row of somebody's.
    writing_again = replace(doubled, writes=store.table("again"))
    assert verify_in(spark, writing_again, doubled.sources(), config).verdict == "equal"
    stranger = spark.createDataFrame([("z", 1.0)], "id string, double double")
    writer(store.table("again")).write(stranger, 0)
    found = verify_in(spark, writing_again, doubled.sources(), config)
    assert [(each.kind, each.judgement, each.count) for each in found.differences] == [
        ("unexpected", "undecided", 1)
    ]
