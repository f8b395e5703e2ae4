"""Orders and products: tables that change, joined and added up, and right after each change.

    headrace run examples/orders/orders.py

`orders` is captured from a database, in Debezium's format. `products` is a compacted topic: the last record
of a key is what the product is now, and one without a value says that it is gone.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr

orders = hr.topic(
    "shop.public.orders",
    format="debezium",
    key="order_id",
    schema="order_id bigint not null, product_id bigint, quantity int",
)
products = hr.topic(
    "products",
    format="upsert",
    key="product_id",
    schema="product_id bigint not null, name string, price double",
)


@hr.pipeline(writes=hr.topic("priced-orders", key="order_id"))
def priced_orders(orders: DataFrame, products: DataFrame) -> DataFrame:
    """Each order with its product: a new price is a new total of all orders of the product."""
    joined = hr.join_tables(hr.changes(orders), hr.changes(products), on="product_id", how="left")
    return hr.upserts(joined.withColumn("total", F.col("quantity") * F.col("price")))


@hr.pipeline(writes=hr.topic("revenue", key="name"))
def revenue(orders: DataFrame, products: DataFrame) -> DataFrame:
    """What the orders of each product come to: an order that is taken back is not part of it."""
    joined = hr.join_tables(hr.changes(orders), hr.changes(products), on="product_id")
    sold = hr.aggregate(
        joined,
        F.count("*").alias("orders"),
        F.sum(F.col("quantity") * F.col("price")).alias("total"),
        F.max("quantity").alias("largest"),
        by="name",
    )
    return hr.upserts(sold)
