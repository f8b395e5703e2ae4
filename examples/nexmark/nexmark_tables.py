"""The queries of Nexmark whose results change as more comes: tables, kept current.

Persons, auctions and bids are tables to which rows are only added. What is made of them changes all the same:
the highest bid of an auction, until it expires, and with it the average of its category.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from nexmark_topics import auctions, bids, persons

AUCTIONS_AND_BIDS = {"auctions": auctions, "bids": bids}
RANKS = {
    "rank1": "price < 10000",
    "rank2": "price >= 10000 and price < 1000000",
    "rank3": "price >= 1000000",
}
"""Bids by how high they are."""


def appended(rows: DataFrame, key: str | Sequence[str]) -> DataFrame:
    """The changelog of a table to which rows are only added."""
    return hr.changes(rows.drop("_kafka").withColumn("_weight", F.lit(1)), key=key)


def valid_bids(auctions: DataFrame, bids: DataFrame, *columns: str) -> DataFrame:
    """Auctions, with these columns, and each of their bids that came before they expired."""
    opened = auctions.select("id", *columns, F.col("date_time").alias("opened_at"), "expires")
    bid = bids.select("auction", "bidder", "price", F.col("date_time").alias("bid_at"))
    joined = hr.join_tables(
        appended(opened, "id"), appended(bid, ["auction", "bidder", "bid_at"]), on={"id": "auction"}
    )
    return joined.where("bid_at between opened_at and expires")


def winning_bids(auctions: DataFrame, bids: DataFrame, *columns: str) -> DataFrame:
    """The winning bid of each auction: the highest, and of several as high, the first."""
    valid = valid_bids(auctions, bids, *columns).withColumn("earliness", -F.unix_micros("bid_at"))
    winner = hr.greatest_rows(
        1,
        order_by=["price", "earliness", "bidder"],
        columns=["bidder", "price", "bid_at"],
        name="winner",
    )
    found = hr.aggregate(valid, winner, by=["id", *columns])
    return hr.changes(found.select("id", *columns, F.col("winner")[0].alias("winner"), "_weight"), key="id")


@hr.pipeline(writes=hr.topic("nexmark-q3", key="id"), reads={"auctions": auctions, "persons": persons})
def q3(auctions: DataFrame, persons: DataFrame) -> DataFrame:
    """Local item suggestion: who sells what in some states."""
    offered = appended(auctions.where("category = 10").select("id", "seller"), "id")
    sellers = persons.where("state in ('OR', 'ID', 'CA')").select(
        F.col("id").alias("person"), "name", "city", "state"
    )
    joined = hr.join_tables(offered, appended(sellers, "person"), on={"seller": "person"})
    return joined.select("name", "city", "state", "id")


@hr.pipeline(writes=hr.topic("nexmark-q4", key="category"), reads=AUCTIONS_AND_BIDS)
def q4(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """Average price for a category: the mean of the highest bids of its auctions."""
    valid = valid_bids(auctions, bids, "category")
    final = hr.aggregate(valid, F.max("price").alias("final"), by=["id", "category"])
    return hr.upserts(hr.aggregate(final, F.avg("final").alias("average"), by="category"))


@hr.pipeline(writes=hr.topic("nexmark-q6", key="seller"), reads=AUCTIONS_AND_BIDS)
def q6(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """Average selling price by seller: of the last ten auctions of each, by their winning bids."""
    won = winning_bids(auctions, bids, "seller").select("id", "seller", "winner.*", "_weight")
    last = hr.greatest_rows(10, order_by=["bid_at", "id"], columns=["price"], name="last")
    by_seller = hr.aggregate(won, last, by="seller")
    total = F.aggregate("last", F.lit(0).cast("bigint"), lambda sum_, each: sum_ + each["price"])
    average = (total / F.size("last")).alias("average")
    return hr.upserts(by_seller.select("seller", average, "_weight"))


@hr.pipeline(writes=hr.topic("nexmark-q9", key="id"), reads=AUCTIONS_AND_BIDS)
def q9(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """Winning bids: each auction with its own."""
    won = winning_bids(auctions, bids, "item_name", "category", "seller")
    return hr.upserts(won.select("id", "item_name", "category", "seller", "winner.*", "_weight"))


def bids_by_rank() -> list[Column]:
    """How many bids there are, in all and by rank."""
    by_rank = [F.count(F.when(F.expr(is_rank), 1)).alias(f"{rank}_bids") for rank, is_rank in RANKS.items()]
    return [F.count("*").alias("total_bids"), *by_rank]


def statistics() -> list[Column]:
    """How many bids, bidders and auctions there are, in all and by rank."""
    counts = bids_by_rank()
    for column in ("bidder", "auction"):
        counts.append(F.count_distinct(column).alias(f"total_{column}s"))
        counts += [
            F.count_distinct(F.when(F.expr(is_rank), F.col(column))).alias(f"{rank}_{column}s")
            for rank, is_rank in RANKS.items()
        ]
    return counts


def of_days(bids: DataFrame) -> DataFrame:
    """The table of bids, with the day and the minute of each."""
    day = F.date_format("date_time", "yyyy-MM-dd").alias("day")
    minute = F.date_format("date_time", "HH:mm").alias("minute")
    return appended(
        bids.select("auction", "bidder", "price", "channel", day, minute), ["auction", "bidder", "day"]
    )


@hr.pipeline(writes=hr.topic("nexmark-q15", key="day"), reads={"bids": bids})
def q15(bids: DataFrame) -> DataFrame:
    """Bidding statistics of each day."""
    return hr.upserts(hr.aggregate(of_days(bids), *statistics(), by="day"))


@hr.pipeline(writes=hr.topic("nexmark-q16", key="channel_day"), reads={"bids": bids})
def q16(bids: DataFrame) -> DataFrame:
    """Channel statistics of each day."""
    found = hr.aggregate(of_days(bids), F.max("minute").alias("minute"), *statistics(), by=["channel", "day"])
    return hr.upserts(found.withColumn("channel_day", F.concat_ws(" ", "channel", "day")), key="channel_day")


@hr.pipeline(writes=hr.topic("nexmark-q17", key=["auction", "day"]), reads={"bids": bids})
def q17(bids: DataFrame) -> DataFrame:
    """Auction statistics of each day: nothing is taken back, so Spark's own aggregates will do."""
    day = F.date_format("date_time", "yyyy-MM-dd").alias("day")
    return bids.groupBy("auction", day).agg(
        *bids_by_rank(),
        F.min("price").alias("min_price"),
        F.max("price").alias("max_price"),
        F.avg("price").alias("avg_price"),
        F.sum("price").alias("sum_price"),
    )


