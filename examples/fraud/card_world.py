"""A small world of card holders, honest and robbed: the same for the same seed. Pure: no clock, no network.

Holders live in cities around the globe, sleep at night by their own clock, shop near home at merchants that
they like, and some of them are on a journey. Every few seconds a card is stolen, and used in one of four ways
that the rules and the model are there to find:

    burst    many small payments within seconds              rule velocity
    spree    a few large ones within minutes                 rule spending
    far      payments in a city far from the last one        rule travel
    quiet    one or two at merchants that thieves like       the model, or nobody

Who paid with a stolen card is known here (`is_fraud`), and nowhere in the transactions.

What makes life hard is here as well. Phones are offline for a while: their payments come late, in a burst.
Some clocks go wrong by seconds. On request records are delivered twice, or are malformed in one of the ways
that real ones are, among them a clock that is a year ahead.

Times. A record is sent `due_s` seconds after the world's start; event time goes `speed` times as fast, so
that at 1440 a day takes a minute. How often cards are stolen goes by the former, what thieves and phones do
by the latter. Rate and share of late payments may be changed while it runs; the same
changes at the same records make the same world.
"""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from random import Random
from typing import Final

CARD_COUNT: Final = 30_000
"""So many that, at 1,000 payments a second, an honest card rests for half a minute between two."""
THEFT_PAUSE_S: Final = 4.0
"""How long it takes, on average, until the next card is stolen."""
CHANGE_PAUSE_S: Final = 10.0
"""How long it takes, on average, until the next holder moves, or gets another tier."""
LATE_SHARE: Final = 0.05
OFFLINE_S: Final = (10.0, 180.0)
SKEWED_CARD_SHARE: Final = 0.02
SKEW_S: Final = (-20.0, 5.0)
JOURNEY_SHARE: Final = 0.03
ASLEEP: Final = (23.0, 7.0)
RECENT_CARD_COUNT_MAX: Final = 500
HELD_COUNT_MAX: Final = 100_000
"""Payments of phones that are offline, at most; more are reported at once."""
OFFLINE_CHANCE_MAX: Final = 0.9
"""So that there is always a phone that is online."""

