"""What is explained of a pipeline is what it did: compared with the topics that it has written."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.driver.event_time import moment
from headrace.errors import ConfigError
from headrace.streams.explain import Asked, Explanation, explain_in
from headrace.streams.pipeline import Pipeline
from headrace.streams.spans import Bound

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)

payments = hr.topic(
    "payments",
    schema="tx_id string not null, card string, amount bigint, at timestamp",
    event_time="at",
    watermark="10 seconds",
    partitions=2,
)


@hr.pipeline(writes=hr.topic("card-minutes", key="card"))
def card_minutes(payments: DataFrame) -> DataFrame:
    late = hr.update(within="1 minute", retract=True, then=hr.side_output("payments.late"))
    windows = hr.window(
        payments.where("amount > 0"),
        hr.tumbling("1 minute"),
        by="card",
        late=late,
        trigger=hr.early(rows=1),
    )
    return windows.agg(F.count("*").alias("count"), F.sum("amount").alias("total"))


@hr.pipeline(writes=hr.topic("not-run", key="card"), name="not_run")
def not_run(payments: DataFrame) -> DataFrame:
    kept = hr.window(payments, hr.session_window("1 minute"), by="card").agg(F.count("*").alias("count"))
    lost = payments.select("card", "at")
    return kept.unionByName(
        hr.window(lost, hr.session_window("1 minute"), by="card", late=hr.drop).agg(
            F.count("*").alias("count")
        )
    )


@hr.pipeline(writes=hr.topic("large", key="card"))
def large(payments: DataFrame) -> DataFrame:
    return payments.where("amount > 100")


def payment(number: int, card: str | None, second: float | None, amount: int = 1) -> str:
    at = None if second is None else (START + timedelta(seconds=second)).isoformat()
    return json.dumps({"tx_id": str(number), "card": card, "amount": amount, "at": at})


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def given(records: list[Any]) -> Counter[tuple[Any, ...]]:
    """The results of a topic."""
    rows = [json.loads(record.value) for record in records]
    return Counter(
        (
            row["card"],
            instant(row["window"]["end"]),
            row["firing"],
            row["retracted"],
            row["count"],
            row["total"],
        )
        for row in rows
    )


def explained(explanation: Explanation) -> Counter[tuple[Any, ...]]:
    """The same, as it is explained."""
    (timeline,) = explanation.timelines
    return Counter(
        (
            window.key[0],
            moment(window.end_us or 0),
            firing.kind,
            firing.retracted,
            firing.values["count"],
            firing.values["total"],
        )
        for window in timeline.windows
        for firing in window.firings
    )


def test_each_firing_and_late_row_is_explained_as_it_was_written(
    kafka: Any, start: Any, processed: Any, spark: SparkSession, config: StreamsConfig
) -> None:
    def produce(*records: str) -> None:
        # A record without a key would be in a partition by chance, and with it the watermark.
        kafka.produce("payments", [(json.loads(record)["card"] or "none", record) for record in records])
        processed("card_minutes", "payments")

    def explain(pipeline: Pipeline[Any], asked: Asked | None = None) -> Explanation:
        return explain_in(spark, pipeline, pipeline.sources(), config, asked=asked)

    queries = start(card_minutes, realtime=False)
    produce(payment(1, "ann", 5), payment(2, "bob", 20), payment(3, "ann", 50, 7), payment(4, "bob", 55, -1))
    produce(payment(5, "ann", 75), payment(6, "bob", 80), payment(7, None, 70))
    produce(payment(8, "ann", 40), payment(9, "bob", None))
    produce(payment(10, "ann", 200), payment(11, "bob", 210), payment(12, None, 205))
    # In a batch of its own, for it is one record.
    produce(payment(13, "ann", 30))
    queries.stop()

    whole = explain(card_minutes)
    assert whole.notes == ()
    assert explained(whole) == given(kafka.read_count("card-minutes", sum(explained(whole).values())))
    assert {kind for _, _, kind, *_ in explained(whole)} == {"early", "on_time", "late"}
    (timeline,) = whole.timelines
    assert [row.fate for row in timeline.rows if row.fate == "correction"] == ["correction"]
    told = {row.place: row for row in timeline.late_rows()}
    late = [json.loads(record.value) for record in kafka.read_count("payments.late", len(told))]
    assert sorted(row["tx_id"] for row in late) == ["13", "9"]
    (late_row,) = [row for row in told.values() if row.lateness is not None]
    (written,) = [row for row in late if row["tx_id"] == "13"]
    assert late_row.lateness is not None
    assert late_row.lateness.late_by_us // 1_000 == written["late_by_ms"]
    assert timeline.moments[late_row.moment].before_us is not None
    assert moment(timeline.moments[late_row.moment].before_us or 0) == instant(written["watermark"])
    # The filter left one out.
    assert len(timeline.rows) == 12

    # The last batch alone knows the watermark from the state that the checkpoint keeps.
    last = explain(card_minutes, Asked(limit=1))
    (timeline,) = last.timelines
    assert timeline.notes == ()
    assert [(row.place, row.lateness) for row in timeline.rows] == [(late_row.place, late_row.lateness)]
    assert "rows here that came before" in last.notes[0]

    end = Bound(offsets=kafka_ends(kafka))
    with pytest.raises(ConfigError, match="no batch of card_minutes lies in that part of the log"):
        explain(card_minutes, Asked(begin=end))

    assumed = explain(not_run)
    assert [timeline.operator for timeline in assumed.timelines] == ["window"]
    assert not [row for row in assumed.timelines[0].late_rows() if row.fate == "late"]
    assert "micro-batches of 100 rows are assumed" in assumed.notes[0]
    assert "the rows of window-2 don't tell where they came from" in assumed.notes[1]
    assert any("session window with gaps of 1 minute by card" in line for line in assumed.words)

    plain = explain(large)
    assert (plain.timelines, len(plain.notes)) == ((), 1)
    assert "it treats each row by itself, and keeps nothing" in plain.words


def kafka_ends(kafka: Any) -> dict[tuple[str | None, int], int]:
    return dict(kafka.ends("payments"))
