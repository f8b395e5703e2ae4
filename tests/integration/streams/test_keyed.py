"""User functions over keyed state, on Spark: exact answers, through crashes, restarts and changes of code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import PipelineError
from headrace.streams.buckets import fewer_tasks
from headrace.streams.buckets.kept_rows import parse_key
from headrace.streams.buckets.reports import collected
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.keyed.timers import Timer, Timers
from headrace.streams.progress_log import read_progress_log
from headrace.streams.source import Reader, read_stream
from headrace.streams.state import read_state_in
from headrace.streams.topic import METADATA_COLUMN

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
payments = hr.topic(
    "payments",
    schema="card string, amount bigint, at timestamp",
    key="card",
    event_time="at",
    watermark="10 seconds",
    partitions=3,
)


@dataclass
class Spent:
    total: int = 0
    amounts: list[int] = field(default_factory=list)


@dataclass
class SpentAndSeen:
    total: int = 0
    amounts: list[int] = field(default_factory=list)
    seen: int = 100


def spend(key: str, row: dict[str, Any], state: dict[str, Any], timers: Timers) -> Iterator[dict[str, Any]]:
    state["total"] += row["amount"]
    state["amounts"].append(row["amount"])
    timers.set(row["at"] + timedelta(minutes=1))
    yield {"total": state["total"], "amounts": state["amounts"]}


def rest(key: str, timer: Timer, state: dict[str, Any], timers: Timers) -> dict[str, Any]:
    state["amounts"] = []
    return {"total": state["total"], "rested": timer.at}


def see(key: str, row: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    state["seen"] += 1
    return {"total": state["total"], "amounts": [state["seen"]]}


RETURNS = "total bigint, amounts array<bigint>, rested timestamp"


@hr.pipeline(writes=hr.topic("spending", key="card"))
def spending(payments: DataFrame) -> DataFrame:
    return hr.keyed(payments, by="card", step=spend, state=Spent, returns=RETURNS, on_timer=rest)


@hr.pipeline(writes=hr.topic("spending", key="card"))
def seeing(payments: DataFrame) -> DataFrame:
    return hr.keyed(payments, by="card", step=see, state=SpentAndSeen, returns=RETURNS, name="spend")


@hr.pipeline(writes=hr.topic("spending", key="card"))
def forgetting(payments: DataFrame) -> DataFrame:
    return hr.keyed(payments, by="card", step=see, state="seen bigint", returns=RETURNS, name="spend")


@hr.pipeline(writes=hr.topic("spending", key="card"))
def expiring(payments: DataFrame) -> DataFrame:
    return hr.keyed(
        payments, by="card", step=see, state=SpentAndSeen, returns=RETURNS, name="spend", ttl="1 hour"
    )


@hr.vectorised
def add_up(rows: pa.Table, state: pa.Table, time: hr.EventTime) -> tuple[pa.Table, pa.Table]:
    added = pa.table({"card": rows["card"], "total": rows["amount"]})
    both = pa.concat_tables([state, added]).group_by("card", use_threads=False)
    totals = both.aggregate([("total", "sum")]).rename_columns(["card", "total"])
    return totals.filter(pc.is_in(totals["card"], rows["card"].combine_chunks())), totals


@hr.pipeline(writes=hr.topic("totals", key="card"))
def totals(payments: DataFrame) -> DataFrame:
    made = hr.keyed(payments, by="card", step=add_up, state="total bigint", returns="total bigint", buckets=3)
    # One task then steps the buckets of all of Spark's partitions of the state, one after the other.
    return made.coalesce(1)


def payment(card: str | None, amount: int, second: int) -> dict[str, Any]:
    return {"card": card, "amount": amount, "at": NOON + timedelta(seconds=second)}


def spent(card: str | None, *amounts: int) -> dict[str, Any]:
    return {"card": card, "total": sum(amounts), "amounts": list(amounts), "rested": None}


def rested(card: str | None, total: int, second: int) -> dict[str, Any]:
    return {"card": card, "total": total, "amounts": None, "rested": NOON + timedelta(seconds=second)}


@pytest.mark.long
def test_state_is_kept_through_crashes_restarts_and_new_code_and_can_be_read(headrace_pipeline: Any) -> None:
    script = headrace_pipeline(spending)
    script.add(payments, payment("a", 1, 0), payment("b", 10, 0), payment(None, 7, 0), payment("ü", 5, 1))
    script.expect(spent("a", 1), spent("b", 10), spent(None, 7), spent("ü", 5))
    first = read_progress_log(checkpoint_path(script._config, "spending")).committed
    assert first is not None

    script.add(payments, payment("a", 2, 2), payment("a", 3, 3))
    # The new state is written, and the results are not: both are made anew, from the old state.
    script.crash("pipeline.task.produced")
    script.expect(spent("a", 1, 2), spent("a", 1, 2, 3))
    # All partitions go on in time, so that the timers of those who rest are due.
    script.add(payments, *(payment(f"late{number}", 1, 200) for number in range(12)))
    with collected() as reports:
        script.process()
    (told,) = reports[0].batches()
    assert told.gauges == {"watermark_us": int((NOON + timedelta(seconds=190)).timestamp()) * 1_000_000}
    # All buckets tell the same of time, which is kept once.
    assert told.time_report is not None
    assert told.time_report.watermark_us == told.gauges["watermark_us"]
    assert {source.source.rpartition("-")[0] for source in told.time_report.sources} == {payments.name}
    assert told.time_report.newest_event_us == int((NOON + timedelta(seconds=200)).timestamp()) * 1_000_000
    script.expect(
        *(spent(f"late{number}", 1) for number in range(12)),
        rested("a", 6, 63),
        rested("b", 10, 60),
        rested(None, 7, 60),
        rested("ü", 5, 61),
    )

    script.add(payments, payment("a", 9, 300)).restart(seeing)
    script.expect({"card": "a", "total": 6, "amounts": [101], "rested": None})

    def kept(card: str, batch: int) -> list[dict[str, Any]]:
        checkpoint = checkpoint_path(script._config, "spending")
        found = read_state_in(script._session, "spending", checkpoint, parse_key([card]), batch=batch)
        return [dict(row.row) for row in found.rows]

    last = read_progress_log(checkpoint_path(script._config, "spending")).committed
    assert last is not None
    assert kept("a", last) == [{"card": "a", "total": 6, "amounts": [], "seen": 101}]
    assert [(row["total"], row["amounts"]) for row in kept("a", first)] == [(1, [1])]
    assert kept("nobody", last) == []
    with pytest.raises(PipelineError, match="after batch 1000 can't be read"):
        kept("a", 1000)

    with pytest.raises(PipelineError, match="has another ttl: 1 hour instead of not set"):
        script.restart(expiring)
    with pytest.raises(
        PipelineError, match="spend: its state has a field 'total' that is no longer declared"
    ):
        script.add(payments, payment("a", 9, 301)).restart(forgetting)


def test_a_batch_that_a_table_has_already_steps_the_state_all_the_same(
    headrace_pipeline: Any, tmp_path: Path
) -> None:
    @hr.pipeline(writes=hr.delta_table(tmp_path / "spending"))
    def into_table(payments: DataFrame) -> DataFrame:
        return hr.keyed(payments, by="card", step=spend, state=Spent, returns=RETURNS, on_timer=rest)

    script = headrace_pipeline(into_table)
    script.add(payments, payment("a", 1, 0), payment("b", 10, 0))
    # The rows are in the table, and the batch is not finished: it runs again, and writes nothing.
    script.crash("pipeline.written")
    script.add(payments, payment("a", 2, 1)).process()

    rows = DeltaTable(tmp_path / "spending").to_pyarrow_table().to_pylist()
    assert sorted((row["card"], row["total"]) for row in rows) == [("a", 1), ("a", 3), ("b", 10)]


def test_a_vectorised_step_gives_exact_answers_and_batch_gives_the_same(
    headrace_pipeline: Any, headrace_spark: SparkSession
) -> None:
    rows = [payment(f"card{number % 7}", number, number) for number in range(50)]
    by_card = {f"card{card}": sum(range(card, 50, 7)) for card in range(7)}
    script = headrace_pipeline(totals)
    script.add(payments, *rows[:20]).process()
    script.add(payments, *rows[20:]).process()
    found = {row["card"]: row["total"] for row in map(_decoded, script._read("totals"))}
    batch = totals(hr.static(headrace_spark, payments, rows)).collect()

    assert found == by_card
    assert {row["card"]: row["total"] for row in batch} == by_card

    # Per event, too: the timers fire where event time goes on for ever.
    resting = spending(
        hr.static(headrace_spark, payments, [payment("a", 1, 0), payment("a", 2, 90)])
    ).collect()
    assert [(row["total"], row["amounts"], row["rested"] is None) for row in resting] == [
        (1, [1], True),
        (1, None, False),
        (3, [2], True),
        (3, None, False),
    ]
    with pytest.raises(Exception, match=r"test_keyed.py:\d+: TypeError: .*\(key 'a', given {'card': 'a'"):
        spending(hr.static(headrace_spark, payments, [{"card": "a", "at": NOON}])).collect()


def _decoded(message: Any) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(message.value())
    return value


def test_a_topic_is_packed_by_no_more_tasks_than_run_at_once_where_that_shows_nowhere(
    spark: SparkSession, kafka: Any, config: StreamsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(bootstrap: str) -> DataFrame:
        source = spark.readStream.format("kafka").option("subscribe", "many-parts")
        records = source.option("kafka.bootstrap.servers", bootstrap).load()
        return records.withColumn(METADATA_COLUMN, F.struct("topic", "partition", "offset", "timestamp"))

    rows = read(kafka.bootstrap)
    monkeypatch.setattr(fewer_tasks, "tasks_at_once", lambda _master: 2)

    def is_in_fewer(rows: DataFrame, by: str = "key") -> bool:
        stepped = hr.keyed(rows, by=by, step=see, state=SpentAndSeen, returns=RETURNS)
        return "Repartition 2, false" in str(stepped._jdf.queryExecution().analyzed())

    assert is_in_fewer(rows)
    assert is_in_fewer(read_stream(spark, payments, Reader(name="many", config=config)), by="card")
    assert is_in_fewer(rows.select("*", F.explode(F.array("value", "key")).alias("each")))
    assert is_in_fewer(read(f"{kafka.bootstrap},"))
    assert is_in_fewer(rows.where("value is not null").select("key", METADATA_COLUMN))
    assert not is_in_fewer(read(f"{kafka.bootstrap}, far-away:9092")), "partitions are asked for at once"
    assert not is_in_fewer(rows.drop(METADATA_COLUMN)), "there, tasks are the sources"
    assert not is_in_fewer(rows.union(rows)), "rows of a partition may come by two tasks"
    assert not is_in_fewer(rows.dropDuplicates(["key"])), "they come by the tasks of the state"
    assert not is_in_fewer(rows.repartition(7)), "somebody has asked for it"
    assert not is_in_fewer(rows.mapInArrow(lambda batches: batches, rows.schema)), "it may wait for others"
    waits = F.udf(lambda value: value, "binary")
    assert not is_in_fewer(rows.withColumn("value", waits("value"))), "it may wait for others"
    monkeypatch.setattr(fewer_tasks, "tasks_at_once", lambda _master: None)
    assert not is_in_fewer(rows), "on a cluster"
