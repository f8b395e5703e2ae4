"""Windows on Spark. Each kind is compared with a naive reference elsewhere; here is what Spark adds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.errors import PipelineError
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.progress_log import read_progress_log
from headrace.streams.verify import verify_in
from headrace.testing.waiting import eventually

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)
WITHIN_S = 240.0
"""How long Spark may take, on a slow and busy machine."""
SCHEMA = "tx_id string not null, card_id string, amount double, at timestamp"

transactions = hr.topic(
    "transactions",
    schema=SCHEMA,
    key="card_id",
    event_time="at",
    watermark="10 seconds",
    max_ahead="1 day",
    partitions=1,
)
late = hr.topic("transactions.late")


def transaction(number: int, card: str | None, second: float, amount: float = 1.0) -> dict[str, object]:
    return {"tx_id": str(number), "card_id": card, "amount": amount, "at": START + timedelta(seconds=second)}


def minute(number: int) -> dict[str, str]:
    begin = START + timedelta(minutes=number)
    return {"start": written(begin), "end": written(begin + timedelta(minutes=1))}


def written(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def result(
    card: str | None, window: int, count: int, total: float, firing: str = "on_time"
) -> dict[str, object]:
    return {"card_id": card, "window": minute(window), "count": count, "total": total, "firing": firing}


@hr.pipeline(writes=hr.topic("card-minutes", key="card_id"))
def card_minutes(transactions: DataFrame) -> DataFrame:
    return hr.window(
        transactions.where("amount >= 0"),
        hr.tumbling("1 minute"),
        by="card_id",
        late=hr.side_output("transactions.late"),
    ).agg(F.count("*").alias("count"), F.sum(F.col("amount") * 2).alias("total"))


@hr.pipeline(writes=hr.topic("card-minutes", key="card_id"))
def five_minutes(transactions: DataFrame) -> DataFrame:
    return hr.window(transactions, hr.tumbling("5 minutes"), by="card_id").agg(
        F.count("*").alias("count"), F.sum("amount").alias("total")
    )


@hr.pipeline(writes=hr.topic("chained", key="card_id"))
def chained(transactions: DataFrame) -> DataFrame:
    """One operator after another, and late rows where nothing is said of them."""
    once = hr.deduplicate(transactions, by="tx_id", ttl="1 day")
    return hr.window(once, hr.tumbling("1 minute"), by="card_id").agg(
        F.count("*").alias("count"), F.sum("amount").alias("total")
    )


def late_row(row: dict[str, object], **told: object) -> dict[str, object]:
    moment = row["at"]
    return {**row, "at": written(moment) if isinstance(moment, datetime) else None, **told}


@pytest.mark.long
def test_windows_come_once_and_late_rows_go_to_their_topic_whatever_step_crashes(
    headrace_pipeline: Any,
) -> None:
    script = headrace_pipeline(card_minutes)
    timeless = {**transaction(5, "a", 0), "at": None}
    script.add(
        transactions, transaction(1, "a", 10, 2.0), transaction(2, "b", 20), transaction(3, "a", 50, 3.0)
    )
    script.add(transactions, transaction(4, None, 55), timeless)
    script.expect()
    no_time = {"window": None, "late_by_ms": None, "watermark": None, "reason": "no event time"}
    script.expect(late_row(timeless, **no_time), topic=late)

    # The watermark is 65 seconds after the start now, and a row that completes a window fires it at once.
    script.add(transactions, transaction(6, "a", 75))
    script.crash("pipeline.written")
    script.expect(result("a", 0, 2, 10.0), result("b", 0, 1, 2.0), result(None, 0, 1, 2.0))

    behind = transaction(7, "a", 30)
    script.add(transactions, behind)
    script.crash("pipeline.task.committed")
    script.crash("pipeline.side.written")
    script.expect()
    watermark = written(START + timedelta(seconds=65))
    told = {"window": minute(0), "late_by_ms": 5_000, "watermark": watermark, "reason": "late"}
    script.expect(late_row(behind, **told), topic=late)

    with pytest.raises(PipelineError, match="tumbling window of 1 minute by card_id is gone"):
        script.restart(five_minutes)


def test_late_rows_of_two_operators_come_from_a_new_checkpoint_as_well(
    kafka: Any, start: Any, processed: Any, config: Any
) -> None:
    def produce(*rows: dict[str, object]) -> None:
        kafka.produce("transactions", [(str(row["card_id"]), encoded(row)) for row in rows])
        processed("chained", "transactions")

    # The directory has a space in its name.
    queries = start(chained, realtime=False)
    produce(transaction(1, "a", 90_000), transaction(2, "a", 3_700_000))
    produce(transaction(3, "a", 0), transaction(4, "a", 3_690_000))
    queries.stop()
    assert [late_id(record) for record in kafka.read_count("chained.late", 1)] == ["3"]
    assert [late_id(record) for record in kafka.read_count("chained.late-2", 1)] == ["4"]

    shutil.rmtree(config.checkpoints_dir / "chained")
    queries = start(chained, realtime=False)
    processed("chained", "transactions")
    produce(transaction(5, "a", 0), transaction(6, "a", 3_690_000))
    queries.stop()
    assert "5" in {late_id(record) for record in kafka.read_count("chained.late", 2)}
    assert "6" in {late_id(record) for record in kafka.read_count("chained.late-2", 2)}


def late_id(record: Any) -> str:
    return str(json.loads(record.value)["tx_id"])


def test_late_rows_are_written_at_least_once_as_well(headrace_pipeline: Any) -> None:
    script = headrace_pipeline(chained, guarantee="at-least-once")
    script.add(transactions, transaction(1, "a", 10), transaction(1, "a", 11), transaction(2, "a", 75))
    script.expect(result("a", 0, 1, 1.0))
    behind = transaction(3, "a", 20)
    script.add(transactions, behind).expect()
    told = {"window": minute(0), "late_by_ms": 5_000, "reason": "late"}
    watermark = written(START + timedelta(seconds=65))
    script.expect(late_row(behind, watermark=watermark, **told), topic=hr.topic("chained.late-2"))


def test_a_batch_gives_what_the_stream_gives_in_the_end(spark: SparkSession) -> None:
    rows = [transaction(number, card, 7 * number) for number, card in enumerate("abcab" * 10)]
    results = card_minutes(hr.static(spark, transactions, rows)).collect()
    found = {(row["card_id"], row["window"]["start"].minute): row["count"] for row in results}
    expected: dict[tuple[str, int], int] = {}
    for number, card in enumerate("abcab" * 10):
        place = (card, 7 * number // 60)
        expected[place] = expected.get(place, 0) + 1
    assert found == expected
    assert {row["firing"] for row in results} == {"on_time"}


def test_an_event_from_the_future_is_a_dead_letter(headrace_pipeline: Any) -> None:
    script = headrace_pipeline(card_minutes)
    ahead = {**transaction(1, "a", 0), "at": datetime.now(UTC) + timedelta(days=2)}
    script.add(transactions, ahead, transaction(2, "a", 1), transaction(3, "a", 80))
    script.expect(result("a", 0, 1, 2.0))
    cause = "at lies more than 86400 s after the record was written"
    script.expect_dead_letters(transactions, {"value": encoded(ahead), "cause": cause})


def encoded(row: dict[str, object]) -> str:
    return json.dumps({**row, "at": written(cast("datetime", row["at"]))})


def test_any_aggregate_of_sparks_is_computed_by_sparks_windows(spark: SparkSession) -> None:
    rows = hr.static(spark, transactions, [transaction(1, "a", 1, 2.0), transaction(2, "a", 2, 4.0)])
    windows = hr.window(rows, hr.tumbling("1 minute"), by="card_id")
    (found,) = windows.agg(F.collect_list("amount").alias("amounts")).collect()
    assert (found["card_id"], found["amounts"], found["firing"]) == ("a", [2.0, 4.0], "on_time")
    with pytest.raises(PipelineError, match="Spark's own windows, which are tumbling or hopping"):
        hr.window(rows, hr.session_window("1 minute"), by="card_id").agg(F.collect_list("amount"))


@hr.pipeline(writes=hr.topic("spark-minutes", key="card_id"))
def spark_minutes(transactions: DataFrame) -> DataFrame:
    """Plain Spark, which knows of the watermark from the topic."""
    minutes = transactions.groupBy("card_id", F.window("at", "1 minute"))
    return minutes.agg(F.collect_list("amount").alias("amounts"))


@hr.pipeline(writes=hr.topic("left-to-spark", key="card_id"))
def left_to_spark(transactions: DataFrame) -> DataFrame:
    windows = hr.window(transactions, hr.tumbling("1 minute"), by="card_id", late=hr.drop)
    return windows.agg(F.collect_list("amount").alias("amounts"))


def test_sparks_windows_end_by_the_watermark_of_the_topic(
    kafka: Any, start: Callable[..., Any], processed: Callable[[str, str], None], config: Any
) -> None:
    def has_ended(name: str) -> bool:
        last = read_progress_log(checkpoint_path(config, name)).last_committed
        return last is not None and last.watermark_ms >= (START.timestamp() + 190) * 1000

    pipelines = (spark_minutes, left_to_spark)
    start(*pipelines, realtime=False)
    for rows in ([(10, 1.0), (20, 2.0)], [(200, 4.0)], [(30, 8.0), (210, 16.0)]):
        # Spark leaves out what is behind the watermark of the batch before, so a batch must have had it.
        for pipeline in pipelines if rows[0][0] == 30 else ():
            eventually(partial(has_ended, pipeline.name), "a batch after the first minute", within_s=WITHIN_S)
        kafka.produce("transactions", [("a", encoded(transaction(1, "a", *row))) for row in rows])
        for pipeline in pipelines:
            processed(pipeline.name, "transactions")
    for pipeline in pipelines:
        records = kafka.read(pipeline.writes.name, lambda found: any(b"16.0" in each.value for each in found))
        written_rows = [json.loads(record.value) for record in records]
        last = {row["window"]["start"]: sorted(row["amounts"]) for row in written_rows}
        assert last == {minute(0)["start"]: [1.0, 2.0], minute(3)["start"]: [4.0, 16.0]}


def test_what_is_asked_wrongly_is_refused_with_what_to_do(spark: SparkSession) -> None:
    rows = hr.static(spark, transactions, [transaction(1, "a", 1)])
    with pytest.raises(PipelineError, match="no column 'card' among tx_id, card_id"):
        hr.window(rows, hr.tumbling("1 minute"), by="card")
    with pytest.raises(PipelineError, match="none of the columns is known as the event time: say event_time"):
        hr.window(rows.drop("at"), hr.tumbling("1 minute"), by="card_id")
    with pytest.raises(PipelineError, match="event_time amount is double; use a timestamp"):
        hr.window(rows, hr.tumbling("1 minute"), by="card_id", event_time="amount")
    with pytest.raises(PipelineError, match="given nothing to compute"):
        hr.window(rows, hr.tumbling("1 minute"), by="card_id").agg()
    taken = rows.withColumn("_kafka_topic", F.lit("t"))
    with pytest.raises(PipelineError, match="it makes the column _kafka_topic itself; rename yours"):
        hr.window(taken, hr.tumbling("1 minute"), by=["card_id", "_kafka_topic"]).agg(F.count("*"))
    with pytest.raises(PipelineError, match="two columns of its result are called card_id"):
        hr.window(rows, hr.tumbling("1 minute"), by="card_id").agg(F.count("*").alias("card_id"))


@hr.pipeline(writes=hr.topic("sent", key="card_id"))
def sent_once(transactions: DataFrame) -> DataFrame:
    first = hr.deduplicate(
        transactions, by=["card_id", "tx_id"], ttl="1 minute", duplicates=hr.side_output("sent.again")
    )
    return first.select("card_id", "tx_id")


@hr.pipeline(writes=hr.topic("leaders", key="card_id"))
def leaders(transactions: DataFrame) -> DataFrame:
    return hr.top(
        transactions.select("card_id", "tx_id", "amount"), 2, by="card_id", order_by="amount", item="tx_id"
    )


def test_a_row_is_sent_once_within_the_ttl_and_its_duplicates_go_to_their_topic(
    headrace_pipeline: Any,
) -> None:
    script = headrace_pipeline(sent_once)
    script.add(transactions, transaction(1, "a", 0), transaction(1, "b", 0), transaction(1, "a", 10))
    script.crash("pipeline.written")
    script.expect({"card_id": "a", "tx_id": "1"}, {"card_id": "b", "tx_id": "1"})
    script.expect(late_row(transaction(1, "a", 10)), topic=hr.topic("sent.again"))
    script.add(transactions, transaction(1, "a", 59), transaction(1, "a", 61))
    script.expect({"card_id": "a", "tx_id": "1"})


def test_a_leaderboard_tells_the_ranks_that_change(headrace_pipeline: Any) -> None:
    def rank(place: int, number: int, amount: float) -> dict[str, object]:
        return {"card_id": "a", "rank": place, "tx_id": str(number), "amount": amount, "removed": False}

    script = headrace_pipeline(leaders)
    script.add(transactions, transaction(1, "a", 0, 5.0), transaction(2, "a", 1, 7.0), transaction(3, "a", 2))
    script.expect(rank(1, 2, 7.0), rank(2, 1, 5.0))
    script.add(transactions, transaction(3, "a", 3, 6.0)).expect(rank(2, 3, 6.0))


def test_all_rows_are_one_group_where_nothing_is_grouped_by(spark: SparkSession) -> None:
    rows = hr.static(spark, transactions, [transaction(number, "a", number, number) for number in range(90)])
    # What deduplication leaves still knows its event time.
    windows = hr.window(hr.deduplicate(rows, by="tx_id"), hr.tumbling("1 minute"))
    told = windows.agg(
        hr.percentile("amount", 0.5, name="middle"),
        hr.approximate_distinct("tx_id", name="distinct"),
        hr.heavy_hitters("card_id", 1, name="heavy"),
        hr.greatest_rows(1, order_by="amount", columns=["tx_id"], name="greatest"),
    )
    assert told.columns == ["window", "middle", "distinct", "heavy", "greatest", "firing"]
    found = [
        (row["distinct"], row["heavy"][0]["count"], row["greatest"][0]["tx_id"])
        for row in told.orderBy("window").collect()
    ]
    assert found == [(60, 60, "59"), (30, 30, "89")]


@hr.pipeline(writes=hr.topic("spent", key="card_id"))
def spent(transactions: DataFrame) -> DataFrame:
    late = hr.update(within="1 hour", retract=True)
    windows = hr.window(
        transactions, hr.tumbling("1 minute"), by="card_id", late=late, trigger=hr.early(rows=1)
    )
    return windows.agg(F.sum("amount").alias("total"))


def test_the_last_result_of_each_window_is_what_verify_computes_again(
    kafka: Any, start: Any, processed: Any, spark: SparkSession, config: Any
) -> None:
    def produce(*rows: dict[str, object]) -> None:
        kafka.produce("transactions", [(str(row["card_id"]), encoded(row)) for row in rows])
        processed("spent", "transactions")

    queries = start(spent, realtime=False)
    produce(transaction(1, "a", 10, 2.0), transaction(2, "b", 20, 1.0))
    produce(transaction(3, "a", 75, 3.0))
    produce(transaction(4, "a", 30, 4.0))
    queries.stop()
    current: dict[tuple[str, str], float] = {}
    firings = set()
    for record in kafka.read("spent", lambda records: any(b'"late"' in record.value for record in records)):
        row = json.loads(record.value)
        firings.add(row["firing"])
        place = (row["card_id"], row["window"]["start"])
        if row["retracted"]:
            assert current.pop(place) == row["total"]
        else:
            current[place] = row["total"]
    first, second = minute(0)["start"], minute(1)["start"]
    assert current == {("a", first): 6.0, ("b", first): 1.0, ("a", second): 3.0}
    assert firings == {"early", "on_time", "late"}
    comparison = verify_in(spark, spent, spent.sources(), config)
    assert (comparison.verdict, comparison.computed_count, comparison.differences) == ("equal", 3, ())
