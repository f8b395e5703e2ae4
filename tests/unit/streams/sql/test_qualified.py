"""Columns without what stands for their table."""

from __future__ import annotations

import pytest

from headrace.errors import SqlError
from headrace.streams.sql.qualified import unqualified

COLUMNS = ("id", "city", "total", "address", "item")


@pytest.mark.parametrize(
    ("text", "source", "found"),
    [
        ("sum(o.total)", "orders o", "sum(total)"),
        ("sum(`O`.total + o.id)", "orders AS o", "sum(total + id)"),
        ("orders.city", "orders", "city"),
        ("o.address.city", "orders o", "address.city"),
        ("address.o.city", "orders o", "address.o.city"),
        ("orders.city", "orders o", "orders.city"),
        ("item.price", "orders item", "item.price"),
        ("total > 1 and o.city > 'a'", "orders o", "total > 1 and city > 'a'"),
        ("sum(item.price)", "orders LATERAL VIEW explode(items) t AS item", "sum(item.price)"),
        ("address.city", "(SELECT address, city, total FROM orders) x", "address.city"),
        ("sum(total) + 1", "(SELECT total FROM orders) x", "sum(total) + 1"),
    ],
)
def test_only_what_stands_for_the_table_is_left_out(text: str, source: str, found: str) -> None:
    assert unqualified(text, source, COLUMNS) == found


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("sum(x.total)", "(SELECT total FROM orders) x"),
        ("item.city", "orders LATERAL VIEW explode(items) item AS i"),
        ("t.price", "orders LATERAL VIEW explode(items) t AS price"),
    ],
)
def test_what_may_be_a_table_or_a_column_is_refused(text: str, source: str) -> None:
    with pytest.raises(SqlError, match="write columns without the name of a table"):
        unqualified(text, source, COLUMNS)
