"""The queries of Nexmark in Flink SQL, with the columns of ours, as text: nothing of Flink is imported.

Ties are broken as in ours, so that there is one answer. Windows by processing time are by the time of the
log, and averages are of floating point, as in ours. q6 is missing: Flink's OVER takes no rows that change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BID: Final = "auction BIGINT, bidder BIGINT, price BIGINT"
TIME: Final = "TIMESTAMP_LTZ(3)"
SOURCES: Final = {
    "persons": (
        "id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING, "
        f"date_time {TIME}, extra STRING, WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND"
    ),
    "auctions": (
        "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, "
        f"date_time {TIME}, expires {TIME}, seller BIGINT, category BIGINT, extra STRING, "
        "WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND"
    ),
    "bids": (
        f"{BID}, channel STRING, url STRING, date_time {TIME}, extra STRING, "
        "WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND"
    ),
    "logged_bids": f"{BID}, came_at {TIME} METADATA FROM 'timestamp', WATERMARK FOR came_at AS came_at",
}
"""The columns of the tables. `logged_bids` are the bids by the time of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlinkQuery:
    """A query, and what it is written to."""

    columns: str
    select: str
    key: str | None = None
    """The columns by which results replace each other; None where they don't."""
    partitioned_by: str | None = None
    """Into files by these columns; None where it is into a topic."""


def _tumbling(table: str, time: str = "date_time") -> str:
    return f"TABLE(TUMBLE(TABLE {table}, DESCRIPTOR({time}), INTERVAL '10' SECOND))"


_HOPPING: Final = (
    "SELECT auction, COUNT(*) AS num, window_start, window_end FROM "
    "TABLE(HOP(TABLE bids, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) "
    "GROUP BY auction, window_start, window_end"
)
_VALID: Final = "auctions A JOIN bids B ON A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires"
_RANKS: Final = {
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}
_DAY: Final = "DATE_FORMAT(date_time, 'yyyy-MM-dd')"
_MINUTE: Final = "DATE_FORMAT(date_time, 'HH:mm')"
_RANK_COUNTS: Final = [("total_bids", "COUNT(*)")] + [
    (f"{rank}_bids", f"COUNT(*) FILTER (WHERE {is_rank})") for rank, is_rank in _RANKS.items()
]
_STATISTICS: Final = _RANK_COUNTS + [
    (f"{rank}_{column}s", f"COUNT(DISTINCT {column}) FILTER (WHERE {is_rank})")
    for column in ("bidder", "auction")
    for rank, is_rank in {"total": "TRUE", **_RANKS}.items()
]


def _selected(pairs: list[tuple[str, str]]) -> str:
    return ", ".join(f"{value} AS {name}" for name, value in pairs)


def _counts(pairs: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} BIGINT" for name, _value in pairs)


_CHANNEL_ID: Final = "REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)"
_BID_COLUMNS: Final = f"{BID}, channel STRING, url STRING, date_time {TIME}, extra STRING"
_WINDOW: Final = "`start` TIMESTAMP(3), `end` TIMESTAMP(3)"
_EUROS: Final = "CAST(0.908 AS DOUBLE) * price"

