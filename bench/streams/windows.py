"""Windows over card transactions, beside Spark's own windows and Quix Streams.

    python bench/streams/windows.py                          # 2 million events, 3 runs each, about an hour
    python bench/streams/windows.py --share 0.02 --runs 1    # only to see that it works
    python bench/streams/windows.py --quix VENV/bin/python   # also Quix Streams, which is installed there

Card transactions as JSON, 10,000 cards, 1 in 100 out of order by up to two minutes, in a topic of four
partitions of a broker process (durability sync). Each way runs in a process of its own: once to warm up,
then `--runs` times, from the start of its query to the last batch; "steady" are all batches but the first
(of Quix Streams: all events but the first quarter). Windows of a minute are given 10 seconds to be complete,
so that some rows are late: ours are written to a topic, those of Spark are lost. All answers, late rows
included, are compared with those of windows_reference.py, and the benchmark fails where they differ.

Latency is that from the sending of an event to the reading of a result that has it in it, at 1,000 events/s:
see stateful_latency.py; `--only latency` measures it alone, some 25 minutes. Plain Spark has a session of
its own: as many cores and shuffle partitions as ours, and everything else as Spark comes.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
import stateful_latency
from cards import (
    CARDS,
    DISORDER_MS,
    PARTITIONS,
    SCHEMA,
    Ran,
    await_rows,
    fill,
    reports_of,
    reports_of_spark,
    start_pipeline,
    start_plain,
)
from headrace.config import Guarantee, StreamsConfig
from headrace.streams.admin import ensure_topics
from headrace.testing.process import BrokerProcess
from sessions import apart, our_session, plain_session
from windows_answers import check, last_updates, read_late, read_results
from windows_reference import (
    MINUTE_MS,
    Events,
    Ints,
    closed_by_key,
    events_of,
    is_late,
    sessions,
    sliding,
    sorted_rows,
    tumbling,
    watermarks,
    watermarks_of_spark,
)

DELAY_MS: Final = 10_000
WAIT: Final = "2 minutes"
"""After which no row comes any more."""
WARM_UP_SHARE: Final = 0.05

Job = Literal["tumbling", "sessions", "sliding", "hours", "spark", "quix"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One row of the table."""

    name: str
    job: Job
    cards: int = CARDS
    guarantee: Guarantee = "exactly-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how much."""

    bootstrap: str
    home: Path
    events: int
    batch: int
    runs: int
    quix: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Events a second of one run."""

    whole: float
    steady: float
    results: int
    late: int


WAYS: Final = (
    Way(name="tumbling, exactly once", job="tumbling"),
    Way(name="tumbling, at least once", job="tumbling", guarantee="at-least-once"),
    Way(name="Spark's window(), at least once", job="spark"),
    Way(name="Quix Streams, at least once", job="quix"),
    Way(name="sessions", job="sessions"),
    Way(name="sliding", job="sliding"),
    Way(name="tumbling hours, 10,000 cards", job="hours"),
    Way(name="tumbling hours, 100,000 cards", job="hours", cards=10 * CARDS),
)
OURS, PEER, FEW, MANY = (WAYS[index].name for index in (1, 2, 6, 7))


def count_and_sum() -> list[Column]:
    """What is asked of the windows."""
    return [F.count("*").alias("count"), F.sum("cents").alias("total")]


def windowed(job: Job, late_topic: str, rows: DataFrame) -> DataFrame:
    """What is measured of ours."""
    timed = rows.withColumn("at", F.timestamp_millis("at_ms"))
    over = partial(hr.window, timed, by="card", event_time="at", late=hr.side_output(late_topic))
    made = {
        "tumbling": lambda: over(hr.tumbling("1 minute"), watermark=f"{DELAY_MS // 1000} seconds"),
        "hours": lambda: over(hr.tumbling("1 hour"), watermark=WAIT),
        "sessions": lambda: over(hr.session_window("1 minute"), watermark=WAIT),
        "sliding": lambda: over(hr.sliding("10 minutes"), watermark=WAIT),
    }
    return made[job]().agg(*count_and_sum())


def expected(job: Job, events: Events, ran: Ran) -> tuple[Ints, Ints]:
    """The results, and the numbers of the rows that are late."""
    everything = np.ones(len(events.card), bool)
    nobody = np.empty(0, np.int64)
    if job == "tumbling":
        marks = watermarks(events, ran.batches, DELAY_MS)
        late = is_late(events, MINUTE_MS, marks.before)
        return tumbling(events, MINUTE_MS, ~late, marks.last), np.flatnonzero(late)
    if job == "spark":
        before = watermarks_of_spark(events, ran.batches, DELAY_MS).before
        return tumbling(events, MINUTE_MS, ~is_late(events, MINUTE_MS, before), 2**62), nobody
    last = watermarks(events, ran.batches, DISORDER_MS).last
    if job == "hours":
        return tumbling(events, 60 * MINUTE_MS, everything, last), nobody
    if job == "sessions":
        return sessions(events, MINUTE_MS, last), nobody
    return sliding(events, 10 * MINUTE_MS, last), nobody


def run_ours(  # noqa: PLR0917 - so that the rest is as with run_spark
    way: Way, session: SparkSession, setting: Setting, name: str, source: str, count: int
) -> Ran:
    """Run a pipeline to the end of a topic."""
    config = StreamsConfig(bootstrap=setting.bootstrap, data_dir=setting.home / name, guarantee=way.guarantee)
    topic = hr.topic(source, schema=SCHEMA, partitions=PARTITIONS, max_records_per_batch=setting.batch)
    ensure_topics(config, {f"{name}.late": PARTITIONS})
    begin_s = time.perf_counter()
    queries = start_pipeline(session, config, topic, partial(windowed, way.job, f"{name}.late"))
    ran = await_rows(count, partial(reports_of, queries), begin_s)
    queries.stop()
    return ran


def windowed_by_spark(rows: DataFrame) -> DataFrame:
    """The same by what a user of Spark writes."""
    timed = rows.withColumn("at", F.timestamp_millis("at_ms")).withWatermark("at", f"{DELAY_MS} milliseconds")
    return timed.groupBy("card", F.window("at", "1 minute")).agg(*count_and_sum())


def run_spark(session: SparkSession, setting: Setting, name: str, source: str, count: int) -> Ran:
    """Run it to the end of a topic."""
    config = StreamsConfig(bootstrap=setting.bootstrap, data_dir=setting.home / name)
    begin_s = time.perf_counter()
    query = start_plain(session, config, source, windowed_by_spark, batch=setting.batch)
    ran = await_rows(count, partial(reports_of_spark, query), begin_s)
    query.stop()
    return ran


def run_quix(setting: Setting, name: str, source: str, count: int) -> tuple[float, float]:
    """Events a second, in all and of the last three quarters."""
    assert setting.quix is not None
    ensure_topics(StreamsConfig(bootstrap=setting.bootstrap), {name: PARTITIONS})
    program = str(Path(__file__).with_name("quix_windows.py"))
    arguments = [setting.bootstrap, source, name, str(count), str(setting.home / name)]
    done = subprocess.run([setting.quix, program, *arguments], check=True, text=True, stdout=subprocess.PIPE)
    whole_s, steady_s = map(float, done.stdout.split())
    return count / whole_s, (count - count // 4) / steady_s


def measure(setting: Setting, way: Way) -> list[Rates]:
    """All runs of one way, in this process."""
    events = events_of(setting.events, way.cards)
    slug = "".join(letter if letter.isalnum() else "-" for letter in way.name.lower())
    source = f"cards-{way.cards}"
    if way.job == "quix":
        run_quix(setting, f"{slug}-0", "warm-up", warm_up_count(setting))
        return [
            measure_quix(setting, f"{slug}-{number + 1}", source, events) for number in range(setting.runs)
        ]
    config = StreamsConfig(bootstrap=setting.bootstrap, data_dir=setting.home / slug)
    run = run_spark if way.job == "spark" else partial(run_ours, way)
    rates = []
    with (plain_session if way.job == "spark" else our_session)(config) as session:
        run(session, setting, f"{slug}-0", "warm-up", warm_up_count(setting))
        for number in range(setting.runs):
            name = f"{slug}-{number + 1}"
            ran = run(session, setting, name, source, setting.events)
            rates.append(checked(setting, way, name, events, ran))
    return rates


def measure_quix(setting: Setting, name: str, source: str, events: Events) -> Rates:
    """A run of Quix Streams."""
    whole, steady = run_quix(setting, name, source, setting.events)
    found = sorted_rows(read_results(setting.bootstrap, name))
    check(name, found, closed_by_key(events, MINUTE_MS, DISORDER_MS))
    return Rates(whole=whole, steady=steady, results=len(found), late=0)


def checked(setting: Setting, way: Way, name: str, events: Events, ran: Ran) -> Rates:
    """How a run did; exits if its answers are wrong."""
    wanted, wanted_late = expected(way.job, events, ran)
    found = read_results(setting.bootstrap, name)
    check(name, (last_updates if way.job == "spark" else sorted_rows)(found), wanted)
    if way.job != "spark":
        check(f"{name}, late rows", read_late(setting.bootstrap, f"{name}.late"), wanted_late)
    return Rates(whole=ran.rate, steady=ran.steady_rate, results=len(found), late=len(wanted_late))


def warm_up_count(setting: Setting) -> int:
    """How many events of the first run."""
    return max(1000, round(setting.events * WARM_UP_SHARE))


def report(rates: Mapping[str, list[Rates]]) -> None:
    """Print the table."""

    def cell(values: list[float]) -> str:
        return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"

    print("| way | steady events/s | events/s | results | late rows |\n|---|---|---|---|---|")
    for name, runs in rates.items():
        cells = (cell([each.steady for each in runs]), cell([each.whole for each in runs]))
        print(f"| {name} | {' | '.join(cells)} | {runs[0].results:,} | {runs[0].late:,} |")
    steady = {name: statistics.median(each.steady for each in runs) for name, runs in rates.items()}
    if OURS in steady and PEER in steady:
        print(f"\ntumbling / Spark's window(), at the same guarantee: {steady[OURS] / steady[PEER]:.2f}x")
    if FEW in steady and MANY in steady:
        print(f"ten times as many cards cost {steady[FEW] / steady[MANY]:.2f}x as much an event")


def main() -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of 2 million events, 500,000 a batch")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="ways whose names have this in them; or latency")
    parser.add_argument("--latency-of", default="", help="rules or windows; both if nothing is said")
    parser.add_argument("--seconds", type=int, default=40, help="how long latency is measured")
    parser.add_argument("--quix", help="an interpreter that has quixstreams")
    options = parser.parse_args()
    ways = [
        way for way in WAYS if options.only in way.name and (options.quix is not None or way.job != "quix")
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
            quix=options.quix,
        )
        prepare(setting, ways)
        rates = {}
        for way in ways:
            rates[way.name] = apart(partial(measure, setting, way))
            print(f"{way.name}: exact, {rates[way.name]}", file=sys.stderr)
        if rates:
            print(f"{setting.events:,} events, {setting.runs} runs each: median (smallest to largest)\n")
            report(rates)
    if options.only in "latency":
        print()
        names = [name for name in stateful_latency.NAMES if options.latency_of in name]
        print(stateful_latency.table(latencies(names, options.runs, options.seconds)))


def latencies(names: list[str], runs: int, seconds: int) -> list[list[stateful_latency.Latency]]:
    """The latency of each way, as often as `runs` says: all of them by turns, and then all of them again."""
    rounds = []
    for number in range(runs):
        with (
            tempfile.TemporaryDirectory(prefix="headrace-bench-") as home,
            BrokerProcess(Path(home) / "broker") as server,
        ):
            rounds.append(
                [
                    apart(partial(stateful_latency.measure, server.bootstrap, Path(home) / name, seconds))
                    for name in names
                ]
            )
        told = ", ".join(f"{each.name} {each.quantile(0.5)} ms" for each in rounds[-1])
        print(f"latency, run {number + 1}: {told}", file=sys.stderr)
    return [list(way) for way in zip(*rounds, strict=True)]


def prepare(setting: Setting, ways: list[Way]) -> None:
    """Write the events that the ways read."""
    config = StreamsConfig(bootstrap=setting.bootstrap)
    counts = {f"cards-{way.cards}": (setting.events, way.cards) for way in ways}
    if ways:
        counts["warm-up"] = (warm_up_count(setting), CARDS)
    for topic, (count, cards) in counts.items():
        ensure_topics(config, {topic: PARTITIONS})
        fill(setting.bootstrap, topic, count, cards)


if __name__ == "__main__":
    main()
