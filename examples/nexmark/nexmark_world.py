"""The events as the reference takes them, and the last word of what queries have told.

A stream gives windows that are complete. `World.complete_until_ms` says up to when they are, by event time,
and `logged_until_ms` by the time of the log; both are without end for a batch, in which all windows end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from auction_house import WATERMARK_MS, Arrival, milliseconds

Row = dict[str, Any]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """All events. Each row has, beside its own fields, `at` and `logged`, in milliseconds since 1970."""

    persons: list[Row]
    auctions: list[Row]
    bids: list[Row]
    complete_until_ms: float = math.inf
    logged_until_ms: float = math.inf

    @classmethod
    def of_batch(cls, events: Iterable[Arrival]) -> World:
        """The world to its end."""
        found: dict[str, list[Row]] = {"persons": [], "auctions": [], "bids": []}
        for event in events:
            at = milliseconds(event.row["date_time"])
            found[event.kind].append({**event.row, "at": at, "logged": event.arrived_ms, "n": event.number})
        return cls(persons=found["persons"], auctions=found["auctions"], bids=found["bids"])

    @classmethod
    def of_stream(cls, events: Iterable[Arrival], partitions: int) -> World:
        """The world as far as a stream knows it, of bids that were dealt out to partitions in turn."""
        whole = cls.of_batch(events)
        parts = [[bid for bid in whole.bids if bid["n"] % partitions == part] for part in range(partitions)]
        return cls(
            persons=whole.persons,
            auctions=whole.auctions,
            bids=whole.bids,
            complete_until_ms=min(max(bid["at"] for bid in part) for part in parts) - WATERMARK_MS,
            logged_until_ms=min(max(bid["logged"] for bid in part) for part in parts),
        )


LATEST_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "q4": ("category",),
    "q6": ("seller",),
    "q9": ("id",),
    "q15": ("day",),
    "q16": ("channel_day",),
    "q17": ("auction", "day"),
    "q18": ("bidder", "auction", "rank"),
    "q19": ("auction", "rank"),
}
"""Of queries whose results replace each other: what tells them apart. The last one counts."""


def final_rows(query: str, rows: Iterable[Row]) -> list[Row]:
    """What a query has told at last, of all that it told, in the order in which it came."""
    names = LATEST_BY.get(query)
    # Where in the log a bid lies is no part of the answer.
    told = [{name: value for name, value in row.items() if name != "bid"} for row in rows]
    if names is None:
        return told
    last = {tuple(row[name] for name in names): row for row in told}
    return [row for row in last.values() if not row.get("removed")]


def instant(time_ms: int) -> str:
    """A time as pipelines write it."""
    return f"{_EPOCH + timedelta(milliseconds=time_ms):%Y-%m-%dT%H:%M:%S}.{time_ms % 1_000:03}000Z"
