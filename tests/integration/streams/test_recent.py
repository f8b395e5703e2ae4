"""A bounded history per key: the same in every mode, cut at its limit, and not in silence."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import PipelineError
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.describe import plan_of
from headrace.streams.plans.results import results_of
from headrace.streams.queries import Queries

pytestmark = pytest.mark.spark

LIMIT = 3
StartQueries = Callable[..., Queries]

events = hr.topic("events", schema="card string not null, n int, note string", partitions=1)


@hr.pipeline(writes=hr.topic("histories", key="card", partitions=1))
def histories(events: DataFrame) -> DataFrame:
    return hr.recent(events.select("card", "n", "note"), by="card", order_by="n", limit=LIMIT)


def event(n: int | None, card: str = "a", note: str = "") -> tuple[str, str]:
    return card, json.dumps({"card": card, "n": n, "note": note})


Update = tuple[str, list[tuple[Any, bool]], bool]


def update(value: bytes | str | None) -> Update:
    """Card, history as (n, whether it is new), whether it overflowed."""
    assert value is not None
    fields = json.loads(value)
    return fields["card"], [(row["n"], row["is_new"]) for row in fields["recent"]], fields["overflow"]


def static_updates(spark: SparkSession, *ns: int | None) -> list[Update]:
    rows = hr.static(spark, events, [{"card": "a", "n": n, "note": ""} for n in ns])
    return [
        (row.card, [(entry.n, entry.is_new) for entry in row.recent], row.overflow)
        for row in histories(rows).orderBy("recent").collect()
    ]


def test_static_rows_each_see_those_before_them_in_order(spark: SparkSession) -> None:
    updates = static_updates(spark, 30, 10, 40, 20)

    assert sorted(updates, key=lambda one: one[1][-1]) == [
        ("a", [(10, True)], False),
        ("a", [(10, False), (20, True)], False),
        ("a", [(10, False), (20, False), (30, True)], False),
        ("a", [(20, False), (30, False), (40, True)], False),
    ]


def test_a_null_comes_before_all_else(spark: SparkSession) -> None:
    updates = static_updates(spark, 1, None)

    assert sorted(updates, key=lambda one: len(one[1])) == [
        ("a", [(None, True)], False),
        ("a", [(None, False), (1, True)], False),
    ]


def test_in_real_time_each_row_of_a_burst_is_an_update_of_its_own(kafka: Any, start: StartQueries) -> None:
    start(histories, realtime=True)

    kafka.produce("events", [event(n) for n in (10, 20, 40, 30, 50, 60)])

    assert [update(record.value) for record in kafka.read_count("histories", 6)] == [
        ("a", [(10, True)], False),
        ("a", [(10, False), (20, True)], False),
        ("a", [(10, False), (20, False), (40, True)], False),
        ("a", [(20, False), (30, True), (40, False)], False),
        ("a", [(30, False), (40, False), (50, True)], False),
        ("a", [(40, False), (50, False), (60, True)], False),
    ]


def test_in_real_time_a_row_that_comes_too_late_for_the_history_is_an_overflow(
    kafka: Any, start: StartQueries
) -> None:
    start(histories, realtime=True)

    kafka.produce("events", [event(n) for n in (10, 20, 30, 5)])

    assert update(kafka.read_count("histories", 4)[-1].value) == (
        "a",
        [(10, False), (20, False), (30, False)],
        True,
    )


def test_in_micro_batches_all_rows_of_a_batch_are_new(kafka: Any, start: StartQueries) -> None:
    kafka.produce("events", [event(20), event(10), event(1, card="b")])
    start(histories, realtime=False)
    first = kafka.read_count("histories", 2)

    kafka.produce("events", [event(15)])
    second = kafka.read_count("histories", 3)[2:]

    assert sorted(update(record.value) for record in first) == [
        ("a", [(10, True), (20, True)], False),
        ("b", [(1, True)], False),
    ]
    assert [update(record.value) for record in second] == [
        ("a", [(10, False), (15, True), (20, False)], False)
    ]


def test_in_micro_batches_a_full_history_of_new_rows_is_no_overflow(kafka: Any, start: StartQueries) -> None:
    kafka.produce("events", [event(n) for n in (10, 20, 30)])
    start(histories, realtime=False)
    first = kafka.read_count("histories", 1)

    kafka.produce("events", [event(40)])
    second = kafka.read_count("histories", 2)[1:]

    assert update(first[0].value) == ("a", [(10, True), (20, True), (30, True)], False)
    assert update(second[0].value) == ("a", [(20, False), (30, False), (40, True)], False)


def test_in_micro_batches_a_row_that_the_batch_itself_pushed_out_is_an_overflow(
    kafka: Any, start: StartQueries
) -> None:
    kafka.produce("events", [event(n) for n in (10, 20, 30, 40)])
    start(histories, realtime=False)

    assert update(kafka.read_count("histories", 1)[0].value) == (
        "a",
        [(20, True), (30, True), (40, True)],
        True,
    )


def test_in_micro_batches_a_row_that_comes_too_late_for_the_history_is_an_overflow(
    kafka: Any, start: StartQueries
) -> None:
    kafka.produce("events", [event(n) for n in (10, 20, 30)])
    start(histories, realtime=False)
    kafka.read_count("histories", 1)

    kafka.produce("events", [event(5)])

    assert update(kafka.read_count("histories", 2)[1].value) == (
        "a",
        [(10, False), (20, False), (30, False)],
        True,
    )


def test_a_checkpoint_goes_from_micro_batches_to_real_time_and_back(
    kafka: Any, start: StartQueries, committed: Any
) -> None:
    kafka.produce("events", [event(10), event(20)])
    queries = start(histories, realtime=False)
    kafka.read_count("histories", 1)
    # What has been written and not yet committed would come again.
    committed("histories")
    queries.stop()

    queries = start(histories, realtime=True)
    kafka.produce("events", [event(15)])
    kafka.read_count("histories", 2)
    queries.stop()

    # The open batch of real-time mode was given up: its row comes again.
    start(histories, realtime=False)
    kafka.produce("events", [event(12)])
    last = kafka.read(
        "histories", lambda found: any(update(one.value)[1][0][0] == 12 for one in found if len(found) > 2)
    )

    assert [row for row, _ in update(last[-1].value)[1]] == [12, 15, 20]


def test_a_first_batch_that_was_cut_off_while_it_was_committed_runs_again_in_real_time(
    kafka: Any, start: StartQueries, config: StreamsConfig
) -> None:
    kafka.produce("events", [event(10), event(20)])
    queries = start(histories, realtime=False)
    kafka.read_count("histories", 1)
    queries.stop()
    commits = checkpoint_path(config, "histories") / "commits"
    for name in ("0", ".0.crc"):
        (commits / name).unlink(missing_ok=True)
    (commits / ".0.1d3f2c9e-4a53-4c1e-8f0e-7f6f2b8f2f10.tmp").write_bytes(b"v1")

    start(histories, realtime=True)

    again = kafka.read("histories", lambda found: len(found) > 1)
    assert [row for row, _ in update(again[-1].value)[1]] == [10, 20]


def test_ties_are_cut_the_same_way_in_every_mode(
    kafka: Any, start: StartQueries, spark: SparkSession
) -> None:
    tied = [{"card": "a", "n": 1, "note": note} for note in "abcdefghij"]

    def notes(recent: Any) -> tuple[str, ...]:
        return tuple(entry["note"] for entry in recent)

    static = [notes(row.recent) for row in histories(hr.static(spark, events, tied)).collect()]
    # The last of them is the one whose newest row is in no other.
    (last,) = [one for one in static if sum(one[-1] in other for other in static) == 1]
    kafka.produce("events", [("a", json.dumps(row)) for row in tied])
    start(histories, realtime=False)
    (record,) = kafka.read_count("histories", 1)

    assert notes(json.loads(record.value)["recent"]) == last


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"by": "card", "order_by": "n", "limit": 0}, "limit is 0; use 1 to 10000"),
        ({"by": "card", "order_by": "n", "limit": 10_001}, "limit is 10001"),
        ({"by": [], "order_by": "n", "limit": 1}, "by is empty"),
        ({"by": "holder", "order_by": "n", "limit": 1}, "no column 'holder' among card, n, note, _kafka"),
        ({"by": "card", "order_by": "at", "limit": 1}, "no column 'at'"),
        ({"by": ["card", "n"], "order_by": "n", "limit": 1}, "'n' is in by as well"),
    ],
)
def test_what_can_not_be_says_what_is_wrong(
    spark: SparkSession, arguments: dict[str, Any], complaint: str
) -> None:
    rows = hr.static(spark, events, [{"card": "a", "n": 1}])

    with pytest.raises(PipelineError, match=complaint):
        hr.recent(rows, **arguments)


def test_a_batch_that_was_written_and_not_committed_is_given_up_by_real_time_and_written_anew(
    kafka: Any, start: StartQueries, config: StreamsConfig, committed: Any
) -> None:
    kafka.produce("events", [event(10), ("a", b"no json")])
    queries = start(histories, realtime=False)
    kafka.read_count("histories", 1)
    kafka.read_count("events.dead-letters", 1)
    for query in (names := tuple(queries.running)):
        committed(query)
    queries.stop()
    for query in names:
        for name in ("0", ".0.crc"):
            (checkpoint_path(config, query) / "commits" / name).unlink(missing_ok=True)

    start(histories, realtime=True).stop()
    kafka.produce("events", [event(20), ("a", b"no json either")])
    start(histories, realtime=False)

    letters = kafka.read(
        "events.dead-letters", lambda found: any(letter.value == b"no json either" for letter in found)
    )
    rows = kafka.read("histories", lambda found: any(len(update(row.value)[1]) > 1 for row in found))
    assert {letter.value for letter in letters} == {b"no json", b"no json either"}
    assert [row for row, _ in update(rows[-1].value)[1]] == [10, 20]


owners = hr.topic("owners", schema="card string not null, version int not null, owner string", partitions=1)


@hr.pipeline(writes=hr.topic("owned", key="card", partitions=1))
def owned(events: DataFrame, owners: DataFrame) -> DataFrame:
    return hr.recent(
        events.select("card", "n", "note"),
        by="card",
        order_by="n",
        limit=LIMIT,
        table=owners.select("card", "version", "owner"),
        table_order_by="version",
        table_limit=2,
    )


def owner(version: int, name: str, card: str = "a") -> tuple[str, str]:
    return card, json.dumps({"card": card, "version": version, "owner": name})


def owned_update(value: bytes | str | None) -> tuple[list[tuple[int, bool]], list[tuple[str, bool]], bool]:
    """History as (n, whether it is new), the table as (owner, whether it is new), whether it overflowed."""
    assert value is not None
    fields = json.loads(value)
    return (
        [(row["n"], row["is_new"]) for row in fields["recent"]],
        [(row["owner"], row["is_new"]) for row in fields["table"]],
        fields["overflow"],
    )


def test_a_table_rides_along_in_real_time(kafka: Any, start: StartQueries) -> None:
    start(owned, realtime=True)
    updates: list[Any] = []
    for topic, record in (
        ("owners", owner(1, "ann")),
        ("events", event(10)),
        ("owners", owner(3, "cid")),
        ("owners", owner(2, "bob")),
        ("events", event(20)),
        ("owners", owner(1, "too old to be kept")),
    ):
        kafka.produce(topic, [record])
        updates = kafka.read_count("owned", len(updates) + 1)

    assert [owned_update(record.value) for record in updates] == [
        ([], [("ann", True)], False),
        ([(10, True)], [("ann", False)], False),
        ([(10, False)], [("ann", False), ("cid", True)], False),
        ([(10, False)], [("bob", True), ("cid", False)], False),
        ([(10, False), (20, True)], [("bob", False), ("cid", False)], False),
        ([(10, False), (20, False)], [("bob", False), ("cid", False)], False),
    ]
    tables = [json.loads(record.value)["table"] for record in updates]
    cid = {one["came"] for table in tables for one in table if one["owner"] == "cid"}
    assert len(cid) == 1, "when a version came does not change"


def test_a_table_rides_along_in_micro_batches_and_its_versions_are_no_overflow_of_rows(
    kafka: Any, start: StartQueries
) -> None:
    kafka.produce("owners", [owner(1, "ann")])
    kafka.produce("events", [event(n) for n in (10, 20, 30, 40)])
    start(owned, realtime=False)
    # Both topics may be in one batch, or each in one of its own.
    kafka.read("owned", lambda found: bool(found) and len(json.loads(found[-1].value)["recent"]) == LIMIT)
    kafka.produce("owners", [owner(2, "bob")])
    updates = kafka.read("owned", lambda found: "bob" in str(found[-1:]))

    assert owned_update(updates[-1].value) == (
        [(20, False), (30, False), (40, False)],
        [("ann", False), ("bob", True)],
        False,
    )


def test_of_static_rows_each_has_the_newest_versions_of_the_table(spark: SparkSession) -> None:
    rows = [{"card": card, "n": n, "note": ""} for card, n in (("a", 1), ("a", 2), ("b", 1))]
    versions = [{"card": "a", "version": n, "owner": f"o{n}"} for n in (3, 1, 2)]

    found = owned(hr.static(spark, events, rows), hr.static(spark, owners, versions)).collect()

    assert sorted((row.card, len(row.recent), [one.owner for one in row.table]) for row in found) == [
        ("a", 1, ["o2", "o3"]),
        ("a", 2, ["o2", "o3"]),
        ("b", 1, []),
    ]
    assert {one.came for row in found for one in row.table} == {None}


def test_verifying_does_not_compute_updates_a_second_time(spark: SparkSession) -> None:
    rows = owned(hr.static(spark, events, []), hr.static(spark, owners, []))

    assert results_of(plan_of(rows), {}).uncertain_rows == {"hr.recent, by which rows came together,"}


def test_a_table_needs_an_order(spark: SparkSession) -> None:
    rows = hr.static(spark, events, [])

    with pytest.raises(PipelineError, match="table_order_by"):
        hr.recent(rows, by="card", order_by="n", limit=1, table=rows)


def test_a_table_has_no_column_with_the_name_of_what_is_told_of_it(spark: SparkSession) -> None:
    rows = hr.static(spark, events, [])

    with pytest.raises(PipelineError, match="rename the column came"):
        hr.recent(
            rows,
            by="card",
            order_by="n",
            limit=1,
            table=rows.withColumnRenamed("note", "came"),
            table_order_by="n",
        )