CITIES: Final = (
    # name, latitude, longitude, hours ahead of UTC
    ("Berlin", 52.52, 13.41, 1),
    ("Paris", 48.86, 2.35, 1),
    ("Madrid", 40.42, -3.70, 1),
    ("Rome", 41.90, 12.50, 1),
    ("Warsaw", 52.23, 21.01, 1),
    ("Lagos", 6.52, 3.38, 1),
    ("London", 51.51, -0.13, 0),
    ("Cairo", 30.04, 31.24, 2),
    ("Nairobi", -1.29, 36.82, 3),
    ("Mumbai", 19.08, 72.88, 5),
    ("Singapore", 1.35, 103.82, 8),
    ("Tokyo", 35.68, 139.69, 9),
    ("Sydney", -33.87, 151.21, 10),
    ("Sao Paulo", -23.55, -46.63, -3),
    ("New York", 40.71, -74.01, -5),
    ("Mexico City", 19.43, -99.13, -6),
    ("San Francisco", 37.77, -122.42, -8),
)
MERCHANTS: Final = ("grocer", "bakery", "fuel", "pharmacy", "books", "cinema", "shoes", "cafe")
THIEVES_MERCHANTS: Final = ("electronics", "gift-cards", "jewellery")
TIERS: Final = ("standard", "standard", "standard", "gold", "business")
MALFORMED: Final = (
    b'{"tx_id": "cut off',
    b"not JSON at all",
    b'{"tx_id": "x", "card_id": "x", "amount": "a lot", "at": "2026-01-01T00:00:00Z", "lat": 1, "lon": 1}',
    b'{"card_id": "x", "amount": 1.5, "at": "2026-01-01T00:00:00Z", "lat": 1, "lon": 1}',
    b'["an", "array"]',
    b"\xff\xfe\x00",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What there is and how it behaves."""

    seed: int
    start: datetime
    rate: float
    """Records a second."""
    speed: float = 1.0
    card_count: int = CARD_COUNT
    theft_pause_s: float = THEFT_PAUSE_S
    change_pause_s: float = CHANGE_PAUSE_S
    late_share: float = LATE_SHARE
    duplicate_share: float = 0.0
    malformed_share: float = 0.0
    sleepless: bool = False
    """Whether holders pay around the clock: then each card is used as often, whatever the hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a holder may do before it is suspicious: the thresholds of the rules."""

    count_max: int = 5
    total_max: float = 5_000.0
    kmh_max: float = 500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One use of a card."""

    tx_id: str
    card_id: str
    amount: float
    at: datetime
    merchant: str
    lat: float
    lon: float

    def encode(self) -> bytes:
        """The transaction as it is on the topic: about 150 bytes of JSON."""
        fields = {
            "tx_id": self.tx_id,
            "card_id": self.card_id,
            "amount": self.amount,
            "at": _text(self.at),
            "merchant": self.merchant,
            "lat": self.lat,
            "lon": self.lon,
        }
        return json.dumps(fields, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What the bank knows of a card's holder, from a moment on."""

    card_id: str
    holder_id: str
    tier: str
    home_lat: float
    home_lon: float
    limits: Limits
    since: datetime

    def encode(self) -> bytes:
        """The profile as it is on the topic."""
        fields = {
            "card_id": self.card_id,
            "holder_id": self.holder_id,
            "tier": self.tier,
            "home_lat": self.home_lat,
            "home_lon": self.home_lon,
            "count_max": self.limits.count_max,
            # Companies buy more.
            "total_max": self.limits.total_max * (2 if self.tier == "business" else 1),
            "kmh_max": self.limits.kmh_max,
            "since": _text(self.since),
        }
        return json.dumps(fields, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A record, and when it is sent."""

    due_s: float
    """Seconds after the world's start."""
    sent_at: datetime
    """The same as a moment of event time."""
    key: str
    value: bytes
    transaction: Transaction | None
    """None for a malformed one."""
    is_fraud: bool = False
    profiles: tuple[Profile, ...] = ()
    """What the bank has learnt just before: to be sent first."""


@dataclass(slots=True)
class _Card:
    """What a card's holder is like now."""

    number: int
    city: int
    place: tuple[float, float]
    """Where the holder is: at home, or on a journey."""
    tier: str
    spends: float
    merchants: tuple[str, ...]
    skew_s: float
    offline_until_s: float = 0.0


@dataclass(frozen=True, slots=True, order=True)
class _Use:
    """A payment that is to be made with a stolen card."""

    at_s: float
    card: int
    amount: float
    lat: float
    lon: float


class Arrivals(Iterator[Arrival]):
    """The world's records in the order in which they are sent, without end. Not for several threads."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(world.seed)
        self._holders = Random(world.seed + 1)
        self._cards: dict[int, _Card] = {}
        self._deck = self._honest_cards()
        self._thefts: list[_Use] = []
        self._next_theft_s = world.theft_pause_s
        self._next_change_s = world.change_pause_s
        self._held: list[tuple[float, int, Arrival]] = []
        self._held_number = count()
        self._recent: deque[int] = deque(maxlen=RECENT_CARD_COUNT_MAX)
        self._last: Arrival | None = None
        self._number = 0
        self._begun_s, self._begun_number, self._rate = 0.0, 0, world.rate
        self._limits = Limits()
        self._learnt: list[Profile] = []
        self._late_share = world.late_share
        self._honest_count = self._held_count = 0

    @property
    def rate(self) -> float:
        """Records a second, from the next one on."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._begun_s, self._begun_number, self._rate = self._due_s(), self._number, rate

    @property
    def late_share(self) -> float:
        """The share of honest payments that come late, from the next one on."""
        return self._late_share

    @late_share.setter
    def late_share(self, share: float) -> None:
        self._late_share = share
        self._honest_count = self._held_count = 0

    def catch_up(self, now_s: float, *, behind_s_max: float) -> None:
        """Leave out what should have been sent longer ago than that, by a clock that shows `now_s`."""
        if now_s - self._due_s() > behind_s_max:
            self._begun_s, self._begun_number = now_s, self._number

    @property
    def limits(self) -> Limits:
        """The thresholds that profiles have."""
        return self._limits

    def set_limits(self, limits: Limits) -> list[Profile]:
        """Change the thresholds, from now on; returns the new profiles of all cards that were ever used."""
        self._limits = limits
        since = self._moment(self._due_s())
        return [self._profile(card, since) for card in self._cards.values()]

    def __next__(self) -> Arrival:
        due_s = self._due_s()
        arrival = self._arrival(due_s)
        self._number += 1
        learnt, self._learnt = tuple(self._learnt), []
        return replace(arrival, due_s=due_s, sent_at=self._moment(due_s), profiles=learnt)

    def _due_s(self) -> float:
        return self._begun_s + (self._number - self._begun_number) / self._rate

    def _moment(self, due_s: float) -> datetime:
        return self._world.start + timedelta(seconds=due_s * self._world.speed)

    def _arrival(self, due_s: float) -> Arrival:
        kind = self._random.random()
        if kind < self._world.malformed_share:
            return self._malformed(due_s)
        if self._last is not None and kind < self._world.malformed_share + self._world.duplicate_share:
            return self._last
        self._last = self._next_use(due_s, due_s * self._world.speed)
        return self._last

    def _next_use(self, due_s: float, now_s: float) -> Arrival:
        """What comes next: from a phone that is online again, by a thief, or by an honest holder."""
        if self._held and self._held[0][0] <= now_s:
            return heapq.heappop(self._held)[2]
        if due_s >= self._next_theft_s:
            self._next_theft_s = due_s + self._random.expovariate(1 / self._world.theft_pause_s)
            self._steal(now_s)
        if due_s >= self._next_change_s:
            self._next_change_s = due_s + self._random.expovariate(1 / self._world.change_pause_s)
            self._change(now_s)
        if self._thefts and self._thefts[0].at_s <= now_s:
            use = heapq.heappop(self._thefts)
            merchant = self._random.choice(THIEVES_MERCHANTS)
            return self._pay(due_s, use, merchant, 0, is_fraud=True)
        attempt = 0
        while True:
            card = next(self._deck)
            use = self._honest_use(card, now_s)
            arrival = self._pay(due_s, use, self._merchant(card), attempt, is_fraud=False)
            self._recent.append(card.number)
            if not self._is_held(card, now_s, arrival):
                return arrival
            attempt += 1

    def _is_held(self, card: _Card, now_s: float, arrival: Arrival) -> bool:
        """Whether the phone is offline, now and then: what is paid meanwhile comes when it is back.

        How many payments that concerns depends on how often cards are used. So phones go offline while fewer
        payments than the asked share have been held, and none does while there are more.
        """
        self._honest_count += 1
        if card.offline_until_s <= now_s:
            is_short = self._held_count < self._late_share * self._honest_count
            if not is_short or self._random.random() >= min(2 * self._late_share, OFFLINE_CHANCE_MAX):
                return False
            card.offline_until_s = now_s + self._random.uniform(*OFFLINE_S)
        if len(self._held) >= HELD_COUNT_MAX:
            return False
        self._held_count += 1
        heapq.heappush(self._held, (card.offline_until_s, next(self._held_number), arrival))
        return True

    def _honest_cards(self) -> Iterator[_Card]:
        """Each card in turn, in an order that changes a little each time round: none comes again soon.

        Holders that are asleep rarely pay.
        """
        deck = list(range(self._world.card_count))
        self._random.shuffle(deck)
        neighbourhood = max(1, self._world.card_count // 4)
        while True:
            for index in range(self._world.card_count):
                other = min(self._world.card_count - 1, index + self._random.randrange(neighbourhood))
                deck[index], deck[other] = deck[other], deck[index]
                card = self._card(deck[index])
                if not self._is_asleep(card) or self._random.random() < 0.1:
                    yield card

    def _is_asleep(self, card: _Card) -> bool:
        if self._world.sleepless:
            return False
        now = self._moment(self._due_s())
        hour = (now.hour + now.minute / 60 + CITIES[card.city][3]) % 24
        return hour >= ASLEEP[0] or hour < ASLEEP[1]

    def _honest_use(self, card: _Card, now_s: float) -> _Use:
        amount = round(self._random.lognormvariate(0, 0.8) * card.spends, 2)
        lat, lon = _nearby(self._random, card.place)
        return _Use(at_s=now_s, card=card.number, amount=amount, lat=lat, lon=lon)

    def _merchant(self, card: _Card) -> str:
        """Honest people, too, buy what thieves like, now and then."""
        choices = THIEVES_MERCHANTS if self._random.random() < 0.02 else card.merchants
        return self._random.choice(choices)

    def _pay(self, due_s: float, use: _Use, merchant: str, attempt: int, *, is_fraud: bool) -> Arrival:
        skew_s = self._card(use.card).skew_s
        begun = round(self._world.start.timestamp() * 1000)
        suffix = f".{attempt}" if attempt else ""
        transaction = Transaction(
            tx_id=f"{self._world.seed:x}-{begun:x}-{self._number:x}{suffix}",
            card_id=f"card-{use.card:08d}",
            amount=use.amount,
            at=self._world.start + timedelta(seconds=use.at_s + skew_s),
            merchant=merchant,
            lat=use.lat,
            lon=use.lon,
        )
        return Arrival(
            due_s=due_s,
            sent_at=self._moment(due_s),
            key=transaction.card_id,
            value=transaction.encode(),
            transaction=transaction,
            is_fraud=is_fraud,
        )

    def _steal(self, now_s: float) -> None:
        if not self._recent:
            return
        card = self._card(self._random.choice(self._recent))
        way = self._random.choice((self._burst, self._burst, self._spree, self._far, self._quiet))
        for use in way(card, now_s):
            heapq.heappush(self._thefts, use)

    def _burst(self, card: _Card, now_s: float) -> Iterator[_Use]:
        for _ in range(self._random.randint(7, 12)):
            now_s += self._random.uniform(0.5, 4.0)
            yield self._theft(card, now_s, median=40.0, place=card.place)

    def _spree(self, card: _Card, now_s: float) -> Iterator[_Use]:
        for _ in range(self._random.randint(4, 6)):
            now_s += self._random.uniform(5.0, 40.0)
            yield self._theft(card, now_s, median=1_900.0, place=card.place)

    def _far(self, card: _Card, now_s: float) -> Iterator[_Use]:
        _name, lat, lon, _hours = self._random.choice(CITIES)
        for _ in range(self._random.randint(1, 3)):
            now_s += self._random.uniform(2.0, 30.0)
            yield self._theft(card, now_s, median=250.0, place=(lat, lon))

    def _quiet(self, card: _Card, now_s: float) -> Iterator[_Use]:
        for _ in range(self._random.randint(1, 2)):
            now_s += self._random.uniform(2.0, 60.0)
            yield self._theft(card, now_s, median=600.0, place=card.place)

    def _theft(self, card: _Card, at_s: float, *, median: float, place: tuple[float, float]) -> _Use:
        lat, lon = _nearby(self._random, place)
        amount = round(self._random.lognormvariate(0, 0.4) * median, 2)
        return _Use(at_s=at_s, card=card.number, amount=amount, lat=lat, lon=lon)

    def _change(self, now_s: float) -> None:
        """A holder gets another tier."""
        if self._recent:
            card = self._card(self._random.choice(self._recent))
            card.tier = self._random.choice(TIERS)
            self._learnt.append(self._profile(card, self._world.start + timedelta(seconds=now_s)))

    def _card(self, number: int) -> _Card:
        card = self._cards.get(number)
        if card is None:
            card = self._cards[number] = self._new_card(number)
            # The bank has known the holder since long before the first payment.
            self._learnt.append(self._profile(card, self._world.start - timedelta(days=1)))
        return card

    def _new_card(self, number: int) -> _Card:
        draw = self._holders
        city, away = draw.randrange(len(CITIES)), draw.randrange(len(CITIES))
        is_away = draw.random() < JOURNEY_SHARE
        return _Card(
            number=number,
            city=city,
            place=CITIES[away if is_away else city][1:3],
            tier=draw.choice(TIERS),
            spends=draw.lognormvariate(0, 0.3) * 22.0,
            merchants=tuple(draw.sample(MERCHANTS, 3)),
            skew_s=draw.uniform(*SKEW_S) if draw.random() < SKEWED_CARD_SHARE else 0.0,
        )

    def _profile(self, card: _Card, since: datetime) -> Profile:
        _name, lat, lon, _hours = CITIES[card.city]
        return Profile(
            card_id=f"card-{card.number:08d}",
            # Every tenth holder has two cards.
            holder_id=f"holder-{card.number - (card.number % 10 == 9):08d}",
            tier=card.tier,
            home_lat=lat,
            home_lon=lon,
            limits=self._limits,
            since=since,
        )

    def _malformed(self, due_s: float) -> Arrival:
        value = self._random.choice((*MALFORMED, b"ahead"))
        if value == b"ahead":
            fields = {"tx_id": "ahead", "card_id": "x", "amount": 1, "lat": 0, "lon": 0}
            ahead = _text(self._moment(due_s) + timedelta(days=365))
            value = json.dumps({**fields, "at": ahead}).encode()
        return Arrival(due_s=due_s, sent_at=self._moment(due_s), key="", value=value, transaction=None)


def _nearby(random: Random, place: tuple[float, float]) -> tuple[float, float]:
    return round(place[0] + random.uniform(-0.05, 0.05), 3), round(place[1] + random.uniform(-0.05, 0.05), 3)


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
