"""The 23 queries of Nexmark: events a second, beside Flink SQL where it can express them.

    python bench/nexmark/throughput.py                            # 1 million events, 3 runs each; hours
    python bench/nexmark/throughput.py --share 0.01 --runs 1      # only to see that it works
    python bench/nexmark/throughput.py --flink VENV/bin/python    # also Flink SQL, which is installed there
    python bench/nexmark/throughput.py --only q4,q9

Made-up auctions (examples/nexmark), 100 seconds of event time, as JSON in topics of four partitions of a
broker process (durability sync). Each query runs in a process of its own: once over a tenth
of the events to warm up, then `--runs` times, from its start to the end of its topics; events are those of
the topics that it reads. "Steady" are all batches but the first, in which everything is started. Ours writes
exactly once, to a topic (q10: to a Delta table). Flink runs with two tasks and without checkpoints, at least
once, to a topic (q10: to files).

All answers are compared with those of plain Python, and the benchmark fails where they differ; those of ours
as far as windows are complete, those of Flink to the end. What Flink writes to files is not looked at.

To install Flink SQL: make an environment, `pip install apache-flink`; its connector is fetched.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
sys.path += [str(ROOT / "examples" / "nexmark"), str(ROOT / "bench" / "streams")]

from pyspark.sql import SparkSession

import headrace.streams as hr
import nexmark
from auction_house import KINDS, Arrival, arrivals
from cards import PARTITIONS, read_values, reports_of_spark
from flink_connector import connector
from flink_queries import QUERIES as FLINK_QUERIES
from headrace.config import StreamsConfig
from headrace.streams.admin import ensure_topics
from headrace.streams.plan import make_plan
from headrace.streams.progress import Progress
from headrace.streams.queries import Queries
from headrace.streams.sinks.records import to_records
from headrace.testing.process import BrokerProcess
from nexmark_answers import Answer, answer_of, check
from nexmark_reference import ANSWERS
from nexmark_send import create_topics, send
from nexmark_topics import auctions, bids, persons
from nexmark_world import LATEST_BY, Row, World, final_rows
from sessions import apart, our_session

SPAN_US: Final = 100_000_000
"""Of event time, however many events there are: 10,000 a second of a million."""
WITHIN_S: Final = 3_600.0
WARM_UP: Final = "warm-up-"
TOPICS: Final = {"persons": persons, "auctions": auctions, "bids": bids}
PIPELINES: Final = {query.name: query for query in nexmark.QUERIES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how much."""

    bootstrap: str
    home: Path
    batch: int
    runs: int
    counts: Mapping[str, int]
    """How many events each topic has."""

    def events(self, query: str) -> int:
        """How many events the query reads."""
        return sum(self.counts[name] for name in PIPELINES[query].sources())


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Events a second of one run; Flink tells no batches."""

    whole: float
    steady: float | None


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of 1 million events, 250,000 a batch")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join(PIPELINES), help="queries: q4,q9")
    parser.add_argument("--flink", help="an interpreter that has apache-flink")
    options = parser.parse_args()
    names = [name for name in PIPELINES if name in options.only.split(",")]
    events = round(1_000_000 * options.share)
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as home,
        BrokerProcess(Path(home) / "broker") as server,
    ):
        fill(server.bootstrap, events)
        streamed, ended = expected(events, names)
        setting = Setting(
            bootstrap=server.bootstrap,
            home=Path(home),
            batch=round(250_000 * options.share),
            runs=options.runs,
            counts=counts_of(events),
        )
        ours, flinks = {}, {}
        for name in names:
            ours[name] = apart(partial(measure, setting, name, streamed[name]))
            print(f"{name}: exact, {ours[name]}", file=sys.stderr)
            if options.flink is not None and name in FLINK_QUERIES:
                flinks[name] = measure_flink(setting, name, ended[name], options.flink)
                print(f"{name} by Flink SQL: {flinks[name]}", file=sys.stderr)
    print(f"{events:,} events, {options.runs} runs each: median (smallest to largest)\n")
    report(ours, flinks)


def fill(bootstrap: str, events: int) -> None:
    """Write the events, and those to warm up with."""
    for prefix, count in (("", events), (WARM_UP, max(events // 10, 500))):
        create_topics(bootstrap, PARTITIONS, prefix=prefix)
        send(bootstrap, events_of(count), PARTITIONS, prefix=prefix)


def events_of(count: int) -> Iterator[Arrival]:
    """So many events."""
    return arrivals(count, pause_us=SPAN_US // count)


def counts_of(events: int) -> dict[str, int]:
    """How many events of each kind there are."""
    whole, rest = divmod(events, 50)
    shares = {"persons": 1, "auctions": 3, "bids": 46}
    rests = {"persons": min(rest, 1), "auctions": min(max(rest - 1, 0), 3), "bids": max(rest - 4, 0)}
    return {kind: whole * shares[kind] + rests[kind] for kind in KINDS}


def expected(events: int, names: Iterable[str]) -> tuple[dict[str, Answer], dict[str, Answer]]:
    """What plain Python answers: of streams, and of all windows."""
    stream = World.of_stream(events_of(events), PARTITIONS)
    ended = World(persons=stream.persons, auctions=stream.auctions, bids=stream.bids)
    ours = {name: answer_of(ANSWERS[name](stream)) for name in names}
    return ours, {name: answer_of(ANSWERS[name](ended)) for name in names if name in FLINK_QUERIES}


def measure(setting: Setting, name: str, wanted: Answer) -> list[Rates]:
    """All runs of one query, in this process."""
    config = StreamsConfig(bootstrap=setting.bootstrap, data_dir=setting.home / f"session-{name}")
    rates = []
    with our_session(config) as session:
        run(session, setting, name, f"{name}-0", WARM_UP)
        for number in range(setting.runs):
            target = f"{name}-{number + 1}"
            seconds, batches = run(session, setting, name, target, "")
            check(target, written(session, setting, name, target), wanted)
            rates.append(rates_of(setting.events(name), seconds, batches))
    return rates


def run(
    session: SparkSession, setting: Setting, name: str, target: str, prefix: str
) -> tuple[float, list[Progress]]:
    """Run a query to the end of its topics: the seconds it took, and its batches."""
    config = StreamsConfig(bootstrap=setting.bootstrap, data_dir=setting.home / target)
    made = PIPELINES[name]
    topics = {
        source: replace(TOPICS[source], name=prefix + source, max_records_per_batch=setting.batch)
        for source in made.sources()
    }
    writes = (
        replace(made.writes, name=target, partitions=PARTITIONS)
        if isinstance(made.writes, hr.Topic)
        else hr.delta_table(setting.home / f"{target}.delta")
    )
    plan = make_plan([replace(made, name=target, reads=topics, writes=writes)])
    ensure_topics(config, plan.topics())
    queries = Queries(session=session, config=config, realtime=False, until_now=True)
    begin_s = time.perf_counter()
    queries.start(plan, ())
    (query,) = queries.running.values()
    queries.await_done(WITHIN_S)
    seconds = time.perf_counter() - begin_s
    batches = [each for each in reports_of_spark(query) if each.is_batch and each.input_row_count]
    queries.stop()
    return seconds, batches


def rates_of(events: int, seconds: float, batches: list[Progress]) -> Rates:
    """Of a run. A query may read a topic twice, so batches count by their share of what was read."""
    later = batches[1:] or batches
    share = sum(each.input_row_count for each in later) / sum(each.input_row_count for each in batches)
    later_s = sum(each.duration_ms for each in later) / 1000
    return Rates(whole=events / seconds, steady=events * share / later_s)


def written(session: SparkSession, setting: Setting, name: str, target: str) -> Answer:
    """What a query of ours has written."""
    if isinstance(PIPELINES[name].writes, hr.Topic):
        return answer_of(final_rows(name, rows_of(setting.bootstrap, target)))
    table = hr.read_delta(session, setting.home / f"{target}.delta")
    records = to_records(table, hr.topic(target), pipeline=name).select("value")
    return answer_of(json.loads(record["value"]) for record in records.toLocalIterator())


def rows_of(bootstrap: str, topic: str) -> Iterator[Row]:
    """The rows of a topic; one that was deleted is without its other columns."""
    return (row for value in read_values(bootstrap, topic) if (row := json.loads(value)))


def measure_flink(setting: Setting, name: str, wanted: Answer, python: str) -> list[Rates]:
    """All runs of one query by Flink SQL."""
    targets = [f"flink-{name}-{number}" for number in range(setting.runs + 1)]
    is_files = FLINK_QUERIES[name].partitioned_by is not None
    if not is_files:
        ensure_topics(StreamsConfig(bootstrap=setting.bootstrap), dict.fromkeys(targets, PARTITIONS))
    places = [(setting.home / target).as_uri() if is_files else target for target in targets]
    pairs = [f"{'' if number else WARM_UP}:{place}" for number, place in enumerate(places)]
    program = str(Path(__file__).with_name("flink_run.py"))
    command = [python, program, setting.bootstrap, str(connector()), name, *pairs]
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
    if not is_files:
        for target in targets[1:]:
            check(target, answer_of(latest(name, rows_of(setting.bootstrap, target))), wanted)
    seconds = [float(line) for line in done.stdout.split()][1:]
    return [Rates(whole=setting.events(name) / each, steady=None) for each in seconds]


def latest(name: str, rows: Iterable[Row]) -> list[Row]:
    """What Flink has told at last."""
    if name == "q16":
        rows = ({**row, "channel_day": f"{row['channel']} {row['day']}"} for row in rows)
    return final_rows(name, rows) if name in LATEST_BY else list(rows)


def report(ours: Mapping[str, list[Rates]], flinks: Mapping[str, list[Rates]]) -> None:
    """Print the table."""

    def cell(values: list[float]) -> str:
        return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"

    print("| query | steady events/s | events/s | Flink SQL, events/s |\n|---|---|---|---|")
    for name, runs in ours.items():
        steady = cell([each.steady for each in runs if each.steady is not None])
        flink = cell([each.whole for each in flinks[name]]) if name in flinks else "-"
        print(f"| {name} | {steady} | {cell([each.whole for each in runs])} | {flink} |")


if __name__ == "__main__":
    main()
