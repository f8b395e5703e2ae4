"""From a producer to an alert that a consumer sees: examples/fraud in both modes, and Quix Streams.

    python bench/latency/fraud.py --quix VENV/bin/python              # 12 minutes of each, an hour in all
    python bench/latency/fraud.py --only realtime --minutes 1         # only to see that it works
    python bench/latency/fraud.py --only realtime --highest           # the highest rate below 500 ms p99

1,000 transactions a second of 10,000 cards. Each part is a process of its own: a broker,
the generator, what judges, and this one, which consumes the alerts. An alert is as old as the record that
made it fire: from the moment that the producing client has stamped it with, to the moment that its alert has
been read here. Only the first sighting of an alert counts. Exactly-once results are read as committed.

Measuring starts after `--warm-up` seconds, by default enough for a first batch to end, and in real-time mode
goes on until at least `--boundaries` more have, because state is checkpointed there and events wait. Then the
generator is stopped, and the alerts must be those of card_reference.py on the same log (see answers.py), or
the benchmark fails.

10,000 cards with 1,000 transactions a second are busy ones: 6 a minute each. So that honest cards raise no
alerts, the limit of the velocity rule is 12 here (set as a user would, by `fraud-rules`), and the model was
trained by train.py on 150,000 transactions of this world. All else is the example as it is.

Quix Streams keeps the same history for each card, and computes the same rules in plain Python, at least once,
as real-time mode does (plain_rules.py, quix_fraud.py). It computes the alerts only; `headrace run` also
writes late transactions and the status of cards, as in the demo.

The highest rate is found with fresh processes for each rate, and 10 cards for each transaction a second, so
that a card is used as often at every rate.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, get_args

# The reference and the model are the example's.
sys.path.append(str(Path(__file__).parents[2] / "examples" / "fraud"))

from alert_reader import AlertReader
from answers import TOLD_MAX, Compared, compare, expected
from headrace.config import Durability
from highest import search
from platform_run import Load, Platform, Way, running

NAMES: Final[dict[Way, str]] = {
    "realtime": "real-time mode, at least once",
    "micro-batch": "micro-batches, exactly once",
    "quix": "Quix Streams, at least once",
}
QUANTILES: Final = (0.5, 0.95, 0.99, 0.999, 1.0)
P99_MS_MAX: Final = 500.0
SETTLE_S_MAX: Final = 120.0
WARM_UP_S: Final = 120
"""Of each rate that is tried."""
WARM_UP_AFTER_BATCH_S: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to measure."""

    ways: tuple[Way, ...]
    load: Load
    minutes: float
    warm_up_s: int
    boundaries: int
    quix: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run."""

    way: Way
    ages_ms: list[float]
    """Sorted."""
    boundary_count: int
    seconds: float
    compared: Compared | None = None

    def quantile(self, q: float) -> float:
        """What a share q of the alerts was not older than."""
        return self.ages_ms[min(len(self.ages_ms) - 1, int(q * len(self.ages_ms)))]


def measure(options: Options, way: Way, load: Load, *, compares: bool) -> Measured:
    """One run in a fresh directory with fresh processes."""
    with running(way, load, options.quix) as platform:
        reader = AlertReader(platform.bootstrap)
        try:
            reader.read_for(options.warm_up_s)
            begin_s, first_batch = time.monotonic(), platform.batch_count()
            ages_ms = _read(reader, options, way, platform)
            seconds, boundaries = time.monotonic() - begin_s, platform.batch_count() - first_batch
            if not ages_ms:
                raise SystemExit(f"error: {NAMES[way]} raised no alert in {seconds:.0f} s")
            compared = settle(reader, platform) if compares else None
        finally:
            reader.close()
    return Measured(
        way=way,
        ages_ms=sorted(ages_ms),
        boundary_count=0 if way == "quix" else boundaries,
        seconds=seconds,
        compared=compared,
    )


def _read(reader: AlertReader, options: Options, way: Way, platform: Platform) -> list[float]:
    first_batch, checked_s = platform.batch_count(), time.monotonic()

    def enough() -> bool:
        nonlocal checked_s
        if way != "realtime":
            platform.check()
            return True
        # Looking takes a moment, in which an alert may wait.
        if time.monotonic() < checked_s + 1:
            return False
        checked_s = time.monotonic()
        platform.check()
        return platform.batch_count() >= first_batch + options.boundaries

    return reader.read_for(options.minutes * 60, enough)


def settle(reader: AlertReader, platform: Platform) -> Compared:
    """Stop sending, and wait until all alerts are as they must be; or say how they differ."""
    platform.stop_sending()
    wanted = expected(platform.bootstrap, platform.model)
    deadline_s = time.monotonic() + SETTLE_S_MAX
    while (compared := compare(reader.versions, wanted)).different and time.monotonic() < deadline_s:
        reader.read_for(2.0)
    return compared


def stays_below(options: Options, way: Way, cards_per_rate: float) -> Callable[[int], bool]:
    """Whether a rate keeps the p99 below P99_MS_MAX, by measuring it."""

    def probe(rate: int) -> bool:
        load = replace(options.load, rate=rate, cards=round(cards_per_rate * rate))
        measured = measure(options, way, load, compares=False)
        p50, p99 = measured.quantile(0.5), measured.quantile(0.99)
        say(f"{NAMES[way]}: {rate:,}/s: p50 {p50:,.0f} ms, p99 {p99:,.0f} ms")
        return p99 < P99_MS_MAX

    return probe


def table(load: Load, rows: Sequence[Measured]) -> str:
    """The table of docs/benchmarks.md."""
    lines = [
        f"{load.rate:,} transactions/s, {load.cards:,} cards, batches of {load.batch_s} s, {load.durability}",
        "",
        "| | minutes | alerts | batch ends | p50 ms | p95 ms | p99 ms | p99.9 ms | max ms | right |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ages = " | ".join(f"{row.quantile(q):,.0f}" for q in QUANTILES)
        same = f"{row.compared.same:,} of {row.compared.count:,}" if row.compared else ""
        lines.append(
            f"| {NAMES[row.way]} | {row.seconds / 60:.1f} | {len(row.ages_ms):,} | {row.boundary_count} "
            f"| {ages} | {same} |"
        )
    return "\n".join(lines)


def say(line: str) -> None:
    """Tell how it goes."""
    print(line, flush=True)


def parse_options(arguments: Sequence[str]) -> tuple[Options, bool]:
    """Read the command line; also whether the highest rate is to be found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--only", action="append", choices=get_args(Way), help="measure this (can be given several times)")
    add("--quix", help="the interpreter of an environment with quixstreams; without it, that is left out")
    add("--minutes", type=float, help="how long to measure (12; with --highest, 5 for each rate)")
    add("--warm-up", type=int, help="seconds before measuring starts (a batch and 30 s; with --highest, 120)")
    add("--boundaries", type=int, default=2, help="batch ends that real-time mode must cover (%(default)s)")
    add("--batch", type=int, default=300, help="seconds that a real-time batch lasts (%(default)s)")
    add(
        "--rate", type=int, default=1000, help="transactions a second; the first with --highest (%(default)s)"
    )
    add("--durability", default="sync", choices=get_args(Durability), help="of the broker (%(default)s)")
    add("--cards", type=int, default=10_000, help="how many there are at that rate (%(default)s)")
    add("--highest", action="store_true", help="find the highest rate that stays below 500 ms p99")
    read = parser.parse_args(arguments)
    usual: tuple[Way, ...] = ("realtime", "micro-batch", *(("quix",) if read.quix else ()))
    options = Options(
        ways=tuple(read.only or usual),
        load=Load(rate=read.rate, cards=read.cards, batch_s=read.batch, durability=read.durability),
        minutes=read.minutes or (5 if read.highest else 12),
        warm_up_s=_warm_up_s(read.warm_up, read.batch, is_search=read.highest),
        boundaries=0 if read.highest else read.boundaries,
        quix=read.quix,
    )
    return options, read.highest


