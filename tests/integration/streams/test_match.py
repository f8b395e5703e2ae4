"""Patterns on Spark: exact through restarts, with late rows, limits, conditions in Python, and new code."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.errors import PipelineError
from headrace.streams.buckets.reports import collected
from headrace.streams.match_recent import is_in_order
from headrace.streams.recent import REALTIME_SETTING
from headrace.streams.sinks.records import JSON_OPTIONS

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
prices = hr.topic(
    "prices",
    schema="symbol string, price double, at timestamp",
    key="symbol",
    event_time="at",
    watermark="10 seconds",
    partitions=2,
)


def falls(row: Mapping[str, Any], match: hr.MatchSoFar) -> bool:
    return match.previous is None or row["price"] < match.previous["price"]


def recovers(row: Mapping[str, Any], match: hr.MatchSoFar) -> bool:
    lowest = match.min("price", "fall")
    has_fallen = lowest is not None and match.count("fall") > 1
    return has_fallen and row["price"] is not None and row["price"] > 2 * lowest


def searched(prices: DataFrame, pattern: str, **asked: Any) -> DataFrame:
    return hr.match(
        prices,
        by="symbol",
        order_by="at",
        pattern=pattern,
        define={"fall": ("price > 0", falls), "rise": recovers},
        within="1 minute",
        limit=4,
        timed_out=True,
        **asked,
    )


@hr.pipeline(writes=hr.topic("rebounds", key="symbol"))
def rebounds(prices: DataFrame) -> DataFrame:
    return searched(prices, "fall+ rise")


@hr.pipeline(writes=hr.topic("rebounds", key="symbol"))
def changed(prices: DataFrame) -> DataFrame:
    return searched(prices, "fall{3} rise")


def price(symbol: str | None, second: int, value: float | None) -> dict[str, Any]:
    return {"symbol": symbol, "price": value, "at": NOON + timedelta(seconds=second)}


def found(match: Mapping[str, Any]) -> tuple[str | None, str, list[tuple[str, float]]]:
    evidence = [(each["matched"], each["row"]["price"]) for each in match["evidence"]]
    return match["symbol"], match["outcome"], evidence


def read(script: Any, topic: str) -> list[dict[str, Any]]:
    return [json.loads(message.value()) for message in script._read(topic)]


ROWS = [
    *(price("a", second, value) for second, value in enumerate([10.0, 8.0, 3.0, 7.0])),
    *(price("ü", second, value) for second, value in enumerate([9.0, 4.0])),
    *(price(None, second, value) for second, value in enumerate([5.0, 2.0, None, 1.0])),
    *(price("long", second, value) for second, value in enumerate([9.0, 8.0, 7.0, 6.0, 5.0, 4.0])),
]


def test_matches_are_the_same_live_and_in_batch_and_what_is_no_match_has_its_place(
    headrace_pipeline: Any, headrace_spark: SparkSession
) -> None:
    script = headrace_pipeline(rebounds)
    script.add(prices, *ROWS[:7]).process()
    script.add(prices, *ROWS[7:]).advance(prices, NOON + timedelta(seconds=40)).process()
    live = read(script, "rebounds")
    assert [found(match) for match in live] == [
        ("a", "match", [("fall", 10.0), ("fall", 8.0), ("fall", 3.0), ("rise", 7.0)])
    ]

    # Too late, and no time at all; then the time of all attempts is over.
    script.add(prices, price("a", 1, 1.0), {"symbol": "a", "price": 1.0}).process()
    with collected() as reports:
        script.advance(prices, NOON + timedelta(seconds=400)).process()
    (told,) = reports[0].batches()
    assert told.counts["timed_out"] == 7
    live += read(script, "rebounds")
    assert sorted((row["reason"], row["price"]) for row in read(script, "rebounds.late")) == [
        ("late", 1.0),
        ("no event time", 1.0),
    ]
    cut_off = {json.dumps(found(match)) for match in read(script, "rebounds.cut-off")}
    nine, eight, seven, six = (["fall", value] for value in (9.0, 8.0, 7.0, 6.0))
    assert json.dumps(["long", "cut_off", [nine, eight, seven, six]]) in cut_off

    rows = rebounds(hr.static(headrace_spark, prices, ROWS))
    batch = rows.select(F.to_json(F.struct("*"), JSON_OPTIONS).alias("value")).collect()
    assert sorted(map(json.dumps, live)) == sorted(json.dumps(json.loads(row.value)) for row in batch)

    with pytest.raises(PipelineError, match="pattern"):
        script.add(prices, price("a", 500, 1.0)).restart(changed)


def test_matches_of_equal_rows_have_ids_of_their_own(headrace_spark: SparkSession) -> None:
    rows = hr.static(headrace_spark, prices, [price("a", 1, 1.0)] * 2)
    asked: dict[str, Any] = {"by": "symbol", "pattern": "small", "define": {"small": "price < 2"}}
    numbered = hr.match(rows, **asked)
    assert numbered.columns == ["symbol", "start", "end", "outcome", "evidence", "id"]
    ids = {row.id for row in numbered.collect()}
    assert len(ids) == 2
    # The first of them has the id that it would have alone.
    (alone,) = hr.match(rows.limit(1), **asked).collect()
    assert alone.id in ids


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"pattern": "small tall"}, "nothing says which rows are 'tall': put it into define"),
        ({"pattern": "small"}, "'big' is defined, and is not in the pattern 'small'"),
        ({"define": {"small": "price", "big": "true"}}, "'small' is double; a condition is true or false"),
        ({"define": {"small": "cost < 1", "big": "true"}}, "'small' can't be computed: .*cost"),
        ({"define": {"small": lambda _row: True, "big": "true"}}, "does not take two arguments"),
        ({"define": {"small": 5, "big": "true"}}, "'small' is 5; give a column, a function"),
        ({"contiguity": "loose"}, "contiguity is 'loose'; say 'strict' or 'relaxed'"),
        ({"emit": "all"}, "emit is 'all'; say hr.non_overlapping"),
        ({"emit": hr.skip_to_last("tall")}, r"emit is skip_to_last\('tall'\), and no row is taken as 'tall'"),
        (
            {"pattern": "small !big", "emit": hr.skip_to_first("big")},
            "no row is taken as 'big' in 'small !big'",
        ),
        ({"limit": 0}, "limit is 0; use 1 to 100,000 rows"),
        ({"order_by": "price"}, "event_time price is double; use a timestamp"),
        ({"event_time": "other"}, "order_by is 'at' and event_time is 'other'"),
        ({"by": "start"}, "there is no column 'start'"),
    ],
)
def test_what_can_not_be_searched_for_is_refused(
    headrace_spark: SparkSession, asked: dict[str, Any], told: str
) -> None:
    given = {
        "by": "symbol",
        "order_by": "at",
        "pattern": "small big",
        "define": {"small": F.col("price") < 1, "big": F.col("price") > 9},
    }
    with pytest.raises(PipelineError, match=told):
        hr.match(hr.static(headrace_spark, prices, []), **{**given, **asked})


payments = hr.topic(
    "payments",
    schema="card string, number int not null, amount double, at timestamp not null",
    key="card",
    event_time="at",
    watermark="1 day",
    partitions=2,
)
SEARCHED: dict[str, Any] = {
    "by": "card",
    "order_by": hr.arrival,
    "pattern": "(small | free) small{1,2}? big",
    "define": {"small": "amount < 10", "free": "amount = 0", "big": "amount > 5"},
    "within": "40 seconds",
    "emit": hr.all_matches,
}


@hr.pipeline(writes=hr.topic("tried", key="card"))
def tried(payments: DataFrame) -> DataFrame:
    return hr.match(payments, **SEARCHED)


def paid(count: int) -> list[dict[str, Any]]:
    """Payments of a few cards, of which many are of two names, and not in the order of their times."""
    chance = Random(5)
    return [
        {
            "card": chance.choice(["c1", "c2", "ü"]),
            "number": number,
            "amount": chance.choice([0.0, 3.0, 7.0, 7.0, 12.0, None]),
            "at": NOON + timedelta(seconds=number * 5 + chance.randrange(12)),
        }
        for number in range(count)
    ]


def as_json(rows: DataFrame) -> list[str]:
    values = rows.select(F.to_json(F.struct("*"), JSON_OPTIONS).alias("value")).collect()
    return sorted(row.value for row in values)


def test_in_real_time_matches_are_those_of_a_batch_in_the_order_of_the_log(
    spark: SparkSession, start: Any, kafka: Any
) -> None:
    rows = paid(150)
    expected = as_json(tried(hr.static(spark, payments, rows)))
    assert len(expected) > 20
    start(tried, realtime=True)
    kafka.produce(
        "payments", [(row["card"], json.dumps({**row, "at": row["at"].isoformat()})) for row in rows]
    )
    records = kafka.read("tried", lambda found: len({record.value for record in found}) >= len(expected))
    assert sorted(record.value.decode() for record in records) == expected


def test_what_is_found_in_a_history_is_what_is_found_otherwise(
    headrace_spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = hr.static(headrace_spark, payments, paid(300))
    one = {"small": F.col("amount") < 10}
    asked: list[dict[str, Any]] = [
        {},
        {"within": None, "pattern": "small small | free big"},
        {"pattern": "small", "define": one, "emit": hr.non_overlapping},
    ]
    for each in asked:
        whole = {**SEARCHED, **each}
        # As a stream would be searched.
        monkeypatch.setattr(import_module("headrace.streams.match"), "is_for_history", lambda _rows: True)
        in_history = as_json(hr.match(rows, **whole))
        monkeypatch.undo()
        assert in_history == as_json(hr.match(rows, **whole))


def test_a_row_behind_those_of_another_partition_is_an_error(headrace_spark: SparkSession) -> None:
    place = "struct<offset bigint, partition int, topic string>"
    schema = f"card string, recent array<struct<_argument_place {place}, is_new boolean>>, overflow boolean"

    def judged(*entries: tuple[int, int, bool], overflow: bool = False) -> list[str]:
        history = [((offset, partition, "t"), is_new) for offset, partition, is_new in entries]
        rows = headrace_spark.createDataFrame([("c1", history, overflow)], schema)
        return [row.card for row in rows.where(is_in_order(["card"])).collect()]

    assert judged((1, 0, False), (2, 0, True)) == ["c1"]
    assert judged((1, 0, False), (2, 1, True)) == ["c1"]
    assert judged((1, 0, False), (2, 0, False)) == []
    for apart in ([(1, 1, True), (2, 0, False)], [(2, 0, False)]):
        with pytest.raises(Exception, match=r"in several partitions.*by card; the key is .*c1"):
            judged(*apart, overflow=len(apart) == 1)


@contextmanager
def real_time(session: SparkSession) -> Iterator[None]:
    """Build for real-time mode."""
    session.conf.set(REALTIME_SETTING, "true")
    try:
        yield
    finally:
        session.conf.unset(REALTIME_SETTING)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"pattern": "small+ free big"}, r"'\+' .* repeats without a bound; give one"),
        ({"pattern": "small .. free big"}, r"'\.\.' lets any number of rows lie there"),
        ({"pattern": "small big !free"}, "'!free' lets any number of rows lie there, or waits"),
        ({"pattern": "free small{1,2} big"}, "'free small small big' is preferred to 'free small big'"),
        ({"pattern": "(small | free | big){9}"}, "more than 100 ways"),
        ({"pattern": "small{99} free big"}, "it may take 101 rows, and 100 are kept"),
        ({"emit": hr.non_overlapping}, "depends on those before it.* say emit=hr.all_matches"),
        ({"order_by": "at"}, "wait for the watermark.* say order_by=hr.arrival"),
        ({"contiguity": "relaxed"}, "any number of rows may lie between"),
        ({"timed_out": True}, "leave timed_out out; or run without --realtime"),
        ({"limit": 3}, "a match may have 4 rows, and limit is 3"),
        ({"by": "value", "event_time": "maybe"}, "without maybe could not be told of there"),
        ({"define": {**SEARCHED["define"], "big": recovers}}, "'big' asks a function"),
    ],
)
def test_real_time_mode_refuses_what_does_not_fit_a_history_and_says_what_to_do(
    headrace_spark: SparkSession, asked: dict[str, Any], told: str
) -> None:
    stream = headrace_spark.readStream.format("rate").load().withColumnRenamed("timestamp", "at")
    required = F.coalesce("at", F.lit(NOON))
    stream = stream.withColumns(
        {"maybe": F.col("at"), "at": required, "amount": F.lit(1), "_kafka": F.lit(1)}
    )
    given = {**SEARCHED, "by": "value", "event_time": None if asked.get("order_by") else "at"}
    with real_time(headrace_spark), pytest.raises(PipelineError, match=told):
        hr.match(stream, watermark="1 second", **{**given, **asked})
