"""Descriptions of tables are checked when they are made, and pipelines take them as targets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

import headrace.streams as hr
from headrace.errors import ConfigError, PipelineError
from headrace.streams.plan import make_plan

orders = hr.topic("orders", schema="id string")


def copy(orders: DataFrame) -> DataFrame:
    return orders


def test_a_table_of_postgresql_is_named_by_schema_and_table() -> None:
    assert hr.postgres_table("dbname=x", "shop.orders").name == "shop.orders"
    assert hr.postgres_table("dbname=x", "orders").name == "public.orders"
    assert hr.postgres_table("dbname=x", "orders", key="id").key == ("id",)


def test_a_description_does_not_show_the_password() -> None:
    assert "secret" not in repr(hr.postgres_table("postgresql://me:secret@there/db", "orders"))


def test_a_delta_table_is_found_wherever_the_driver_is_started() -> None:
    assert hr.delta_table("tables/orders").path == Path.cwd() / "tables" / "orders"


@pytest.mark.parametrize(
    ("describe", "reason"),
    [
        (lambda: hr.postgres_table("dbname=x", ""), "can't name a table"),
        (lambda: hr.postgres_table("dbname=x", f"a.{'x' * 64}"), "can't name a table"),
        (lambda: hr.postgres_table("", "orders"), "has an empty dsn"),
        (lambda: hr.postgres_table("dbname=x", "orders", key=["a", "a"]), "twice in its key"),
        (lambda: hr.postgres_table("dbname=x", "orders", writers=0), "use at least 1"),
        (lambda: hr.delta_table("x", writers=0), "use at least 1"),
        (lambda: hr.delta_table("s3://bucket/orders"), "is not a directory"),
    ],
)
def test_a_description_that_can_not_be_is_refused(describe: Callable[[], object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        describe()


def test_a_pipeline_that_writes_a_table_needs_no_topic_for_it() -> None:
    pipeline = hr.pipeline(writes=hr.delta_table("tables/orders"))(copy)
    assert make_plan([pipeline]).topics().keys() == {"orders", "orders.dead-letters"}


def test_a_pipeline_that_writes_a_table_has_no_side_outputs() -> None:
    with pytest.raises(
        PipelineError, match="has side outputs: these can be written together with a topic only"
    ):
        hr.pipeline(writes=hr.postgres_table("dbname=x", "t"), side_outputs=[hr.topic("late")])(copy)
