"""What was written, verified by computing it again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import PipelineError
from headrace.streams import tallies
from headrace.streams.comparison import Comparison
from headrace.streams.pipeline import Pipeline
from headrace.streams.verify import verify_in
from headrace.testing.waiting import eventually

pytestmark = pytest.mark.spark

WITHIN_S = 240.0

orders = hr.topic(
    "orders",
    schema="id string not null, amount double, at timestamp",
    event_time="at",
    watermark="1 minute",
    partitions=2,
)
Verify = Callable[[Pipeline[Any]], Comparison]


@hr.pipeline(writes=hr.topic("doubled", key="id", partitions=2))
def doubled(orders: DataFrame) -> DataFrame:
    return orders.select("id", (F.col("amount") * 2).alias("double"), F.current_timestamp().alias("seen"))


@hr.pipeline(writes=hr.topic("minutes", key="id", partitions=2))
def minutes(orders: DataFrame) -> DataFrame:
    totals = orders.groupBy(F.window("at", "1 minute"), "id").agg(F.sum("amount").alias("total"))
    return totals.select("id", F.col("window.start").alias("minute"), "total")


@hr.pipeline(writes=hr.topic("open", key="id", partitions=2))
def open_totals(orders: DataFrame) -> DataFrame:
    return orders.groupBy("id").agg(
        F.sum("amount").alias("total"), F.expr("sum(amount) > 10").alias("_delete")
    )


scores = hr.topic(
    ["scores", "more-scores"],
    schema="game string, points int, at timestamp",
    event_time="at",
    watermark=hr.adaptive(at_least="0 seconds", at_most="1 second"),
    partitions=1,
)


@hr.pipeline(writes=hr.topic("games", key="game", partitions=2), reads={"rows": scores})
def games(rows: DataFrame) -> DataFrame:
    windows = hr.window(rows, hr.tumbling("1 minute"), by="game", late=hr.drop)
    return windows.agg(F.sum("points").alias("points"))


@hr.pipeline(writes=hr.topic("board", key="game", partitions=2), reads={"rows": scores})
def board(rows: DataFrame) -> DataFrame:
    return hr.top(rows, 2, by="game", order_by="points", ttl="1 minute", late=hr.drop)


def score(game: str, points: int, at: str) -> tuple[str, str]:
    return game, json.dumps({"game": game, "points": points, "at": f"2026-01-01T{at}Z"})


def order(number: str, amount: float, at: str = "00:00:30") -> tuple[str, str]:
    return number, json.dumps({"id": number, "amount": amount, "at": f"2026-01-01T{at}Z"})


@pytest.fixture
def verified(spark: SparkSession, config: StreamsConfig) -> Verify:
    def run(pipeline: Pipeline[Any]) -> Comparison:
        return verify_in(spark, pipeline, pipeline.sources(), config)

    return run


def await_batches(committed: Any, query: str, count: int) -> None:
    eventually(lambda: len(committed(query)) >= count, f"batch {count} of {query}", within_s=WITHIN_S)


def told(comparison: Comparison) -> set[tuple[str, str | None, str, str | None]]:
    return {(each.kind, each.key, each.judgement, each.cause) for each in comparison.differences}


def test_results_are_verified_and_each_difference_is_told_with_its_cause(
    kafka: Any, start: Any, committed: Any, verified: Verify
) -> None:
    kafka.produce("orders", [order("a", 1), order("a", 1), order("b", 2)])
    kafka.produce("orders", [("x", "not json")], headers=[("seen", "1"), ("seen", "2")])
    queries = start(doubled, realtime=False)
    kafka.read_count("doubled", 3)
    kafka.read_count("orders.dead-letters", 1)
    committed("doubled")

    while_running = verified(doubled)
    queries.stop()

    assert while_running.verdict == "equal"
    assert while_running.computed_count == while_running.written_count == 3
    assert any(
        "column seen was not compared: it is made by current_timestamp" in r for r in while_running.remarks
    )

    # Records that came since are not part of what the checkpoint says was processed.
    kafka.produce("orders", [order("c", 3)])
    assert verified(doubled).verdict == "equal"

    # The order of fields and the way in which a number is written don't count; what is not computed does.
    kafka.produce("doubled", [("b", '{"seen": 0, "double": 4, "id": "b"}'), ("z", '{"id": "z"}')])
    found = verified(doubled)
    assert found.verdict == "different"
    assert {(kind, key, judgement) for kind, key, judgement, _ in told(found)} == {
        ("duplicate", "b", "wrong"),
        ("unexpected", "z", "undecided"),
    }

    # With a schema by which the dead letter can be read, the row that was not written then is explained.
    lenient = replace(orders, schema=None, format="text", event_time=None, watermark=None)

    def lines(rows: DataFrame) -> DataFrame:
        id_of = F.coalesce(F.get_json_object("value", "$.id"), F.lit("x"))
        amount = F.get_json_object("value", "$.amount").cast("double") * 2
        return rows.select(id_of.alias("id"), amount.alias("double"), F.current_timestamp().alias("seen"))

    reading_lines = hr.pipeline(writes=doubled.writes, name="doubled", reads={"rows": lenient})(lines)
    explained = verified(reading_lines)
    assert (
        "missing",
        "x",
        "expected",
        "its record is among the dead letters: it could not be decoded when it was processed",
    ) in told(explained)


def test_the_last_result_of_each_key_is_verified_and_late_rows_are_known(
    kafka: Any, start: Any, committed: Any, processed: Any, verified: Verify
) -> None:
    kafka.produce("orders", [order("a", 1), order("a", 2), order("b", 4, "02:00:00")])
    # In another order, their sum ends with other digits.
    kafka.produce("orders", [order("c", amount, "02:00:00") for amount in (0.1, 0.2, 0.3)])
    queries = start(minutes, open_totals, realtime=False)
    kafka.read("minutes", lambda found: {json.loads(each.value)["total"] for each in found} >= {3.0, 4.0})
    # The watermark of a batch counts for the one after the next, which may have no records.
    await_batches(committed, "minutes", 2)
    kafka.produce("orders", [order("b", 8, "02:00:01"), order("a", 16), order("c", 0.6, "02:00:02")])
    kafka.read("minutes", lambda found: 12.0 in {json.loads(each.value)["total"] for each in found})
    processed("minutes", "orders")
    kafka.read("open", lambda found: {each.key for each in found if each.value is None} == {b"a", b"b"})
    processed("open_totals", "orders")
    queries.stop()

    found = verified(minutes)

    assert found.way == "latest"
    assert told(found) == {
        ("changed", "a", "expected", "rows of it came behind the watermark, and were left out")
    }
    assert found.verdict == "equal"
    (difference,) = found.differences
    assert json.loads(str(difference.computed))["total"] == 19
    assert json.loads(str(difference.written))["total"] == 3

    # A tombstone is the last result of its key. An aggregate without windows leaves nothing out.
    assert (told(verified(open_totals)), verified(open_totals).way) == (set(), "latest")


@pytest.mark.long
def test_windows_and_leaderboards_are_verified_by_what_they_came_to(
    kafka: Any, start: Any, processed: Any, verified: Verify
) -> None:
    queries = start(games, board, realtime=False)
    kafka.produce("scores", [score("go", 1, "00:00:30"), score("go", 2, "00:00:40")])
    kafka.read("board", lambda found: len(found) >= 2)
    kafka.produce("scores", [score("go", 3, "00:05:00")])
    # The first two have left, so that there is nothing at the second rank any more.
    kafka.read("board", lambda found: any(json.loads(each.value)["removed"] for each in found))
    kafka.read("games", lambda found: len(found) >= 1)
    for query in ("games", "board"):
        processed(query, "scores")

    on_board = verified(board)

    assert (on_board.way, on_board.verdict, told(on_board)) == ("latest", "equal", set())
    assert on_board.computed_count == on_board.written_count == 1

    # By what is in the log now, no window must have ended; when one did, this partition was not known.
    kafka.produce("more-scores", [score("chess", 9, "00:00:10")])
    processed("games", "more-scores")
    queries.stop()

    in_windows = verified(games)

    assert (in_windows.way, in_windows.verdict, told(in_windows)) == ("latest", "equal", set())
    assert in_windows.computed_count == in_windows.written_count == 1

    kafka.produce("games", [score("chess", 9, "00:00:10")])
    assert verified(games).verdict == "undecided"


def test_what_the_guarantee_allows_is_counted_and_is_no_error(
    kafka: Any, start: Any, processed: Any, verified: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.produce("orders", [order("a", 1)])
    queries = start(doubled, realtime=True)
    (written,) = kafka.read_count("doubled", 1)
    kafka.produce("orders", [order("b", 1)])
    kafka.read_count("doubled", 2)
    processed("doubled", "orders")
    queries.stop()
    kafka.produce("doubled", [("a", written.value)])

    found = verified(doubled)

    assert told(found) == {
        ("duplicate", "a", "expected", "written again after a stop: the pipeline ran at-least-once")
    }
    assert found.verdict == "equal"

    # Those that are too many to be listed are no error either.
    monkeypatch.setattr(tallies, "LISTED_MAX", 1)
    (other,) = [each for each in kafka.read_count("doubled", 3) if each.key == b"b"]
    kafka.produce("doubled", [("b", other.value)] * 2)
    many = verified(doubled)
    assert (many.verdict, many.left_off, len(many.differences)) == ("equal", {"expected": 2}, 1)


def test_what_can_not_be_computed_twice_is_refused(
    kafka: Any, start: Any, committed: Any, verified: Verify
) -> None:
    @hr.pipeline(writes=hr.topic("sample", key="id", partitions=1))
    def sample(orders: DataFrame) -> DataFrame:
        return orders.where(F.rand() < 2).select("id")

    kafka.produce("orders", [order("a", 1)])
    queries = start(sample, realtime=False)
    kafka.read_count("sample", 1)
    committed("sample")
    queries.stop()

    with pytest.raises(PipelineError, match=r"sample can't be verified: .* is decided by rand"):
        verified(sample)