@hr.pipeline(writes=hr.topic("nexmark-q18", key=["bidder", "auction"]), reads={"bids": bids})
def q18(bids: DataFrame) -> DataFrame:
    """Find last bid: of each bidder for each auction."""
    return hr.top(bids, 1, by=["bidder", "auction"], order_by=["date_time", "price"])


@hr.pipeline(writes=hr.topic("nexmark-q19", key=["auction", "rank"]), reads={"bids": bids})
def q19(bids: DataFrame) -> DataFrame:
    """Auction top ten: the highest bids of each."""
    return hr.top(bids, 10, by="auction", order_by=["price", "date_time", "bidder"])


@hr.pipeline(writes=hr.topic("nexmark-q20", key="auction"), reads=AUCTIONS_AND_BIDS)
def q20(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """Expand bid with auction: bids for auctions of one category, whichever of both came first."""
    offered = auctions.where("category = 10").select(
        F.col("id").alias("auction"), "item_name", "initial_bid", "seller", "category", "expires"
    )
    # Two bids may be the same in all that they say: their places in the log tell them apart.
    place = F.concat_ws("-", "_kafka.partition", "_kafka.offset").alias("bid")
    made = bids.select(place, "auction", "bidder", "price", "channel", "date_time")
    return hr.join_tables(appended(made, "bid"), appended(offered, "auction"), on="auction").drop("_weight")
