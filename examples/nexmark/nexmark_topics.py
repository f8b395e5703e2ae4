"""The three topics that the queries of Nexmark read."""

from __future__ import annotations

import headrace.streams as hr
from auction_house import WATERMARK

persons = hr.topic(
    "persons",
    schema=(
        "id bigint not null, name string, email_address string, credit_card string, city string, "
        "state string, date_time timestamp not null, extra string"
    ),
    key="id",
    event_time="date_time",
    watermark=WATERMARK,
)
auctions = hr.topic(
    "auctions",
    schema=(
        "id bigint not null, item_name string, description string, initial_bid bigint, reserve bigint, "
        "date_time timestamp not null, expires timestamp, seller bigint, category bigint, extra string"
    ),
    key="id",
    event_time="date_time",
    watermark=WATERMARK,
)
bids = hr.topic(
    "bids",
    schema=(
        "auction bigint not null, bidder bigint, price bigint, channel string, url string, "
        "date_time timestamp not null, extra string"
    ),
    key="auction",
    event_time="date_time",
    watermark=WATERMARK,
)