def _warm_up_s(given: int | None, batch_s: int, *, is_search: bool) -> int:
    if given is not None:
        return given
    return WARM_UP_S if is_search else batch_s + WARM_UP_AFTER_BATCH_S


def find_highest(options: Options) -> None:
    """Find the highest rate of each way, and print them."""
    cards_per_rate = options.load.cards / options.load.rate
    rows = []
    for way in options.ways:
        found = search(options.load.rate, stays_below(options, way, cards_per_rate))
        rows.append(f"| {NAMES[way]} | {found} |")
    say("\n".join(["", "| | transactions/s below 500 ms p99 |", "|---|---|", *rows]))


def main() -> None:
    """Measure one way after the other."""
    options, is_search = parse_options(sys.argv[1:])
    if is_search:
        find_highest(options)
        return
    rows = []
    for way in options.ways:
        measured = measure(options, way, options.load, compares=True)
        rows.append(measured)
        p50, p99 = measured.quantile(0.5), measured.quantile(0.99)
        say(f"{NAMES[way]}: {len(measured.ages_ms):,} alerts, p50 {p50:,.1f} ms, p99 {p99:,.1f} ms")
    say(f"\n{table(options.load, rows)}")
    different = [line for row in rows if row.compared for line in row.compared.different[:TOLD_MAX]]
    if different:
        sys.exit("\n".join(["error: some alerts are not those of the reference:", *different]))


if __name__ == "__main__":
    main()
