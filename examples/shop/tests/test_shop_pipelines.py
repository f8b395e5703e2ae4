"""The shop's pipelines on static rows: the same functions that run live, in a unit test."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace.streams as hr
import shop_pipelines as shop

pytestmark = pytest.mark.spark

AT = "2026-01-01T12:00:00.000000Z"


def became(row: dict[str, Any], op: str = "c") -> str:
    """The event of a row that came or was updated."""
    return json.dumps({"op": op, "before": None, "after": row})


def gone(**key: int) -> str:
    """The event of a row that was deleted."""
    return json.dumps({"op": "d", "before": key, "after": None})


def product(product_id: int, name: str, price: str = "10.00", stock: int = 5) -> dict[str, Any]:
    told = {"description": f"A {name.lower()}.", "category": "kitchen", "updated_at": AT}
    return {"product_id": product_id, "name": name, "price": price, "stock": stock, **told}


def cart(cart_id: int, customer: str = "ada") -> dict[str, Any]:
    return {"cart_id": cart_id, "customer": customer, "updated_at": AT}


def cart_line(cart_id: int, product_id: int, quantity: int, price: str) -> dict[str, Any]:
    return {"cart_id": cart_id, "product_id": product_id, "quantity": quantity, "price": price}


def order(order_id: int, status: str = "placed", total: str = "20.00") -> dict[str, Any]:
    return {"order_id": order_id, "customer": "ben", "status": status, "placed_at": AT, "total": total}


def order_line(order_id: int, line: int, product_id: int, quantity: int = 2) -> dict[str, Any]:
    told = {"product_id": product_id, "quantity": quantity, "price": "10.00"}
    return {"order_id": order_id, "line": line, **told}


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """What would be in the store: all rows but those that only delete."""
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    return [
        {name: value for name, value in row.items() if name != "_delete"}
        for row in rows
        if not row["_delete"]
    ]


def test_the_catalogue_is_as_it_was_last_and_what_was_withdrawn_is_not_found(
    headrace_spark: SparkSession,
) -> None:
    events = [
        became(product(1, "Kettle"), op="r"),
        became(product(2, "Teapot")),
        became(product(1, "Kettle", price="12.50", stock=4), op="u"),
        gone(product_id=2),
    ]
    (row,) = rows_of(shop.product_search(hr.static(headrace_spark, shop.products, events)))

    assert (row["product_id"], row["name"], row["price"], row["stock"]) == (1, "Kettle", Decimal("12.50"), 4)
    assert row["updated_at"] is not None


def test_a_cart_is_one_document_with_its_lines_in_the_order_of_products(headrace_spark: SparkSession) -> None:
    carts = [became(cart(1)), became(cart(2, "ben")), became(cart(3)), gone(cart_id=3)]
    lines = [
        became(cart_line(1, 8, 1, "2.50")),
        became(cart_line(1, 5, 2, "10.00")),
        became(cart_line(1, 8, 3, "2.50"), op="u"),
        became(cart_line(2, 5, 1, "10.00")),
        gone(cart_id=2, product_id=5),
        became(cart_line(3, 5, 1, "10.00")),
        gone(cart_id=3, product_id=5),
    ]
    rows = rows_of(
        shop.cart_documents(
            hr.static(headrace_spark, shop.carts, carts), hr.static(headrace_spark, shop.cart_lines, lines)
        )
    )

    first, second = sorted(rows, key=lambda row: int(row["cart_id"]))
    assert first["lines"] == [
        {"product_id": 5, "quantity": 2, "price": Decimal("10.00")},
        {"product_id": 8, "quantity": 3, "price": Decimal("2.50")},
    ]
    assert (first["customer"], first["item_count"], first["total"]) == ("ada", 5, Decimal("27.50"))
    assert (second["customer"], second["lines"], second["item_count"], second["total"]) == ("ben", [], 0, 0)


def test_the_warehouse_has_each_order_with_its_last_status(headrace_spark: SparkSession) -> None:
    events = [became(order(1)), became(order(2)), became(order(1, "paid"), op="u")]
    rows = rows_of(shop.order_warehouse(hr.static(headrace_spark, shop.orders, events)))

    assert {row["order_id"]: row["status"] for row in rows} == {1: "paid", 2: "placed"}
    assert {row["total"] for row in rows} == {Decimal("20.00")}


def test_a_line_of_an_order_has_the_present_name_of_its_product_and_the_orders_status(
    headrace_spark: SparkSession,
) -> None:
    products = [became(product(1, "Kettle")), became(product(2, "Teapot")), became(product(1, "Jug"), op="u")]
    orders = [became(order(1)), became(order(2)), became(order(1, "paid"), op="u"), gone(order_id=2)]
    lines = [
        became(order_line(1, 1, 1)),
        became(order_line(1, 2, 2, quantity=3)),
        became(order_line(2, 1, 1)),
        gone(order_id=2, line=1),
    ]
    rows = rows_of(
        shop.sold_products(
            hr.static(headrace_spark, shop.order_lines, lines),
            hr.static(headrace_spark, shop.orders, orders),
            hr.static(headrace_spark, shop.products, products),
        )
    )

    found = {(row["order_id"], row["line"]): (row["name"], row["status"], row["total"]) for row in rows}
    assert found == {(1, 1): ("Jug", "paid", Decimal("20.00")), (1, 2): ("Teapot", "paid", Decimal("30.00"))}
