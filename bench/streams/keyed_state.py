"""Keyed rules in Python: `hr.keyed`, vectorised and per event, beside Spark's own transformWithState per key.

    python bench/streams/keyed_state.py                             # 2 million events, 3 runs each
    python bench/streams/keyed_state.py --share 0.02 --runs 1       # only to see that it works
    python bench/streams/keyed_state.py --only vectorised

Card transactions as JSON, 1 in 100 of them out of order, in a topic of four partitions of a broker process
(durability sync), are judged by what was seen of the card: how many there were in the last minute, how much
was spent in the last ten, and how fast the card would have had to travel. A transaction that comes late
counts as of the newest time of its card. Those that are suspicious, about 1 in 100, are written to another
topic: by us exactly once, by Spark at least once, which is what its sink can.

Each way runs in a process of its own: once over a tenth of the events to warm up, then `--runs` times, from
the start of its query to the last batch. "Steady" are all batches but the first, in which everything is
started. The alerts of each run are compared with those of a loop over dicts, and the benchmark fails where
they differ. The vectorised way runs also with ten times as many cards. Spark's own operator runs in three
forms: with a list of transactions for each card, which is what it has for this; with all that is kept of a
card packed into one value by hand, which is its best; and with a value that is read and written for each
event, on a quarter of the events.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from pyspark import cloudpickle
from pyspark.sql import SparkSession

import headrace.streams as hr
import keyed_rules
from cards import (
    CARDS,
    PARTITIONS,
    SCHEMA,
    Build,
    Ran,
    await_rows,
    fill,
    read_values,
    reports_of,
    reports_of_spark,
    start_pipeline,
    start_plain,
)
from headrace.config import StreamsConfig
from headrace.streams.admin import ensure_topics
from headrace.testing.process import BrokerProcess
from keyed_rules import (
    Alert,
    by_event,
    list_of_transactions,
    packed_value,
    reference,
    value_for_each_event,
    vectorised,
)
from sessions import apart, our_session, plain_session, use_state_of_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One row of the table."""

    name: str
    rules: Build
    cards: int = CARDS
    is_plain: bool = False
    """Whether it is what a user of Spark alone would write, in a session as Spark comes."""
    share: float = 1.0
    """Of the events: a way that is slow need not run for half an hour."""


