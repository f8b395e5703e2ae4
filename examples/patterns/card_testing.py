"""Three small payments, then a large one: a thief tries a stolen card before it is used.

And its opposite: what should have come and has not. An order that nobody confirms within five minutes is told
of when the five minutes are over.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr

transactions = hr.topic(
    "transactions",
    schema="tx_id string not null, card_id string, amount double, at timestamp",
    key="card_id",
    event_time="at",
    watermark="10 seconds",
    max_ahead="1 hour",
)
orders = hr.topic(
    "orders",
    schema="order_id string not null, status string, at timestamp",
    key="order_id",
    event_time="at",
    watermark="10 seconds",
    max_ahead="1 hour",
)


@hr.pipeline(writes=hr.topic("card-testing", key="card_id"))
def card_testing(transactions: DataFrame) -> DataFrame:
    """Three payments of less than 10 in a row, and then one of more than 1,000, all within five minutes."""
    return hr.match(
        transactions,
        by="card_id",
        order_by="at",
        pattern="probe{3} big",
        define={"probe": F.col("amount") < 10, "big": F.col("amount") > 1000},
        within="5 minutes",
        emit=hr.all_matches,
    )


@hr.pipeline(writes=hr.topic("unconfirmed-orders", key="order_id"))
def unconfirmed_orders(orders: DataFrame) -> DataFrame:
    """Orders that were placed, and neither confirmed nor cancelled within five minutes."""
    return hr.match(
        orders,
        by="order_id",
        pattern="placed !confirmed !cancelled",
        define={
            "placed": "status = 'placed'",
            "confirmed": "status = 'confirmed'",
            "cancelled": "status = 'cancelled'",
        },
        within="5 minutes",
    )
