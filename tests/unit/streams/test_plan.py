"""What pipelines need before they run: topics, task slots, names that don't clash."""

from __future__ import annotations

from typing import Any

import pytest

import headrace.streams as hr
from headrace.errors import PipelineError
from headrace.streams.plan import make_plan

orders = hr.topic("orders", schema="id string")
payments = hr.topic("payments", schema="id string", partitions=4)


@hr.pipeline(writes=hr.topic("paid", key="id"))
def paid(orders: Any, payments: Any) -> Any: ...


@hr.pipeline(writes=hr.topic("large"))
def large(orders: Any) -> Any: ...


def test_each_topic_that_is_read_gets_one_companion_for_its_dead_letters() -> None:
    plan = make_plan([paid, large])

    assert plan.query_names == (
        "paid",
        "large",
        orders.dead_letters_query,
        payments.dead_letters_query,
    )


def test_every_topic_that_is_read_or_written_must_exist() -> None:
    assert make_plan([paid, large]).topics() == {
        "orders": 2,
        "payments": 4,
        "paid": 2,
        "large": 2,
        "orders.dead-letters": 1,
        "payments.dead-letters": 1,
    }


def test_of_two_descriptions_of_a_topic_the_one_that_speaks_of_partitions_counts() -> None:
    @hr.pipeline(writes=hr.topic("orders", partitions=8))
    def feeder(payments: Any) -> Any: ...

    assert make_plan([feeder, large]).topics()["orders"] == 8


def test_real_time_mode_needs_a_slot_for_each_task_of_each_query() -> None:
    plan = make_plan([paid, large])
    partition_counts = {"orders": 3, "payments": 4}

    # paid: 3 + 4 + 2, large: 3 + 2, companions: 3 + 4.
    assert plan.slots(partition_counts, shuffle_partition_count=2) == 21


def test_two_pipelines_with_one_name_are_refused() -> None:
    @hr.pipeline(writes=hr.topic("other"), name="large")
    def other(orders: Any) -> Any: ...

    with pytest.raises(PipelineError, match="two pipelines are named large"):
        make_plan([large, other])


def test_a_pipeline_named_like_a_companion_is_refused() -> None:
    @hr.pipeline(writes=hr.topic("other"), name=orders.dead_letters_query)
    def other(orders: Any) -> Any: ...

    with pytest.raises(PipelineError, match=r"two pipelines are named orders\.dead-letters-"):
        make_plan([other])


def test_a_pipeline_that_reads_what_it_writes_is_refused() -> None:
    @hr.pipeline(writes=hr.topic("orders"))
    def loop(orders: Any) -> Any: ...

    with pytest.raises(PipelineError, match="reads the topic orders that it writes"):
        make_plan([loop])


def test_a_topic_with_two_schemas_gets_a_companion_for_each_and_one_topic_of_dead_letters() -> None:
    numbered = hr.topic("orders", schema="id int")

    @hr.pipeline(writes=hr.topic("other"), reads={"rows": numbered})
    def other(rows: Any) -> Any: ...

    plan = make_plan([large, other])

    assert plan.query_names == ("large", "other", orders.dead_letters_query, numbered.dead_letters_query)
    assert len(set(plan.query_names)) == 4
    assert [name for name in plan.topics() if "dead" in name] == ["orders.dead-letters"]
    # large: 3 + 2, other: 3 + 2, companions: 3 + 3.
    assert plan.slots({"orders": 3}, shuffle_partition_count=2) == 16


def test_one_schema_that_is_written_in_two_ways_gets_one_companion() -> None:
    @hr.pipeline(writes=hr.topic("other"), reads={"rows": hr.topic("orders", schema="id\n   string ")})
    def other(rows: Any) -> Any: ...

    assert make_plan([large, other]).query_names == ("large", "other", orders.dead_letters_query)


def test_one_topic_with_two_starts_is_refused() -> None:
    late = hr.topic("orders", schema="id string", start="latest")

    @hr.pipeline(writes=hr.topic("other"), reads={"rows": late})
    def other(rows: Any) -> Any: ...

    with pytest.raises(PipelineError, match="orders is described with the start earliest and with latest"):
        make_plan([large, other])


def test_several_topics_of_one_parameter_count_each_for_itself() -> None:
    regions = hr.topic(["north", "south"], schema="id string", partitions=3)

    @hr.pipeline(writes=hr.topic("other"), reads={"rows": regions})
    def other(rows: Any) -> Any: ...

    plan = make_plan([other])
    north, south = regions.each()

    assert plan.query_names == ("other", north.dead_letters_query, south.dead_letters_query)
    assert plan.topics() == {
        "north": 3,
        "south": 3,
        "other": 2,
        "north.dead-letters": 1,
        "south.dead-letters": 1,
    }
    assert plan.topics_of("other") == plan.source_names == {"north", "south"}
    # other: 3 + 3 + 2, companions: 3 + 3.
    assert plan.slots({"north": 3, "south": 3}, shuffle_partition_count=2) == 14


def test_one_of_several_topics_can_not_be_the_one_that_is_written() -> None:
    @hr.pipeline(writes=hr.topic("south"), reads={"rows": hr.topic(["north", "south"], schema="id string")})
    def loop(rows: Any) -> Any: ...

    with pytest.raises(PipelineError, match="reads the topic south that it writes"):
        make_plan([loop])


def test_a_topic_of_bytes_has_no_companion() -> None:
    @hr.pipeline(writes=hr.topic("other"), reads={"rows": hr.topic("raw", format="bytes")})
    def other(rows: Any) -> Any: ...

    plan = make_plan([other])

    assert plan.query_names == ("other",)
    assert plan.topics() == {"raw": 2, "other": 2}
    assert plan.source_names == {"raw"}


def test_nothing_to_run_is_refused() -> None:
    with pytest.raises(PipelineError, match="no pipeline to run"):
        make_plan([])
