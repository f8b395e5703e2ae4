"""A pattern over 10,000 cards: `hr.match`, three small payments and then a large one within five minutes.

    python bench/streams/patterns.py                                # 2 million events, 3 runs each
    python bench/streams/patterns.py --share 0.02 --runs 1          # only to see that it works
    python bench/streams/patterns.py --flink VENV/bin/python        # also Flink SQL, which is installed there

Card transactions as JSON, 1 in 100 of them out of order, in a topic of four partitions of a broker process
(durability sync); what is found is written exactly once to another topic. It is searched for as rows that
follow each other, with conditions that ask for the match so far, and with other rows between.

Each way runs in a process of its own: once over a tenth of the events to warm up, then `--runs` times, from
the start of its query to the last batch. "Steady" are all batches but the first, in which everything is
started. What is found is compared with what a loop over each card's transactions finds, and the benchmark
fails where they differ. The first way runs also with ten times as many cards.

Flink SQL looks for the same with MATCH_RECOGNIZE, for rows that follow each other: with two tasks, without
checkpoints, at least once, to the end of the topic. It has no batches, so that of its runs, which a shorter
one warms up, the whole is measured, from submitting the job, for which it starts a cluster in its process, to
the job's end: compare it with the whole of ours, which has its query's start in it, but not Spark's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from cards import (
    CARDS,
    DISORDER_MS,
    PARTITIONS,
    SCHEMA,
    Ran,
    await_rows,
    fill,
    partition_of,
    read_values,
    reports_of,
    start_pipeline,
    transactions,
)
from flink_connector import connector
from headrace.config import StreamsConfig
from headrace.streams.admin import ensure_topics
from headrace.testing.process import BrokerProcess
from sessions import our_session

SMALL_CENTS: Final = 5_000
LARGE_CENTS: Final = 60_000
WITHIN_MS: Final = 300_000

Found = tuple[int, ...]
"""The numbers of the transactions of a match."""
Payment = tuple[int, int, int]
"""When, which, and how much."""


def larger(row: Mapping[str, Any], match: hr.MatchSoFar) -> bool:
    """Whether it is more than a hundred times what was tried before."""
    return bool(row["cents"] > 100 * (match.mean("cents", "probe") or 0))


def searched(events: DataFrame, contiguity: Any, big: Any) -> DataFrame:
    """What is found."""
    return hr.match(
        events.withColumn("at", F.timestamp_millis("at_ms")),
        by="card",
        order_by="at",
        watermark=f"{DISORDER_MS} milliseconds",
        pattern="probe{3} big",
        define={"probe": F.col("cents") < SMALL_CENTS, "big": big},
        within=f"{WITHIN_MS} milliseconds",
        contiguity=contiguity,
        late=hr.drop,
        cut_off=hr.drop,
    )


def strict(events: DataFrame) -> DataFrame:
    """Four transactions that follow each other."""
    return searched(events, "strict", F.col("cents") > LARGE_CENTS)


def relative(events: DataFrame) -> DataFrame:
    """The same, where the last is large beside the others."""
    return searched(events, "strict", (F.col("cents") > LARGE_CENTS, larger))


def relaxed(events: DataFrame) -> DataFrame:
    """Four transactions with any others between them."""
    return searched(events, "relaxed", F.col("cents") > LARGE_CENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One row of the table."""

    name: str
    build: Callable[[DataFrame], DataFrame]
    cards: int = CARDS
    flink: str | None = None
    """The name of the pattern, where Flink SQL looks for it."""


WAYS: Final = (
    Way(name="one after the other", build=strict),
    Way(name="one after the other, ten times as many cards", build=strict, cards=10 * CARDS),
    Way(name="the last beside the mean of the others, in Python", build=relative),
    Way(name="others between them", build=relaxed),
    Way(name="Flink SQL, one after the other", build=strict, flink="strict"),
    Way(name="Flink SQL, the last beside the mean of the others", build=relative, flink="relative"),
)
OURS, MANY = WAYS[0].name, WAYS[1].name


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how much."""

    bootstrap: str
    home: Path
    events: int
    batch: int
    runs: int
    flink: str | None

    @property
    def warm_up_count(self) -> int:
        """How many events of the run before those that are measured."""
        return max(1000, self.events // 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Events a second of one run."""

    whole: float
    steady: float | None
    """None where there are no batches."""


