"""Card transactions for the fraud example: a small world, the same for the same seed.

    python examples/fraud/generate.py --rate 1000            # live, until Ctrl-C
    python examples/fraud/generate.py --count 10000 --start 2026-01-01T00:00:00Z --seed 3

The world. Honest cards are used now and then, never more than a few times in a minute. Every few seconds a
card is stolen and used in a burst, which is what the rule is there to find. Most transactions are reported
at once; some come late, so event times are slightly out of order. On request a share of the records is
delivered twice, or is malformed in one of the ways that real ones are.

`arrivals` is pure: no clock and no network, only a seed. `main` sends what it yields at its pace.
"""

from __future__ import annotations

import argparse
import heapq
import json
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from random import Random
from types import FrameType

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "transactions"
HONEST_PAUSE_S = 30.0
"""How long an honest card rests between two transactions, on average."""
THEFT_PAUSE_S = 4.0
"""How long it takes, on average, until the next card is stolen."""
BURST_COUNT = (7, 12)
BURST_PAUSE_S = (0.5, 4.0)
LATE_SHARE = 0.05
LATE_S_MAX = 3.0
HOMES = ("DE", "DE", "DE", "DE", "FR", "FR", "FR", "IT", "IT", "NL", "PL")
MERCHANTS = ("grocer", "grocer", "grocer", "bakery", "bakery", "fuel", "pharmacy", "books", "cinema", "shoes")
THIEVES_MERCHANTS = ("electronics", "gift-cards", "jewellery")
MALFORMED = (
    b'{"tx_id": "cut off',
    b"not JSON at all",
    b'{"tx_id": "x", "card_id": "x", "amount": "a lot", "at": "2026-01-01T00:00:00Z"}',
    b'{"card_id": "x", "amount": 1.5, "at": "2026-01-01T00:00:00Z"}',
    b'["an", "array"]',
    b"\xff\xfe\x00",
)
TICK_S_MIN = 0.001
"""The shortest sleep: above 1,000 a second, several records go out at each tick."""
ANSWER_S_MAX = 5.0
FLUSH_S_MAX = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What there is and how it behaves."""

    seed: int
    start: datetime
    rate: float
    card_count: int | None = None
    """None for as many as keep honest cards honest at this rate."""
    theft_pause_s: float = THEFT_PAUSE_S
    duplicate_share: float = 0.0
    malformed_share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One use of a card."""

    tx_id: str
    card_id: str
    amount: float
    at: datetime
    merchant: str
    country: str

    def encode(self) -> bytes:
        """The transaction as it is on the topic: about 150 bytes of JSON."""
        fields = {
            "tx_id": self.tx_id,
            "card_id": self.card_id,
            "amount": self.amount,
            "at": self.at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "merchant": self.merchant,
            "country": self.country,
        }
        return json.dumps(fields, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A record, and when it is sent."""

    due_s: float
    """Seconds after the world's start."""
    key: str
    value: bytes
    transaction: Transaction | None
    """None for a malformed one."""


def arrivals(world: World) -> Iterator[Arrival]:
    """The world's records in the order in which they are sent, without end."""
    random = Random(world.seed)
    card_count = world.card_count or max(100, round(world.rate * HONEST_PAUSE_S))
    cards = Cards(random, card_count, world.theft_pause_s)
    last: Arrival | None = None
    for number in count():
        due_s = number / world.rate
        kind = random.random()
        if kind < world.malformed_share:
            yield Arrival(due_s=due_s, key="", value=random.choice(MALFORMED), transaction=None)
        elif last is not None and kind < world.malformed_share + world.duplicate_share:
            yield replace(last, due_s=due_s)
        else:
            card, is_stolen = cards.draw(due_s)
            last = _use(random, world, number, card, is_stolen=is_stolen)
            yield last


def transactions(world: World, record_count: int) -> list[Transaction]:
    """The transactions among the world's first records, in the order in which they are sent."""
    first = islice(arrivals(world), record_count)
    return [arrival.transaction for arrival in first if arrival.transaction is not None]


class Cards:
    """Which card is used next."""

    def __init__(self, random: Random, card_count: int, theft_pause_s: float) -> None:
        self._random = random
        self._card_count = card_count
        self._theft_pause_s = theft_pause_s
        self._honest = self._honest_uses()
        self._stolen: list[tuple[float, int]] = []
        self._next_theft_s = 0.0

    def draw(self, due_s: float) -> tuple[int, bool]:
        """A card, and whether it is in a thief's hands."""
        if due_s >= self._next_theft_s:
            self._steal(due_s)
        if self._stolen and self._stolen[0][0] <= due_s:
            return heapq.heappop(self._stolen)[1], True
        return next(self._honest), False

    def _steal(self, due_s: float) -> None:
        self._next_theft_s = due_s + self._random.expovariate(1 / self._theft_pause_s)
        card = self._random.randrange(self._card_count)
        for _ in range(self._random.randint(*BURST_COUNT)):
            due_s += self._random.uniform(*BURST_PAUSE_S)
            heapq.heappush(self._stolen, (due_s, card))

    def _honest_uses(self) -> Iterator[int]:
        """Each card in turn, in an order that changes a little each time round: none comes again soon."""
        deck = list(range(self._card_count))
        self._random.shuffle(deck)
        neighbourhood = max(1, self._card_count // 4)
        while True:
            for index in range(self._card_count):
                other = min(self._card_count - 1, index + self._random.randrange(neighbourhood))
                deck[index], deck[other] = deck[other], deck[index]
                yield deck[index]


def _use(random: Random, world: World, number: int, card: int, *, is_stolen: bool) -> Arrival:
    due_s = number / world.rate
    late_s = random.uniform(0, LATE_S_MAX) if random.random() < LATE_SHARE else 0.0
    median = 180.0 if is_stolen else 22.0
    transaction = Transaction(
        tx_id=f"{world.seed:x}-{round(world.start.timestamp() * 1000):x}-{number:x}",
        card_id=f"card-{card:08d}",
        amount=round(random.lognormvariate(0, 0.8) * median, 2),
        at=world.start + timedelta(seconds=due_s - late_s),
        merchant=random.choice(THIEVES_MERCHANTS if is_stolen else MERCHANTS),
        country=HOMES[card % len(HOMES)],
    )
    return Arrival(due_s=due_s, key=transaction.card_id, value=transaction.encode(), transaction=transaction)


class Undelivered(Exception):
    """A record could not be delivered."""


class Sender:
    """Sends arrivals at their pace until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                # What goes wrong is told by `_delivered`; the client's own log would repeat it.
                "log_level": 0,
            }
        )
        self._stopped = False
        self._failure: str | None = None
        self.sent_count = 0

    def stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """Send no more. May be called by a signal."""
        self._stopped = True

    def send(self, stream: Iterator[Arrival], *, paced: bool) -> None:
        """Send the arrivals and wait until the broker has them."""
        begin_s = time.monotonic()
        for arrival in stream:
            if self._stopped:
                break
            if paced:
                self._wait_until(begin_s + arrival.due_s)
            self._produce(arrival)
            if self._failure is not None:
                raise Undelivered(self._failure)
        if self._producer.flush(FLUSH_S_MAX) or self._failure:
            raise Undelivered(self._failure or f"the broker did not answer within {FLUSH_S_MAX:.0f} s")

    def _wait_until(self, due_s: float) -> None:
        while not self._stopped and (ahead_s := due_s - time.monotonic()) > 0:
            self._producer.poll(0)
            time.sleep(max(ahead_s, TICK_S_MIN))

    def _produce(self, arrival: Arrival) -> None:
        while not self._stopped:
            try:
                self._producer.produce(TOPIC, arrival.value, arrival.key or None, on_delivery=self._delivered)
            except BufferError:
                # The broker is slower than we are: wait for it, then try again.
                self._producer.poll(0.1)
            else:
                self.sent_count += 1
                return

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failure = error.str()


def create_topic(bootstrap: str, partition_count: int) -> None:
    """Create the topic unless it is there."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        if TOPIC not in client.list_topics(timeout=ANSWER_S_MAX).topics:
            client.create_topics([NewTopic(TOPIC, num_partitions=partition_count)])[TOPIC].result()
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise SystemExit(
                f"error: no broker answers at {bootstrap} ({reason.str()}): start one with "
                "`headrace broker`, or name another with --bootstrap"
            ) from error


def main() -> None:
    """Read the options, create the topic, send."""
    options = _options()
    create_topic(options.bootstrap, options.partitions)
    sender = Sender(options.bootstrap)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, sender.stop)
    world = World(
        seed=options.seed,
        start=options.start or datetime.now(UTC),
        rate=options.rate,
        card_count=options.cards,
        theft_pause_s=options.theft_pause,
        duplicate_share=options.duplicates,
        malformed_share=options.malformed,
    )
    print(f"producing {options.rate:g} transactions a second to {TOPIC} at {options.bootstrap}", flush=True)
    try:
        sender.send(islice(arrivals(world), options.count), paced=not options.fast)
    except Undelivered as error:
        sys.exit(f"error: transactions could not be delivered to {options.bootstrap}: {error}")
    print(f"produced {sender.sent_count} records", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Produce card transactions for the fraud example.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="the broker (%(default)s)")
    parser.add_argument("--rate", type=_positive, default=200.0, help="records a second (%(default)s)")
    parser.add_argument(
        "--seed", type=int, default=7, help="the same seed makes the same world (%(default)s)"
    )
    parser.add_argument("--count", type=int, help="stop after so many records")
    parser.add_argument(
        "--partitions", type=int, default=2, help="if the topic must be created (%(default)s)"
    )
    parser.add_argument("--cards", type=int, help="how many cards there are (depends on the rate)")
    parser.add_argument(
        "--theft-pause",
        type=_positive,
        default=THEFT_PAUSE_S,
        help="seconds from one theft to the next, on average (%(default)s)",
    )
    parser.add_argument("--start", type=_instant, help="event time of the first record (now)")
    parser.add_argument("--duplicates", type=_share, default=0.0, help="share of records sent twice")
    parser.add_argument("--malformed", type=_share, default=0.0, help="share of malformed records")
    parser.add_argument("--fast", action="store_true", help="don't wait: as fast as the broker takes them")
    return parser.parse_args()


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("must be between 0 and 1")
    return value


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


if __name__ == "__main__":
    main()
