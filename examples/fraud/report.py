"""Batch against stream: how much money thieves get, on the same day of events.

    python examples/fraud/report.py                       # a table
    python examples/fraud/report.py --svg loss.svg        # and a plot

The day is a world of card_world.py, the alerts are those of card_reference.py. A card is blocked when its
first alert after the theft is seen, and what the thief would have paid with it after that is saved. A stream
sees an alert some milliseconds after the transaction; a batch that runs every m minutes sees it at the end of
the m minutes that the transaction is in.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Final

import card_reference as reference
from card_world import Arrival, Arrivals, World

EVERY_MINUTES: Final = (1, 15, 60)
STREAM_LATENCY: Final = timedelta(milliseconds=50)
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What a way to look for fraud costs."""

    name: str
    lost: float
    fraud: float
    """What would be lost if nobody looked."""

    @property
    def share(self) -> float:
        """How much of the fraud succeeds."""
        return self.lost / self.fraud if self.fraud else 0.0


def day_of(seed: int, transaction_count: int) -> list[Arrival]:
    """A day's events."""
    rate = 1_000.0
    speed = DAY.total_seconds() / (transaction_count / rate)
    # About one card in a hundred payments is stolen.
    pause_s = 100 / rate
    world = World(seed=seed, start=START, rate=rate, speed=speed, theft_pause_s=pause_s)
    return list(islice(Arrivals(world), transaction_count))


def seen_by_batch(at: datetime, every: timedelta) -> datetime:
    """When a batch that runs this often sees what happened then."""
    return START + every * math.floor((at - START) / every + 1)


def losses(frauds: Sequence[reference.Transaction], alerts: Iterable[reference.Alert]) -> list[Loss]:
    """What is lost with the stream, with batches, and with nothing."""
    raised: dict[str, list[datetime]] = {}
    for alert in alerts:
        raised.setdefault(alert.card_id, []).append(alert.at)
    stream = {card: [at + STREAM_LATENCY for at in times] for card, times in raised.items()}
    found = [_loss("stream", frauds, stream)]
    for minutes in EVERY_MINUTES:
        every = timedelta(minutes=minutes)
        seen = {card: [seen_by_batch(at, every) for at in times] for card, times in raised.items()}
        found.append(_loss(f"batch every {minutes} min", frauds, seen))
    return [*found, _loss("nobody looks", frauds, {})]


def _loss(
    name: str, frauds: Sequence[reference.Transaction], blocked: Mapping[str, Sequence[datetime]]
) -> Loss:
    begun: dict[str, datetime] = {}
    for fraud in frauds:
        begun[fraud.card_id] = min(fraud.at, begun.get(fraud.card_id, fraud.at))
    lost = [
        fraud
        for fraud in frauds
        # An alert from before the theft was false, and forgiven.
        if not any(begun[fraud.card_id] <= at <= fraud.at for at in blocked.get(fraud.card_id, ()))
    ]
    return Loss(name=name, lost=_money(lost), fraud=_money(frauds))


def _money(transactions: Iterable[reference.Transaction]) -> float:
    return sum(round(one.amount * 100) for one in transactions) / 100


def table(found: Iterable[Loss]) -> str:
    """The losses as a table."""
    lines = ["| | money lost | of all fraud |", "|---|---|---|"]
    return "\n".join(lines + [f"| {one.name} | {one.lost:,.0f} | {one.share:.0%} |" for one in found])


def svg(found: Sequence[Loss]) -> str:
    """The losses as bars."""
    height = 40 * len(found) + 10
    bars = [
        f'<text x="8" y="{40 * n + 30}">{one.name}</text>'
        f'<rect x="150" y="{40 * n + 12}" width="{400 * one.share:.1f}" height="26" fill="#c0392b"/>'
        f'<text x="{160 + 400 * one.share:.1f}" y="{40 * n + 30}">{one.lost:,.0f}</text>'
        for n, one in enumerate(found)
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 {height}" font-family="sans-serif" '
        'font-size="14" fill="currentColor" role="img" aria-label="Money lost by how often one looks">'
    )
    return "\n".join([head, *bars, "</svg>", ""])


def main() -> None:
    """Make a day, judge it, and print what it costs."""
    parser = argparse.ArgumentParser(description="Money lost with batches and with a stream.")
    parser.add_argument("--seed", type=int, default=7, help="the same seed makes the same day (%(default)s)")
    parser.add_argument("--transactions", type=int, default=100_000, help="in the day (%(default)s)")
    parser.add_argument("--svg", type=Path, help="a file to plot to")
    options = parser.parse_args()
    arrivals = day_of(options.seed, options.transactions)
    transactions = [reference.read_transaction(one.value) for one in arrivals]
    profiles = [reference.read_profile(profile.encode()) for one in arrivals for profile in one.profiles]
    model = reference.read_model(Path(__file__).with_name("model.json").read_text())
    alerts = reference.alerts(transactions, profiles, model)
    frauds = [paid for paid, one in zip(transactions, arrivals, strict=True) if one.is_fraud]
    found = losses(frauds, alerts.values())
    print(f"{len(transactions):,} transactions, {len(frauds):,} of them with stolen cards\n")
    print(table(found))
    if options.svg is not None:
        options.svg.write_text(svg(found))


if __name__ == "__main__":
    main()
