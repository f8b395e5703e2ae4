"""Orders and products, and what they come to: right after each change of either, live and in batch."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import headrace.streams as hr

pytestmark = pytest.mark.spark

TEA = {"product_id": 1, "name": "tea", "price": 2.5}
COFFEE = {"product_id": 2, "name": "coffee", "price": 4.0}


@pytest.fixture(scope="module")
def example() -> Any:
    """The example, whose name other tests may have, too."""
    spec = importlib.util.spec_from_file_location("orders_example", Path(__file__).parents[1] / "orders.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ordered(order_id: int, product_id: int, quantity: int, *, op: str = "c") -> str:
    after = {"order_id": order_id, "product_id": product_id, "quantity": quantity}
    return json.dumps({"op": op, "before": None, "after": after})


def cancelled(order_id: int) -> str:
    return json.dumps({"op": "d", "before": {"order_id": order_id}, "after": None})


def test_the_copy_of_a_result_in_a_table_loses_what_is_deleted(
    headrace_pipeline: Any, example: Any, tmp_path: Path
) -> None:
    table = hr.delta_table(tmp_path / "priced", key="order_id")
    pipeline = hr.pipeline(writes=table, name="priced", reads=example.priced_orders.sources())
    script = headrace_pipeline(pipeline(example.priced_orders.function))

    def copied() -> dict[int, tuple[str | None, float | None]]:
        rows = DeltaTable(str(table.path)).to_pyarrow_table().to_pylist()
        return {row["order_id"]: (row["name"], row["total"]) for row in rows}

    script.add(example.products, TEA, COFFEE)
    script.add(example.orders, ordered(1, 1, 2), ordered(2, 1, 4), ordered(3, 2, 1)).process()
    assert copied() == {1: ("tea", 5.0), 2: ("tea", 10.0), 3: ("coffee", 4.0)}

    # An order is gone, one is for another product, and a product costs more: of the others nothing changes.
    script.add(example.orders, cancelled(1), ordered(3, 1, 1, op="u"))
    script.add(example.products, {**TEA, "price": 3.0}).process()
    assert copied() == {2: ("tea", 12.0), 3: ("tea", 3.0)}


def test_a_batch_gives_the_revenue_as_it_is_at_the_end(headrace_spark: SparkSession, example: Any) -> None:
    orders = hr.static(
        headrace_spark,
        example.orders,
        [ordered(1, 1, 2), ordered(2, 1, 4), ordered(3, 2, 1), cancelled(3), ordered(2, 1, 6, op="u")],
    )
    products = hr.static(headrace_spark, example.products, [TEA, COFFEE, {**TEA, "price": 3.0}])
    (row,) = example.revenue(orders, products).collect()
    assert (row["name"], row["orders"], row["total"], row["largest"]) == ("tea", 2, 24.0, 6)
