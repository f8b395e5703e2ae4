"""A table of PostgreSQL that is kept as a copy of another one, by its changes."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame

import headrace.streams as hr

pytestmark = pytest.mark.spark

products = hr.topic(
    "products",
    format="upsert",
    key="product_id",
    schema="product_id bigint not null, name string, price double",
    partitions=1,
)


def product(product_id: int, name: str, price: float) -> dict[str, Any]:
    return {"product_id": product_id, "name": name, "price": price}


def test_rows_that_are_updated_and_deleted_are_so_in_the_copy(headrace_pipeline: Any, database: Any) -> None:
    table = hr.postgres_table(database.dsn, database.table("dear"), key=["product_id"], writers=2)

    @hr.pipeline(writes=table, reads={"rows": products}, name="dear")
    def dear(rows: DataFrame) -> DataFrame:
        return hr.upserts(hr.changes(rows, buckets=1).where("price > 2"), buckets=1)

    script = headrace_pipeline(dear)
    script.add(
        products, product(1, "tea", 3.0), product(2, "coffee", 4.0), product(3, "water", 1.0)
    ).process()
    assert database.execute("SELECT name FROM SCHEMA.dear ORDER BY 1") == [("coffee",), ("tea",)]

    # One is gone, one is no longer dear, and one has become so.
    script.add(products, {"product_id": 1, "_delete": True}, product(2, "coffee", 2.0))
    script.add(products, product(3, "wine", 9.0)).crash("pipeline.task.committed")
    script.process()
    assert database.execute("SELECT product_id, name, price FROM SCHEMA.dear") == [(3, "wine", 9.0)]
