"""The queries of Nexmark that look at one row at a time: plain Spark, written exactly once."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from nexmark_topics import bids

EUROS: Final = 0.908
"""For a dollar."""
SIDE_ROWS: Final = 10_000
CHANNEL_IDS: Final = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


@hr.pipeline(writes=hr.topic("nexmark-q0", key="auction"), reads={"bids": bids})
def q0(bids: DataFrame) -> DataFrame:
    """Pass through: bids as they are."""
    return bids.select("auction", "bidder", "price", "date_time", "extra")


@hr.pipeline(writes=hr.topic("nexmark-q1", key="auction"), reads={"bids": bids})
def q1(bids: DataFrame) -> DataFrame:
    """Currency: prices in euros."""
    price = (F.col("price") * EUROS).alias("price")
    return bids.select("auction", "bidder", price, "date_time", "extra")


@hr.pipeline(writes=hr.topic("nexmark-q2", key="auction"), reads={"bids": bids})
def q2(bids: DataFrame) -> DataFrame:
    """Selection: bids for some auctions."""
    return bids.where("auction % 123 = 0").select("auction", "price")


@hr.pipeline(writes=hr.delta_table(".headrace/nexmark/q10"), reads={"bids": bids})
def q10(bids: DataFrame) -> DataFrame:
    """Log to a file system: bids in a Delta table, with the day and the minute of each."""
    day = F.date_format("date_time", "yyyy-MM-dd").alias("day")
    minute = F.date_format("date_time", "HH:mm").alias("minute")
    return bids.select("auction", "bidder", "price", "date_time", "extra", day, minute)


@hr.pipeline(writes=hr.topic("nexmark-q13", key="auction"), reads={"bids": bids})
def q13(bids: DataFrame) -> DataFrame:
    """Bounded side input: bids with what a table that does not change says of them."""
    keyed = bids.withColumn("key", F.col("auction") % SIDE_ROWS)
    joined = keyed.join(F.broadcast(side_input(bids.sparkSession)), "key")
    return joined.select("auction", "bidder", "price", "date_time", "value")


def side_input(session: SparkSession) -> DataFrame:
    """A table of a key and a value."""
    return session.range(SIDE_ROWS).select(
        F.col("id").alias("key"), F.concat(F.lit("side-"), "id").alias("value")
    )


@hr.pipeline(writes=hr.topic("nexmark-q14", key="auction"), reads={"bids": bids})
def q14(bids: DataFrame) -> DataFrame:
    """Calculation: the time of day of bids of middle size, and how many letters c their text has."""
    price = F.col("price") * EUROS
    hour = F.hour("date_time")
    time_type = (
        F.when(hour.between(8, 18), "dayTime")
        .when((hour <= 6) | (hour >= 20), "nightTime")
        .otherwise("otherTime")
    )
    return bids.where((price > 1_000_000) & (price < 50_000_000)).select(
        "auction",
        "bidder",
        price.alias("price"),
        time_type.alias("bid_time_type"),
        "date_time",
        "extra",
        F.regexp_count("extra", F.lit("c")).alias("c_count"),
    )


@hr.pipeline(writes=hr.topic("nexmark-q21", key="auction"), reads={"bids": bids})
def q21(bids: DataFrame) -> DataFrame:
    """Add channel id: known by the channel's name, or by the address; bids without one are left out."""
    told = F.nullif(F.regexp_extract("url", "(&|^)channel_id=([^&]*)", 2), F.lit(""))
    known = F.create_map(*(F.lit(text) for pair in CHANNEL_IDS.items() for text in pair))
    channel_id = F.coalesce(known[F.lower("channel")], told).alias("channel_id")
    found = bids.select("auction", "bidder", "price", "channel", channel_id)
    return found.where("channel_id is not null")


@hr.pipeline(writes=hr.topic("nexmark-q22", key="auction"), reads={"bids": bids})
def q22(bids: DataFrame) -> DataFrame:
    """Directories of the address."""
    parts = F.split("url", "/")
    directories = [F.get(parts, F.lit(2 + number)).alias(f"dir{number}") for number in (1, 2, 3)]
    return bids.select("auction", "bidder", "price", "channel", *directories)
