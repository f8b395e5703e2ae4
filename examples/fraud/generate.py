"""Send the world of card_world.py to its topics, live.

    python examples/fraud/generate.py --rate 1000            # until Ctrl-C
    python examples/fraud/generate.py --speed 1440           # yesterday, in a minute
    python examples/fraud/generate.py --count 10000 --start 2026-01-01T00:00:00Z --seed 3 --fast

Beside the transactions come the holders' profiles, each before the first transaction that it is about, and
what turned out to be fraud (`fraud-labels`).

While it runs it listens. `fraud-control`, key `world`: `{"rate": 300, "late_share": 0.1}` changes how many
records a second there are, and how many of them come late. `fraud-rules`, key `rules`: `{"count_max": 5,
"total_max": 5000, "kmh_max": 500}` changes the thresholds of the rules: they are part of every profile, so a
new version of each goes out. What a message leaves out stays as it is; one that can't be read is told and
skipped.

Records have the producer's clock as their timestamp; with `--start`, `--speed` or `--fast` they have the
world's, because there is no other clock that would fit.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import FrameType
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from card_world import CARD_COUNT, LATE_SHARE, THEFT_PAUSE_S, Arrival, Arrivals, Limits, Profile, World

TRANSACTIONS: Final = "transactions"
PROFILES: Final = "card-profiles"
LABELS: Final = "fraud-labels"
CONTROL: Final = "fraud-control"
RULES: Final = "fraud-rules"
TABLES: Final = (PROFILES, "card-status")
"""Topics of which only the last record of each key counts."""
STREAMS: Final = (TRANSACTIONS, "transactions.late", "fraud-alerts", LABELS)
RATE_MAX: Final = 5_000.0
TICK_S_MIN: Final = 0.001
"""The shortest sleep: above 1,000 a second, several records go out at each tick."""
LISTEN_EVERY_S: Final = 0.2
BEHIND_S_MAX: Final = 2.0
"""Who can't send as fast as was asked for leaves out what should have been sent longer ago than this."""
ANSWER_S_MAX: Final = 5.0
FLUSH_S_MAX: Final = 30.0


class Undelivered(Exception):
    """A record could not be delivered."""


class Unreadable(Exception):
    """A message that should change something says nothing that could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What is to change; None for what stays."""

    rate: float | None = None
    late_share: float | None = None


def read_control(value: bytes) -> Control:
    """What a message of `fraud-control` asks for."""
    fields = _fields(value)
    return Control(rate=_number(fields, "rate", 1, RATE_MAX), late_share=_number(fields, "late_share", 0, 1))


def read_limits(value: bytes, present: Limits) -> Limits:
    """The thresholds after a message of `fraud-rules`."""
    fields = _fields(value)
    count_max = _number(fields, "count_max", 1, 1_000)
    total_max = _number(fields, "total_max", 1, 1e9)
    kmh_max = _number(fields, "kmh_max", 1, 1e6)
    return replace(
        present,
        count_max=present.count_max if count_max is None else int(count_max),
        total_max=present.total_max if total_max is None else total_max,
        kmh_max=present.kmh_max if kmh_max is None else kmh_max,
    )


def _fields(value: bytes) -> Mapping[str, Any]:
    try:
        fields = json.loads(value)
    except ValueError as error:
        raise Unreadable(f"it is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise Unreadable("it is no JSON object")
    return fields


def _number(fields: Mapping[str, Any], name: str, smallest: float, largest: float) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not smallest <= value <= largest:
        raise Unreadable(f"{name} is {value!r}; use a number from {smallest:g} to {largest:g}")
    return float(value)


class Sender:
    """Sends arrivals at their pace until it is stopped."""

    def __init__(self, bootstrap: str, *, world_clock: bool) -> None:
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
        self._world_clock = world_clock
        self._stopped = False
        self._failure: str | None = None
        self.sent_count = 0

    def stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """Send no more. May be called by a signal."""
        self._stopped = True

    def send(self, arrivals: Iterable[Arrival]) -> None:
        """Send as fast as the broker takes it, and wait until it has it all."""
        for arrival in arrivals:
            if self._stopped:
                break
            self._send(arrival)
        self._flush()

    def send_live(self, arrivals: Arrivals, control: ControlReader, count: int | None) -> None:
        """Send each when it is due, and listen for changes meanwhile."""
        begin_s, listen_s = time.monotonic(), 0.0
        while not self._stopped and (count is None or self.sent_count < count):
            now_s = time.monotonic()
            if now_s >= listen_s:
                listen_s = now_s + LISTEN_EVERY_S
                for profile in control.apply(arrivals):
                    self._send_profile(profile, None)
                arrivals.catch_up(now_s - begin_s, behind_s_max=BEHIND_S_MAX)
            arrival = next(arrivals)
            self._wait_until(begin_s + arrival.due_s)
            self._send(arrival)
        self._flush()

    def _wait_until(self, due_s: float) -> None:
        while not self._stopped and (ahead_s := due_s - time.monotonic()) > 0:
            self._producer.poll(0)
            time.sleep(max(ahead_s, TICK_S_MIN))

    def _send(self, arrival: Arrival) -> None:
        timestamp_ms = _epoch_ms(arrival.sent_at) if self._world_clock else None
        for profile in arrival.profiles:
            self._send_profile(profile, timestamp_ms)
        self._produce(TRANSACTIONS, arrival.key, arrival.value, timestamp_ms)
        self.sent_count += 1
        if arrival.is_fraud and arrival.transaction is not None:
            paid = arrival.transaction
            label = {"tx_id": paid.tx_id, "card_id": paid.card_id, "is_fraud": True, "amount": paid.amount}
            self._produce(LABELS, paid.tx_id, json.dumps(label).encode(), timestamp_ms)
        if self._failure is not None:
            raise Undelivered(self._failure)

    def _send_profile(self, profile: Profile, timestamp_ms: int | None) -> None:
        self._produce(PROFILES, profile.card_id, profile.encode(), timestamp_ms)

    def _produce(self, topic: str, key: str, value: bytes, timestamp_ms: int | None) -> None:
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key or None,
                    on_delivery=self._delivered,
                    # 0 stands for the client's own clock.
                    timestamp=timestamp_ms or 0,
                )
            except BufferError:
                # The broker is slower than we are: wait for it, then try again.
                self._producer.poll(0.1)
            else:
                return

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failure = error.str()

    def _flush(self) -> None:
        if self._producer.flush(FLUSH_S_MAX) or self._failure:
            raise Undelivered(self._failure or f"the broker did not answer within {FLUSH_S_MAX:.0f} s")


