"""Which impressions of advertisements were clicked within an hour, and which were not.

    headrace run examples/clicks/pipeline.py

Two streams, joined by the impression that a click is of:

    impressions  ─┐
                  ├─▶ outcomes      each impression with its click, at once; or without one, after the hour
    clicks       ─┤
                  └─▶ stray-clicks  clicks of no impression of the hour before: fraud, or a bug
"""

from __future__ import annotations

from pyspark.sql import DataFrame

import headrace.streams as hr

WATERMARK = hr.bounded("30 seconds", idle_after="10 minutes")

impressions = hr.topic(
    "impressions",
    schema="impression_id string not null, campaign_id string not null, shown_at timestamp not null",
    key="impression_id",
    event_time="shown_at",
    watermark=WATERMARK,
)
clicks = hr.topic(
    "clicks",
    schema="impression_id string not null, click_id string not null, clicked_at timestamp not null",
    key="impression_id",
    event_time="clicked_at",
    watermark=WATERMARK,
)


@hr.pipeline(
    writes=hr.topic("outcomes", key="impression_id"), reads={"impressions": impressions, "clicks": clicks}
)
def outcomes(impressions: DataFrame, clicks: DataFrame) -> DataFrame:
    """Each impression with its clicks, or alone if there was none within an hour."""
    return hr.join(
        impressions, clicks, on="impression_id", within=hr.between(after="1 hour"), how="left", late=hr.drop
    )


@hr.pipeline(
    writes=hr.topic("stray-clicks", key="impression_id"), reads={"clicks": clicks, "impressions": impressions}
)
def stray_clicks(clicks: DataFrame, impressions: DataFrame) -> DataFrame:
    """Clicks of no impression that was shown in the hour before them."""
    shown = impressions.drop("campaign_id")
    return hr.join(clicks, shown, on="impression_id", within=hr.between(before="1 hour"), how="anti")