def reference(way: Way, count: int) -> set[Found]:
    """What a loop over each card's transactions finds, up to the last watermark; to the end, if by Flink."""
    by_card: dict[str, list[Payment]] = defaultdict(list)
    newest: dict[int, int] = defaultdict(int)
    for number, card, cents, _lat, _lon, at_ms in transactions(count, way.cards):
        by_card[card].append((at_ms, number, cents))
        newest[partition_of(card)] = max(newest[partition_of(card)], at_ms)
    watermark_ms = min(newest.values()) - DISORDER_MS if way.flink is None else max(newest.values()) + 1
    found: set[Found] = set()
    for payments in by_card.values():
        complete = sorted(each for each in payments if each[0] < watermark_ms)
        if way.build is relaxed:
            complete = [each for each in complete if each[2] < SMALL_CENTS or each[2] > LARGE_CENTS]
        found.update(_matches(complete, way))
    return found


def _matches(payments: Sequence[Payment], way: Way) -> Iterator[Found]:
    begin = 0
    while begin < len(payments):
        places = _attempt(payments, begin, way)
        if places:
            yield tuple(payments[place][1] for place in places)
        begin = places[-1] + 1 if places else begin + 1


def _attempt(payments: Sequence[Payment], begin: int, way: Way) -> list[int]:
    """The places of the match that begins here; none where there is none."""
    taken: list[int] = []
    for place in range(begin, len(payments)):
        at_ms, _, cents = payments[place]
        if at_ms - payments[begin][0] > WITHIN_MS:
            break
        is_fit = cents > LARGE_CENTS if len(taken) == 3 else cents < SMALL_CENTS
        if len(taken) == 3 and way.build is relative:
            is_fit = is_fit and cents > 100 * (sum(payments[each][2] for each in taken) / 3)
        if is_fit:
            taken.append(place)
            if len(taken) == 4:
                return taken
        elif place == begin or way.build is not relaxed:
            break
    return []


def run(way: Way, session: Any, setting: Setting, name: str, events: tuple[str, int]) -> Ran:
    """Run the pipeline to the end of a topic."""
    source, count = events
    config = StreamsConfig(bootstrap=setting.bootstrap, data_dir=setting.home / name)
    topic = hr.topic(source, schema=SCHEMA, partitions=PARTITIONS, max_records_per_batch=setting.batch)
    begin_s = time.perf_counter()
    queries = start_pipeline(session, config, topic, way.build)
    ran = await_rows(count, partial(reports_of, queries), begin_s)
    queries.stop()
    return ran


def measure_flink(setting: Setting, way: Way) -> list[Rates]:
    """Each run by Flink SQL, in one process of its own; exits where what it found is wrong."""
    assert setting.flink is not None
    assert way.flink is not None
    targets = [f"flink-{way.flink}-{number}" for number in range(setting.runs + 1)]
    ensure_topics(StreamsConfig(bootstrap=setting.bootstrap), dict.fromkeys(targets, PARTITIONS))
    sources = ["warm-up", *[f"cards-{way.cards}"] * setting.runs]
    pairs = [f"{source}:{target}" for source, target in zip(sources, targets, strict=True)]
    program = str(Path(__file__).with_name("flink_match.py"))
    command = [setting.flink, program, setting.bootstrap, str(connector()), way.flink, *pairs]
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
    expected = reference(way, setting.events)
    for target in targets[1:]:
        rows = [json.loads(value) for value in read_values(setting.bootstrap, target)]
        check(target, [tuple(row[f"tx_{place}"] for place in (1, 2, 3, 4)) for row in rows], expected)
    seconds = [float(line) for line in done.stdout.split()][1:]
    print(f"{way.name}: {len(expected):,} matches, exact; {seconds}", file=sys.stderr)
    return [Rates(whole=setting.events / each, steady=None) for each in seconds]