QUERIES: Final = {
    "q0": FlinkQuery(
        columns=f"{BID}, date_time {TIME}, extra STRING",
        select="SELECT auction, bidder, price, date_time, extra FROM bids",
    ),
    "q1": FlinkQuery(
        columns=f"auction BIGINT, bidder BIGINT, price DOUBLE, date_time {TIME}, extra STRING",
        select=f"SELECT auction, bidder, {_EUROS}, date_time, extra FROM bids",
    ),
    "q2": FlinkQuery(
        columns="auction BIGINT, price BIGINT",
        select="SELECT auction, price FROM bids WHERE MOD(auction, 123) = 0",
    ),
    "q3": FlinkQuery(
        columns="name STRING, city STRING, state STRING, id BIGINT",
        select=(
            "SELECT P.name, P.city, P.state, A.id FROM auctions A JOIN persons P ON A.seller = P.id "
            "WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')"
        ),
    ),
    "q4": FlinkQuery(
        columns="category BIGINT, average DOUBLE",
        key="category",
        select=(
            "SELECT category, AVG(CAST(final AS DOUBLE)) FROM "
            "(SELECT A.id, A.category, MAX(B.price) AS final "
            f"FROM {_VALID} GROUP BY A.id, A.category) GROUP BY category"
        ),
    ),
    "q5": FlinkQuery(
        columns=f"auction BIGINT, num BIGINT, {_WINDOW}",
        select=(
            f"SELECT C.auction, C.num, C.window_start, C.window_end FROM ({_HOPPING}) C JOIN "
            "(SELECT MAX(num) AS most, window_start, window_end "
            f"FROM ({_HOPPING}) GROUP BY window_start, window_end) M "
            "ON C.window_start = M.window_start AND C.window_end = M.window_end AND C.num = M.most"
        ),
    ),
    "q7": FlinkQuery(
        columns=f"{_WINDOW}, {BID}, date_time {TIME}, extra STRING",
        select=(
            "SELECT B.window_start, B.window_end, B.auction, B.bidder, B.price, B.date_time, B.extra "
            f"FROM (SELECT * FROM {_tumbling('bids')}) B JOIN "
            "(SELECT MAX(price) AS highest, window_start, window_end "
            f"FROM {_tumbling('bids')} GROUP BY window_start, window_end) M "
            "ON B.window_start = M.window_start AND B.window_end = M.window_end AND B.price = M.highest"
        ),
    ),
    "q8": FlinkQuery(
        columns="id BIGINT, name STRING, `start` TIMESTAMP(3)",
        select=(
            "SELECT P.id, P.name, P.window_start FROM (SELECT id, name, window_start, window_end "
            f"FROM {_tumbling('persons')} GROUP BY id, name, window_start, window_end) P JOIN "
            "(SELECT seller, window_start, window_end "
            f"FROM {_tumbling('auctions')} GROUP BY seller, window_start, window_end) A "
            "ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end"
        ),
    ),
    "q9": FlinkQuery(
        columns=(
            "id BIGINT, item_name STRING, category BIGINT, seller BIGINT, bidder BIGINT, price BIGINT, "
            f"bid_at {TIME}"
        ),
        key="id",
        select=(
            "SELECT id, item_name, category, seller, bidder, price, bid_at FROM (SELECT A.id, A.item_name, "
            "A.category, A.seller, B.bidder, B.price, B.date_time AS bid_at, ROW_NUMBER() OVER (PARTITION BY "
            f"A.id ORDER BY B.price DESC, B.date_time ASC, B.bidder DESC) AS place FROM {_VALID}) "
            "WHERE place <= 1"
        ),
    ),
    "q10": FlinkQuery(
        columns=f"{BID}, date_time {TIME}, extra STRING, `day` STRING, `minute` STRING",
        partitioned_by="`day`, `minute`",
        select=f"SELECT auction, bidder, price, date_time, extra, {_DAY}, {_MINUTE} FROM bids",
    ),
    "q11": FlinkQuery(
        columns=f"bidder BIGINT, bid_count BIGINT, {_WINDOW}",
        select=(
            "SELECT bidder, COUNT(*), window_start, window_end FROM TABLE(SESSION(TABLE bids PARTITION BY "
            "bidder, DESCRIPTOR(date_time), INTERVAL '10' SECOND)) GROUP BY bidder, window_start, window_end"
        ),
    ),
    "q12": FlinkQuery(
        columns=f"bidder BIGINT, bid_count BIGINT, {_WINDOW}",
        select=(
            "SELECT bidder, COUNT(*), window_start, window_end "
            f"FROM {_tumbling('logged_bids', 'came_at')} GROUP BY bidder, window_start, window_end"
        ),
    ),
    "q13": FlinkQuery(
        columns=f"{BID}, date_time {TIME}, `value` STRING",
        select=(
            "SELECT B.auction, B.bidder, B.price, B.date_time, 'side-' || CAST(S.key AS STRING) "
            "FROM bids B JOIN side_input S ON MOD(B.auction, 10000) = S.key"
        ),
    ),
    "q14": FlinkQuery(
        columns=(
            f"auction BIGINT, bidder BIGINT, price DOUBLE, bid_time_type STRING, date_time {TIME}, "
            "extra STRING, c_count INT"
        ),
        select=(
            f"SELECT auction, bidder, {_EUROS}, CASE WHEN HOUR(date_time) BETWEEN 8 AND 18 THEN 'dayTime' "
            "WHEN HOUR(date_time) <= 6 OR HOUR(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END, "
            "date_time, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) "
            f"FROM bids WHERE {_EUROS} > 1000000 AND {_EUROS} < 50000000"
        ),
    ),
    "q15": FlinkQuery(
        columns=f"`day` STRING, {_counts(_STATISTICS)}",
        key="`day`",
        select=f"SELECT {_DAY}, {_selected(_STATISTICS)} FROM bids GROUP BY {_DAY}",
    ),
    "q16": FlinkQuery(
        columns=f"channel STRING, `day` STRING, `minute` STRING, {_counts(_STATISTICS)}",
        key="channel, `day`",
        select=(
            f"SELECT channel, {_DAY}, MAX({_MINUTE}), {_selected(_STATISTICS)} FROM bids "
            f"GROUP BY channel, {_DAY}"
        ),
    ),
    "q17": FlinkQuery(
        columns=(
            f"auction BIGINT, `day` STRING, {_counts(_RANK_COUNTS)}, min_price BIGINT, max_price BIGINT, "
            "avg_price DOUBLE, sum_price BIGINT"
        ),
        key="auction, `day`",
        select=(
            f"SELECT auction, {_DAY}, {_selected(_RANK_COUNTS)}, MIN(price), MAX(price), "
            f"AVG(CAST(price AS DOUBLE)), SUM(price) FROM bids GROUP BY auction, {_DAY}"
        ),
    ),
    "q18": FlinkQuery(
        columns=f"{_BID_COLUMNS}, `rank` BIGINT",
        key="bidder, auction, `rank`",
        select=(
            "SELECT auction, bidder, price, channel, url, date_time, extra, place FROM "
            "(SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC, price DESC) "
            "AS place FROM bids) WHERE place <= 1"
        ),
    ),
    "q19": FlinkQuery(
        columns=f"{_BID_COLUMNS}, `rank` BIGINT",
        key="auction, `rank`",
        select=(
            "SELECT auction, bidder, price, channel, url, date_time, extra, place FROM "
            "(SELECT *, ROW_NUMBER() OVER "
            "(PARTITION BY auction ORDER BY price DESC, date_time DESC, bidder DESC) AS place FROM bids) "
            "WHERE place <= 10"
        ),
    ),
    "q20": FlinkQuery(
        columns=(
            f"{BID}, channel STRING, date_time {TIME}, item_name STRING, initial_bid BIGINT, seller BIGINT, "
            f"category BIGINT, expires {TIME}"
        ),
        select=(
            "SELECT B.auction, B.bidder, B.price, B.channel, B.date_time, A.item_name, A.initial_bid, "
            "A.seller, A.category, A.expires FROM bids B JOIN auctions A ON B.auction = A.id "
            "WHERE A.category = 10"
        ),
    ),
    "q21": FlinkQuery(
        columns=f"{BID}, channel STRING, channel_id STRING",
        select=(
            "SELECT auction, bidder, price, channel, CASE WHEN LOWER(channel) = 'apple' THEN '0' "
            "WHEN LOWER(channel) = 'google' THEN '1' WHEN LOWER(channel) = 'facebook' THEN '2' "
            f"WHEN LOWER(channel) = 'baidu' THEN '3' ELSE {_CHANNEL_ID} END FROM bids "
            f"WHERE {_CHANNEL_ID} IS NOT NULL OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')"
        ),
    ),
    "q22": FlinkQuery(
        columns=f"{BID}, channel STRING, dir1 STRING, dir2 STRING, dir3 STRING",
        select=(
            "SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3), SPLIT_INDEX(url, '/', 4), "
            "SPLIT_INDEX(url, '/', 5) FROM bids"
        ),
    ),
}