WAYS: Final = (
    Way(name="hr.keyed, vectorised", rules=vectorised),
    Way(name="hr.keyed, per event", rules=by_event),
    Way(name="hr.keyed, vectorised, ten times as many cards", rules=vectorised, cards=10 * CARDS),
    Way(name="transformWithState, a list for each card", rules=list_of_transactions, is_plain=True),
    Way(name="transformWithState, a packed value for each card", rules=packed_value, is_plain=True),
    Way(name="transformWithState, event by event", rules=value_for_each_event, is_plain=True, share=0.25),
)
OURS, _, MANY, PEER, _, _ = (way.name for way in WAYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how much."""

    bootstrap: str
    home: Path
    events: int
    batch: int
    runs: int

    def of(self, way: Way) -> Setting:
        """What one way is measured with."""
        return replace(self, events=round(self.events * way.share), batch=round(self.batch * way.share))

    def topic(self, way: Way) -> str:
        """Where its events are."""
        return f"cards-{way.cards}-{self.of(way).events}"

    @property
    def warm_up_count(self) -> int:
        """How many events of the run before those that are measured."""
        return max(1000, self.events // 10)


def run_ours(way: Way, session: SparkSession, setting: Setting, name: str, events: tuple[str, int]) -> Ran:
    """Run a pipeline to the end of a topic."""
    source, count = events
    config = StreamsConfig(bootstrap=setting.bootstrap, data_dir=setting.home / name)
    topic = hr.topic(source, schema=SCHEMA, partitions=PARTITIONS, max_records_per_batch=setting.batch)
    begin_s = time.perf_counter()
    queries = start_pipeline(session, config, topic, way.rules)
    ran = await_rows(count, partial(reports_of, queries), begin_s)
    queries.stop()
    return ran


def run_plain(way: Way, session: SparkSession, setting: Setting, name: str, events: tuple[str, int]) -> Ran:
    """The same by what a user of Spark writes."""
    source, count = events
    config = StreamsConfig(bootstrap=setting.bootstrap, data_dir=setting.home / name)
    use_state_of_keys(session)
    begin_s = time.perf_counter()
    query = start_plain(session, config, source, way.rules, batch=setting.batch)
    ran = await_rows(count, partial(reports_of_spark, query), begin_s)
    query.stop()
    return ran


def read_alerts(bootstrap: str, topic: str) -> Counter[Alert]:
    """All that was written."""
    told = map(json.loads, read_values(bootstrap, topic))
    return Counter((each["card"], each["tx"], each["seen"], each["spent"], each["speed"]) for each in told)


def measure(setting: Setting, way: Way) -> list[float]:
    """Events a second of each run of one way, in this process; exits where its alerts are wrong."""
    # Workers can't import what lies here.
    cloudpickle.register_pickle_by_value(keyed_rules)  # type: ignore[no-untyped-call] # it has no types
    slug = "".join(letter if letter.isalnum() else "-" for letter in way.name.lower())
    config = StreamsConfig(bootstrap=setting.bootstrap, data_dir=setting.home / slug)
    source, setting = setting.topic(way), setting.of(way)
    expected = reference(setting.events, way.cards)
    rates = []
    with (plain_session if way.is_plain else our_session)(config) as session:
        run = partial(run_plain if way.is_plain else run_ours, way, session, setting)
        run(f"{slug}-0", ("warm-up", setting.warm_up_count))
        for number in range(setting.runs):
            name = f"{slug}-{number + 1}"
            ran = run(name, (source, setting.events))
            check(name, read_alerts(setting.bootstrap, name), expected)
            rates.append(ran.steady_rate)
    print(f"{way.name}: {expected.total():,} alerts, exact; {rates}", file=sys.stderr)
    return rates


def check(name: str, found: Counter[Alert], expected: Counter[Alert]) -> None:
    """Exit where the alerts are not those of the reference."""
    missing, more = expected - found, found - expected
    if missing or more:
        sys.exit(
            f"{name}: {missing.total()} alerts are missing, {more.total()} are too many, such as "
            f"{[*missing][:3]} and {[*more][:3]}"
        )


def report(rates: dict[str, list[float]]) -> None:
    """Print the table."""
    steady = {name: statistics.median(each) for name, each in rates.items()}
    print("| way | steady events/s | beside a list |\n|---|---|---|")
    for name, runs in rates.items():
        beside = f"{steady[name] / steady[PEER]:.1f}x" if PEER in steady else "-"
        print(f"| {name} | {steady[name]:,.0f} ({min(runs):,.0f} to {max(runs):,.0f}) | {beside} |")
    if OURS in steady and MANY in steady:
        print(f"\nten times as many cards cost {steady[OURS] / steady[MANY]:.2f}x as much an event")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of 2 million events, 500,000 a batch")
    parser.add_argument("--batch", type=int, help="events of a batch")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="ways whose names have this in them")
    options = parser.parse_args()
    ways = [way for way in WAYS if options.only in way.name]
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as home,
        BrokerProcess(Path(home) / "broker") as server,
    ):
        setting = Setting(
            bootstrap=server.bootstrap,
            home=Path(home),
            events=round(2_000_000 * options.share),
            batch=options.batch or round(500_000 * options.share),
            runs=options.runs,
        )
        config = StreamsConfig(bootstrap=server.bootstrap)
        counts = {setting.topic(way): (setting.of(way).events, way.cards) for way in ways}
        for topic, (count, cards) in (counts | {"warm-up": (setting.warm_up_count, CARDS)}).items():
            ensure_topics(config, {topic: PARTITIONS})
            fill(server.bootstrap, topic, count, cards)
        rates = {way.name: apart(partial(measure, setting, way)) for way in ways}
    print(
        f"{setting.events:,} events, {setting.batch:,} a batch, {setting.runs} runs each: median and range\n"
    )
    report(rates)


if __name__ == "__main__":
    main()
