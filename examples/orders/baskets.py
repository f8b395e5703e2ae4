"""Baskets: a stream, in which each event gets the product as it was at that moment.

    headrace run examples/orders/baskets.py

`products` is a compacted topic, as in orders.py. It is read whole before the first event is joined. A price
that changes later does not change what is in a basket already.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr

baskets = hr.topic(
    "baskets",
    schema="basket_id string, product_id bigint, quantity int, put_at timestamp",
    event_time="put_at",
    watermark="30 seconds",
)
products = hr.topic(
    "products",
    format="upsert",
    key="product_id",
    schema="product_id bigint not null, name string, price double",
)


@hr.pipeline(writes=hr.topic("basket-lines", key="basket_id"))
def basket_lines(baskets: DataFrame, products: DataFrame) -> DataFrame:
    """What is in the baskets, at the price of the moment; products may come a minute late."""
    lines = hr.lookup(
        baskets,
        products,
        on="product_id",
        version=hr.as_of(keep="1 day"),
        missing=hr.wait("1 minute", then=hr.side_output("baskets.unknown")),
    )
    total = F.col("quantity") * F.col("price")
    return lines.select("basket_id", "name", "quantity", "price", total.alias("total"), "put_at")
