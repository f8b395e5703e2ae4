"""Transactions of a database are seen as a whole, though their tables are read apart, through crashes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.errors import PipelineError
from headrace.streams.buckets.reports import collected

pytestmark = pytest.mark.spark

checking, savings = (
    hr.topic(
        f"bank.public.{name}",
        format="debezium",
        key="account",
        schema="account bigint not null, amount bigint",
        partitions=1,
    )
    for name in ("checking", "savings")
)
transactions = hr.topic("bank.transaction", format="debezium-transactions", partitions=1)


@hr.pipeline(
    writes=hr.topic("amounts", key="account", partitions=1),
    reads={"one": checking, "other": savings, "ends": transactions},
)
def amounts(one: DataFrame, other: DataFrame, ends: DataFrame) -> DataFrame:
    """What accounts have in two tables. Money that is moved between them is in one of them, always."""
    one, other = hr.aligned(one, other, transactions=ends, held_max=2)
    both = one.withColumn("of", F.lit("checking")).unionByName(other.withColumn("of", F.lit("savings")))
    return both.select("account", "of", "amount")


def change(transaction: str | None, order: int, account: int, amount: int) -> str:
    told = None if transaction is None else {"id": transaction, "total_order": order}
    after = {"account": account, "amount": amount}
    return json.dumps({"op": "c", "before": None, "after": after, "transaction": told})


def ended(transaction: str, **counts: int) -> str:
    collections = [{"data_collection": f"public.{name}", "event_count": counts[name]} for name in counts]
    told = {"status": "END", "id": transaction, "event_count": sum(counts.values())}
    return json.dumps({**told, "data_collections": collections})


def has(account: int, of: str, amount: int) -> dict[str, int | str]:
    return {"account": account, "of": of, "amount": amount}


def test_no_half_of_a_transaction_is_ever_seen(headrace_pipeline: Any) -> None:
    script = headrace_pipeline(amounts)
    # What the capture calls a transaction has a number, and a position that is not the same in all changes.
    script.add(checking, change(None, 0, 1, 9), change("7:101", 1, 1, 4))
    script.add(transactions, json.dumps({"status": "BEGIN", "id": "7:100"}))
    script.expect(has(1, "checking", 9))
    script.add(transactions, ended("7:105", checking=1, savings=1, audit=9), "no event", '{"id": "8:1"}')
    script.expect()
    script.add(savings, change("7:103", 2, 1, 5)).crash("pipeline.task.produced")
    script.expect(has(1, "checking", 4), has(1, "savings", 5))

    # Of the next one a change never comes. It must not hold all others for ever.
    script.add(checking, change("8:1", 1, 2, 1), change("9:1", 1, 3, 1))
    script.add(transactions, ended("8:9", checking=1, savings=1), ended("9:9", checking=1, savings=1))
    script.add(savings, change("9:2", 2, 3, 2))
    with collected() as reports:
        script.expect(has(2, "checking", 1), has(3, "checking", 1), has(3, "savings", 2))
    counts = {each.operator: batch.counts for each in reports for batch in each.batches() if batch.counts}
    assert counts == {"aligned": {"unaligned": 1}}
    script.expect_dead_letters(
        transactions,
        {"value": "no event", "cause": "the value is not one JSON text"},
        {"value": '{"id": "8:1"}', "cause": "a required column has no value: status (string)"},
    )


def captured(topic: hr.Topic) -> list[str]:
    """What Debezium wrote."""
    lines = (Path(__file__).parent / "debezium-events.ndjson").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [json.dumps(record["value"]) for record in records if record["topic"] == topic.name]


def test_what_debezium_writes_of_transactions_is_read_as_it_is(headrace_spark: SparkSession) -> None:
    bench, demo = (
        hr.topic(f"dbz.public.{name}", format="debezium", key="id", schema="id bigint not null")
        for name in ("bench", "demo")
    )
    told = hr.topic("dbz.transaction", format="debezium-transactions")
    ends = hr.static(headrace_spark, told, captured(told))
    tables = [hr.static(headrace_spark, topic, captured(topic)) for topic in (bench, demo)]
    held = hr.aligned(*tables, transactions=ends)
    rows = [hr.changes(table, buckets=1).select("id", "_weight") for table in held]
    assert rows[0].unionByName(rows[1]).count() == 5 + 2

    def refused(message: str, *given: DataFrame, **asked: Any) -> None:
        with pytest.raises(PipelineError, match=message):
            hr.aligned(*given, **{"transactions": ends, **asked})

    refused("given no table")
    refused("not those of a topic of change capture", hr.changes(tables[0]))
    refused("given twice", tables[0], tables[0])
    refused("has no column data_collections", tables[0], transactions=tables[1])
    refused("patience is '0 seconds'", tables[0], patience="0 seconds")
    refused("held_max is 0", tables[0], held_max=0)
