"""The stores that follow the shop's database, each kept by a pipeline on Spark.

    headrace run examples/shop/shop_pipelines.py

The topics are those that `headrace capture` publishes: one for each table, in Debezium's format. No pipeline
asks the database anything; what a store holds is made of the log alone, so it can be made again from it.

    product_search       the catalogue, to be searched word by word
    cart_documents       each open cart as one document, with its lines and what they cost, in Redis
    order_warehouse      the orders, as a Delta table
    sold_products        a live view: each line of an order, with the order's status and the product's name

Where the stores are is told by two variables of the environment: SHOP_STORES, a directory, and SHOP_REDIS.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr

STORES: Final = Path(os.environ.get("SHOP_STORES", ".headrace/shop"))
REDIS: Final = os.environ.get("SHOP_REDIS", "redis://127.0.0.1:6379/0")
CART_LINES_MAX: Final = 100
"""So many lines of a cart are in its document; the shop lets nobody have more than a fifth of that."""
BUCKETS: Final = 1
"""How many parts the state of each operator has. A batch of some hundred rows costs nearly the same for each
part, whatever is in it, so one is quickest for tables of some thousand rows; pipelines keep all cores busy
beside each other. The demo runs them with `--shuffle-partitions 1` for the same reason."""
WRITERS: Final = 1
"""How many tasks write a batch to a store."""
LINE: Final = "struct<product_id: bigint, quantity: int, price: decimal(10, 2)>"
MONEY: Final = "decimal(14, 2)"

changes = partial(hr.changes, buckets=BUCKETS)
upserts = partial(hr.upserts, buckets=BUCKETS)
aggregate = partial(hr.aggregate, buckets=BUCKETS)
join_tables = partial(hr.join_tables, buckets=BUCKETS)

products = hr.topic(
    "shop.public.products",
    format="debezium",
    key="product_id",
    schema=(
        "product_id bigint not null, name string, description string, category string, "
        "price decimal(10, 2), stock int, updated_at timestamp"
    ),
)
carts = hr.topic(
    "shop.public.carts",
    format="debezium",
    key="cart_id",
    schema="cart_id bigint not null, customer string, updated_at timestamp",
)
cart_lines = hr.topic(
    "shop.public.cart_lines",
    format="debezium",
    key=["cart_id", "product_id"],
    schema="cart_id bigint not null, product_id bigint not null, quantity int, price decimal(10, 2)",
)
orders = hr.topic(
    "shop.public.orders",
    format="debezium",
    key="order_id",
    schema=(
        "order_id bigint not null, customer string, status string, placed_at timestamp, total decimal(12, 2)"
    ),
)
order_lines = hr.topic(
    "shop.public.order_lines",
    format="debezium",
    key=["order_id", "line"],
    schema=(
        "order_id bigint not null, line int not null, product_id bigint, quantity int, price decimal(10, 2)"
    ),
)


@hr.pipeline(
    writes=hr.search_index(
        STORES / "search", "products", key="product_id", text=["name", "description"], writers=WRITERS
    )
)
def product_search(products: DataFrame) -> DataFrame:
    """The catalogue as it is now: one that is withdrawn is not found any more."""
    return upserts(changes(products))


@hr.pipeline(writes=hr.cache(REDIS, "carts", key="cart_id", writers=WRITERS))
def cart_documents(carts: DataFrame, cart_lines: DataFrame) -> DataFrame:
    """Each cart with its lines: one document, which the shop's pages get by one question."""
    lines = aggregate(
        changes(cart_lines),
        hr.greatest_rows(
            CART_LINES_MAX,
            order_by="product_id",
            smallest=True,
            columns=["product_id", "quantity", "price"],
            name="lines",
        ),
        F.sum("quantity").alias("item_count"),
        F.sum(F.col("quantity") * F.col("price")).alias("total"),
        by="cart_id",
    )
    documents = join_tables(changes(carts), lines, on="cart_id", how="left")
    return upserts(
        documents.withColumns(
            {
                # A cart without lines is a cart, too.
                "lines": F.coalesce("lines", F.array().cast(f"array<{LINE}>")),
                "item_count": F.coalesce("item_count", F.lit(0)),
                "total": F.coalesce("total", F.lit(0)).cast(MONEY),
            }
        )
    )


@hr.pipeline(writes=hr.delta_table(STORES / "warehouse" / "orders", key="order_id", writers=WRITERS))
def order_warehouse(orders: DataFrame) -> DataFrame:
    """All orders, for reports that nobody wants to run on the shop's own database."""
    return upserts(changes(orders))


@hr.pipeline(writes=hr.topic("sold-products", key=["order_id", "line"]))
def sold_products(order_lines: DataFrame, orders: DataFrame, products: DataFrame) -> DataFrame:
    """Who has bought what: a product that gets another name has it in all its lines at once."""
    bought = join_tables(changes(order_lines), changes(orders).drop("total"), on="order_id")
    named = changes(products).drop("description", "price", "stock", "updated_at")
    sold = join_tables(bought, named, on="product_id")
    return upserts(sold.withColumn("total", (F.col("quantity") * F.col("price")).cast(MONEY)))