def measure(setting: Setting, way: Way) -> list[Rates]:
    """Each run of one way, in this process; exits where what it found is wrong."""
    # Workers can't import what lies here.
    cloudpickle.register_pickle_by_value(sys.modules[larger.__module__])  # type: ignore[no-untyped-call] # it has no types
    slug = "".join(letter if letter.isalnum() else "-" for letter in way.name.lower())
    config = StreamsConfig(bootstrap=setting.bootstrap, data_dir=setting.home / slug)
    expected = reference(way, setting.events)
    rates = []
    with our_session(config) as session:
        run(way, session, setting, f"{slug}-0", ("warm-up", setting.warm_up_count))
        for number in range(setting.runs):
            name = f"{slug}-{number + 1}"
            ran = run(way, session, setting, name, (f"cards-{way.cards}", setting.events))
            values = map(json.loads, read_values(setting.bootstrap, name))
            found = [tuple(each["row"]["tx"] for each in value["evidence"]) for value in values]
            check(name, found, expected)
            rates.append(Rates(whole=ran.rate, steady=ran.steady_rate))
    print(f"{way.name}: {len(expected):,} matches, exact; {rates}", file=sys.stderr)
    return rates


def check(name: str, told: Sequence[Found], expected: set[Found]) -> None:
    """Exit where what was written is not what the reference has found."""
    found = set(told)
    if len(told) != len(found) or found != expected:
        missing, wrong = sorted(expected - found), sorted(found - expected)
        sys.exit(
            f"{name}: {len(missing)} matches are missing, {len(wrong)} are wrong, such as {missing[:3]} and "
            f"{wrong[:3]}; {len(told) - len(found)} are there twice"
        )


def apart(work: partial[list[Rates]]) -> list[Rates]:
    """Call it in a process of its own, which ends with it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work).result()


def report(rates: Mapping[str, Sequence[Rates]]) -> None:
    """Print the table."""

    def cell(values: Sequence[float]) -> str:
        if not values:
            return "-"
        return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"

    print("| three small payments, then a large one | steady events/s | events/s |\n|---|---|---|")
    steady = {name: [each.steady for each in runs if each.steady is not None] for name, runs in rates.items()}
    for name, runs in rates.items():
        print(f"| {name} | {cell(steady[name])} | {cell([each.whole for each in runs])} |")
    if OURS in steady and MANY in steady:
        cost = statistics.median(steady[OURS]) / statistics.median(steady[MANY])
        print(f"\nten times as many cards cost {cost:.2f}x as much an event")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of 2 million events, 500,000 a batch")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="ways whose names have this in them")
    parser.add_argument("--flink", help="an interpreter that has apache-flink")
    options = parser.parse_args()
    ways = [
        way for way in WAYS if options.only in way.name and (way.flink is None or options.flink is not None)
    ]
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as home,
        BrokerProcess(Path(home) / "broker") as server,
    ):
        setting = Setting(
            bootstrap=server.bootstrap,
            home=Path(home),
            events=round(2_000_000 * options.share),
            batch=round(500_000 * options.share),
            runs=options.runs,
            flink=options.flink,
        )
        config = StreamsConfig(bootstrap=server.bootstrap)
        counts = {f"cards-{way.cards}": (setting.events, way.cards) for way in ways}
        for topic, (count, cards) in (counts | {"warm-up": (setting.warm_up_count, CARDS)}).items():
            ensure_topics(config, {topic: PARTITIONS})
            fill(server.bootstrap, topic, count, cards)
        rates = {
            way.name: measure_flink(setting, way) if way.flink else apart(partial(measure, setting, way))
            for way in ways
        }
    print(
        f"{setting.events:,} events, {setting.batch:,} a batch, {setting.runs} runs each: median and range\n"
    )
    report(rates)


if __name__ == "__main__":
    main()
