"""The auctions of Nexmark, made up: persons who sell and bid, auctions, and bids; the same for the same seed.

Of 50 events, one is a person, three are auctions and 46 are bids, one event after the other at equal pauses.
As in Nexmark's own generator, half of the bids are for one hot auction of each hundred, prices are spread
evenly over their orders of magnitude, and half of the bids come by one of four large channels. A bid may be
for an auction that is not there yet, or that has expired: queries have to cope with both.

One event in ten happened up to DISORDER_MS before it comes, so that event times are a little out of order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

Kind = Literal["persons", "auctions", "bids"]
KINDS: Final[tuple[Kind, ...]] = ("persons", "auctions", "bids")

FIRST: Final = datetime(2026, 1, 1, 23, 59, 30, tzinfo=UTC)
"""Shortly before midnight, so that there is a second day soon."""
PAUSE_US: Final = 20_000
"""Between two events."""
DISORDER_MS: Final = 3_000
WATERMARK: Final = "4 seconds"
"""How long pipelines wait: longer than events are out of order, so that none is late."""
WATERMARK_MS: Final = 4_000

FIRST_ID: Final = 1_000
"""Of persons and auctions."""
CATEGORIES: Final = range(10, 15)
AUCTIONS_IN_FLIGHT: Final = 100
AUCTIONS_AHEAD: Final = 10
"""How many auctions that are not there yet a bid may be for."""
PERSONS_ACTIVE: Final = 1_000
HOT_EVERY: Final = 100
CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
OTHER_CHANNELS: Final = 1_000
STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES: Final = ("Phoenix", "Los Angeles", "Boise", "Portland", "Seattle", "Cheyenne")
FIRST_NAMES: Final = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter")
LAST_NAMES: Final = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """An event, and when it came."""

    number: int
    kind: Kind
    arrived_ms: int
    """Milliseconds since 1970."""
    row: dict[str, Any]
    """As it is written, with times as text."""


def arrivals(
    count: int, *, seed: int = 1, first: datetime = FIRST, pause_us: int = PAUSE_US
) -> Iterator[Arrival]:
    """So many events, in the order in which they come."""
    house = _House(random.Random(seed), first, pause_us)
    return (house.arrival(number) for number in range(count))


def milliseconds(time: datetime | str) -> int:
    """A time in milliseconds since 1970."""
    moment = datetime.fromisoformat(time) if isinstance(time, str) else time
    return (moment - _EPOCH) // timedelta(milliseconds=1)


class _House:
    """Who has come so far. For one thread only."""

    def __init__(self, chance: random.Random, first: datetime, pause_us: int) -> None:
        self._chance = chance
        self._first_us = milliseconds(first) * 1_000
        self._pause_us = pause_us
        self._persons = 0
        self._auctions = 0

    def arrival(self, number: int) -> Arrival:
        """The next event."""
        arrived_ms = (self._first_us + number * self._pause_us) // 1_000
        at_ms = arrived_ms - (self._chance.randrange(DISORDER_MS) if self._chance.random() < 0.1 else 0)
        place = number % 50
        if place == 0:
            kind: Kind = "persons"
            row = self._person(at_ms)
        elif place <= 3:
            kind, row = "auctions", self._auction(at_ms)
        else:
            kind, row = "bids", self._bid(at_ms)
        return Arrival(number=number, kind=kind, arrived_ms=arrived_ms, row=row)

    def _person(self, at_ms: int) -> dict[str, Any]:
        chance = self._chance
        self._persons += 1
        where = chance.randrange(len(STATES))
        name = f"{chance.choice(FIRST_NAMES)} {chance.choice(LAST_NAMES)}"
        return {
            "id": FIRST_ID + self._persons - 1,
            "name": name,
            "email_address": f"{self._word()}@{self._word()}.com",
            "credit_card": " ".join(f"{chance.randrange(10_000):04}" for _ in range(4)),
            "city": CITIES[where],
            "state": STATES[where],
            "date_time": _text(at_ms),
            "extra": self._word(20),
        }

    def _auction(self, at_ms: int) -> dict[str, Any]:
        chance = self._chance
        self._auctions += 1
        # In which time so many auctions come as are in flight, at the pace of one in 50 / 3 events.
        horizon_ms = AUCTIONS_IN_FLIGHT * 50 * self._pause_us // 3_000
        initial_bid = self._price()
        return {
            "id": FIRST_ID + self._auctions - 1,
            "item_name": self._word(10),
            "description": self._word(20),
            "initial_bid": initial_bid,
            "reserve": initial_bid + self._price(),
            "date_time": _text(at_ms),
            "expires": _text(at_ms + 1 + chance.randrange(max(1, 2 * horizon_ms))),
            "seller": self._person_id(),
            "category": chance.choice(CATEGORIES),
            "extra": self._word(20),
        }

    def _bid(self, at_ms: int) -> dict[str, Any]:
        chance = self._chance
        url = f"https://www.nexmark.com/{self._word()}/{self._word()}/{self._word()}/item.htm?query=1"
        if chance.random() < 0.5:
            channel = chance.choice(CHANNELS)
        else:
            number = chance.randrange(OTHER_CHANNELS)
            channel = f"channel-{number}"
            url += f"&channel_id={number}" if chance.random() < 0.9 else ""
        return {
            "auction": self._auction_id(),
            "bidder": self._person_id(),
            "price": self._price(),
            "channel": channel,
            "url": url,
            "date_time": _text(at_ms),
            "extra": self._word(20),
        }

    def _auction_id(self) -> int:
        last = max(self._auctions - 1, 0)
        if self._chance.random() < 0.5:
            return FIRST_ID + last // HOT_EVERY * HOT_EVERY
        least = max(last - AUCTIONS_IN_FLIGHT, 0)
        return FIRST_ID + self._chance.randrange(least, last + 1 + AUCTIONS_AHEAD)

    def _person_id(self) -> int:
        last = max(self._persons - 1, 0)
        if self._chance.random() < 0.75:
            return FIRST_ID + last // HOT_EVERY * HOT_EVERY
        return FIRST_ID + self._chance.randrange(max(last - PERSONS_ACTIVE, 0), last + 1)

    def _price(self) -> int:
        return round(10 ** (self._chance.random() * 6) * 100)

    def _word(self, length: int = 5) -> str:
        return "".join(self._chance.choices(_LETTERS, k=length))


def _text(time_ms: int) -> str:
    time = _EPOCH + timedelta(milliseconds=time_ms)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time_ms % 1_000:03}Z"
