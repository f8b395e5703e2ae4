"""The queries of Nexmark over windows of time: each result comes once, when its window is complete."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from nexmark_topics import auctions, bids, persons

BID = ("auction", "bidder", "price", "date_time", "extra")


@hr.pipeline(writes=hr.topic("nexmark-q5", key="auction"), reads={"bids": bids})
def q5(bids: DataFrame) -> DataFrame:
    """Hot items: the auctions with the most bids of the last ten seconds, every two seconds."""
    counts = hr.window(bids, hr.hopping("10 seconds", every="2 seconds"), by="auction").agg(
        F.count("*").alias("num")
    )
    # The counts of a window all come in one micro-batch. Those of the next one say that there are no more.
    started = counts.select("auction", "num", F.col("window.start").alias("start"))
    hottest = hr.window(started, hr.tumbling("2 seconds"), event_time="start", watermark="0 seconds").agg(
        hr.greatest_rows(1, order_by="num", columns=["auction", "num"], ties=True, name="hot")
    )
    start = F.col("window.start")
    end = start + F.expr("interval 10 seconds")
    return hottest.select(start.alias("start"), end.alias("end"), F.inline("hot"))


@hr.pipeline(writes=hr.topic("nexmark-q7", key="auction"), reads={"bids": bids})
def q7(bids: DataFrame) -> DataFrame:
    """Highest bid of each ten seconds: all of them, where several are as high."""
    highest = hr.window(bids, hr.tumbling("10 seconds")).agg(
        hr.greatest_rows(1, order_by="price", columns=BID, ties=True, name="highest")
    )
    return highest.select("window", F.inline("highest"))


@hr.pipeline(writes=hr.topic("nexmark-q8", key="id"), reads={"persons": persons, "auctions": auctions})
def q8(persons: DataFrame, auctions: DataFrame) -> DataFrame:
    """Monitor new users: who has come and sold something within the same ten seconds."""
    start = F.window("date_time", "10 seconds")["start"].alias("start")
    came = persons.select("id", "name", "date_time", start, "_kafka")
    sold = auctions.select(F.col("seller").alias("id"), "date_time", start, "_kafka")
    within = hr.between(before="10 seconds", after="10 seconds")
    found = hr.join(came, sold, on=["id", "start"], within=within, how="semi")
    return found.select("id", "name", "start")


@hr.pipeline(writes=hr.topic("nexmark-q11", key="bidder"), reads={"bids": bids})
def q11(bids: DataFrame) -> DataFrame:
    """User sessions: how many bids somebody makes until there is none for ten seconds."""
    return hr.window(bids, hr.session_window("10 seconds"), by="bidder").agg(F.count("*").alias("bid_count"))


@hr.pipeline(writes=hr.topic("nexmark-q12", key="bidder"), reads={"bids": bids})
def q12(bids: DataFrame) -> DataFrame:
    """Processing time windows: bids of each ten seconds in which they came here.

    That is the time at which the log took them, so that a replay gives the same.
    """
    came = bids.withColumn("came_at", F.col("_kafka.timestamp"))
    over = hr.window(
        came, hr.tumbling("10 seconds"), by="bidder", event_time="came_at", watermark="0 seconds"
    )
    return over.agg(F.count("*").alias("bid_count"))