class ControlReader:
    """Listens to what should change."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "fraud-generator",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in (CONTROL, RULES)])

    def apply(self, arrivals: Arrivals) -> list[Profile]:
        """Change what was asked for since the last call; returns the profiles that are new for it."""
        profiles: list[Profile] = []
        for message in self._consumer.consume(100, timeout=0):
            value = message.value()
            # An error is one of the connection: it comes back by itself.
            if message.error() is not None or value is None:
                continue
            try:
                if message.topic() == RULES:
                    profiles += arrivals.set_limits(read_limits(value, arrivals.limits))
                else:
                    _change(arrivals, read_control(value))
            except Unreadable as error:
                print(f"skipped a message of {message.topic()}: {error}", file=sys.stderr, flush=True)
        return profiles

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()


def _change(arrivals: Arrivals, control: Control) -> None:
    if control.rate is not None:
        arrivals.rate = control.rate
    if control.late_share is not None:
        arrivals.late_share = control.late_share


def create_topics(bootstrap: str, partition_count: int) -> None:
    """Create the topics of the example, unless they are there."""
    compacted = {"cleanup.policy": "compact"}
    wanted = [
        *(NewTopic(name, num_partitions=partition_count) for name in STREAMS),
        *(NewTopic(name, num_partitions=partition_count, config=compacted) for name in TABLES),
        *(NewTopic(name, num_partitions=1, config=compacted) for name in (CONTROL, RULES)),
    ]
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        there = client.list_topics(timeout=ANSWER_S_MAX).topics
        missing = [topic for topic in wanted if topic.topic not in there]
        created = client.create_topics(missing) if missing else {}
        for future in created.values():
            _await_created(future)
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        raise SystemExit(
            f"error: no broker answers at {bootstrap} ({reason.str()}): start one with "
            "`headrace broker`, or name another with --bootstrap"
        ) from error


def _await_created(future: Any) -> None:
    try:
        future.result()
    except KafkaException as error:
        # Somebody else may have created it since we looked.
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def main() -> None:
    """Read the options, create the topics, send."""
    options = _options()
    create_topics(options.bootstrap, options.partitions)
    if options.topics_only:
        return
    is_live = options.start is None and options.speed == 1 and not options.fast
    sender = Sender(options.bootstrap, world_clock=not is_live)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, sender.stop)
    arrivals = Arrivals(_world(options))
    print(
        f"producing {options.rate:g} transactions a second to {TRANSACTIONS} at {options.bootstrap}",
        flush=True,
    )
    try:
        if options.fast:
            sender.send(islice(arrivals, options.count))
        else:
            control = ControlReader(options.bootstrap)
            sender.send_live(arrivals, control, options.count)
            control.close()
    except Undelivered as error:
        sys.exit(f"error: transactions could not be delivered to {options.bootstrap}: {error}")
    print(f"produced {sender.sent_count} records", flush=True)


def _world(options: argparse.Namespace) -> World:
    now = datetime.now(UTC)
    return World(
        seed=options.seed,
        start=options.start or (now if options.speed == 1 else now - timedelta(days=1)),
        rate=options.rate,
        speed=options.speed,
        card_count=options.cards,
        theft_pause_s=options.theft_pause,
        late_share=options.late,
        duplicate_share=options.duplicates,
        malformed_share=options.malformed,
        sleepless=options.sleepless,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Produce card transactions for the fraud example.")
    add = parser.add_argument
    add("--bootstrap", default="127.0.0.1:9092", help="the broker (%(default)s)")
    add("--rate", type=_positive, default=200.0, help="records a second (%(default)s)")
    add("--seed", type=int, default=7, help="the same seed makes the same world (%(default)s)")
    add("--count", type=int, help="stop after so many records")
    add("--partitions", type=int, default=2, help="of topics that must be created (%(default)s)")
    add("--cards", type=int, default=CARD_COUNT, help="how many cards there are (%(default)s)")
    add(
        "--theft-pause",
        type=_positive,
        default=THEFT_PAUSE_S,
        help="seconds from one theft to the next, on average (%(default)s)",
    )
    add("--sleepless", action="store_true", help="let holders pay around the clock, each as often")
    add("--start", type=_instant, help="event time of the first record (now; with --speed, a day ago)")
    add("--speed", type=_positive, default=1.0, help="how much faster event time goes (%(default)s)")
    add("--late", type=_share, default=LATE_SHARE, help="share of transactions that come late (%(default)s)")
    add("--duplicates", type=_share, default=0.0, help="share of records sent twice")
    add("--malformed", type=_share, default=0.0, help="share of malformed records")
    add("--fast", action="store_true", help="don't wait: as fast as the broker takes them")
    add("--topics-only", action="store_true", help="create the topics, send nothing")
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


def _epoch_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


if __name__ == "__main__":
    main()
