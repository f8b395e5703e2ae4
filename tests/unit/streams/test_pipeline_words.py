"""A pipeline in sentences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import headrace.streams as hr
from headrace.streams.history import History, Run
from headrace.streams.pipeline import Pipeline
from headrace.streams.pipeline_words import pipeline_words, run_words, source_words, target_words
from headrace.streams.plans import Description, Operator, Part
from headrace.streams.progress_log import ProgressLog

payments = hr.topic(
    "payments",
    schema="card string, at timestamp",
    event_time="at",
    watermark=hr.bounded("10 seconds", idle_after="5 minutes"),
    max_ahead="1 hour",
)


def description(*operators: Operator) -> Description:
    return Description(
        sources=("payments",),
        operators=operators,
        shuffle_partition_count=2,
        output_mode="update",
        watermarks={},
    )


def pipeline(writes: Any) -> Pipeline[Any]:
    return Pipeline(name="p", function=lambda payments: payments, writes=writes, reads={"payments": payments})


def test_a_source_is_told_with_its_time_and_where_goes_what_cannot_be_read() -> None:
    assert source_words(payments) == (
        "reads payments as json, event time at; the watermark is the newest event of the partition that is "
        "furthest behind, less 10 seconds; a partition without records for 5 minutes is not waited for; "
        "events more than 1 hour ahead of their record are dead letters; what can't be read goes to "
        "payments.dead-letters"
    )
    assert source_words(hr.topic(["a", "b"], format="bytes")) == "reads a, b as bytes, without an event time"
    timed = hr.topic("a", schema="at timestamp", event_time="at")
    assert "event time at, without a watermark" in source_words(timed)


def test_targets_are_told_by_what_becomes_of_rows() -> None:
    assert target_words(pipeline(hr.topic("out", key="card"))) == "writes the topic out, with the key card"
    table = hr.postgres_table("postgresql://secret@host/db", "public.totals", key="card")
    assert target_words(pipeline(table)) == "writes the table public.totals, a row for each card"
    delta = target_words(pipeline(hr.delta_table(Path("/tables/totals"))))
    assert delta.startswith("writes the Delta table")
    assert delta.endswith("to which rows are added")


def test_operators_of_spark_are_told_beside_our_own() -> None:
    key = Part(text="card", typed="card: string", definition="card: string")
    own = Operator(kind="tumbling window of 1 minute", keys=(key,), state=())
    join = Operator(kind="inner join of two streams", keys=(key,), state=())
    told = list(
        pipeline_words(pipeline(hr.topic("out")), {"payments": payments}, description(own, join), [own], [])
    )
    assert [line for line in told if line.startswith("Spark itself")] == [
        (
            "Spark itself: inner join of two streams by card; its windows and late rows are Spark's, and are "
            "not shown here"
        )
    ]
    plain = list(pipeline_words(pipeline(hr.topic("out")), {"payments": payments}, description(), [], []))
    assert "it treats each row by itself, and keeps nothing" in plain
    patient = replace(pipeline(hr.topic("out")), patience_ms=1_500)
    assert list(pipeline_words(patient, {"payments": payments}, description(), [], [])) == [
        *plain,
        "may take 1,500 ms longer, so that many records are read at a time",
    ]


def test_how_it_was_run_is_told_from_checkpoint_and_history() -> None:
    log = ProgressLog(starts=(), batches=(), committed=7)
    run = Run(since_batch=0, code=None, realtime=False, guarantee="exactly-once")
    history = History(plan=description(), runs=(run,))
    assert run_words("/c", None, None) == "no batch of it is done at /c"
    assert run_words("/c", log, None) == "its checkpoint /c has done batch 7"
    assert run_words("/c", log, history) == (
        "its checkpoint /c has done batch 7; it was last run in micro-batches, exactly once"
    )
