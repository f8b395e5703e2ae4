"""The capture beside Debezium's PostgreSQL connector: a backlog, lag at an even pace, memory, start-up.

    python bench/cdc/beside_debezium.py                          # 3 runs, about 15 minutes
    python bench/cdc/beside_debezium.py --share 0.02 --runs 1    # only to see that it works

Both capture the same table of one PostgreSQL (committed means on disk) to one broker of ours (durability
sync), by turns, each in a database and on a topic of its own. What is run is in contenders.py. In each run:

- **start-up:** a row waits when the process is started; the time is until a committed reader has its event;
- **backlog:** 500,000 rows wait, inserted in transactions of 1,000; the time is from the start of the process
  until a committed reader has the last event, and beside it the same without the start-up just measured;
- **lag:** 1,000 rows a second, each in a transaction of its own, for 60 seconds after 10 to warm up: from the
  commit, by the database's own clock as the event has it, until a committed reader has the event;
- **memory:** the process with its children (PSS), at its largest while that goes on.

Ours must have each row once, Debezium at least once, and the benchmark fails where that is not so. Where
Debezium can't be had, ours is measured alone. The reader takes a share of the same machine's processors.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).parents[1] / "broker"))

from contenders import Contender, Debezium, Headrace
from headrace.errors import SetupError
from headrace.postgres import EmbeddedPostgres
from headrace_server import HeadraceServer
from source import Source, server, source

BACKLOG: Final = 500_000
PER_SECOND: Final = 1_000
PACE_SHARE_MIN: Final = 0.95
LAG_S: Final = 60.0
WARM_UP_S: Final = 10.0
WITHIN_S: Final = 600.0
SAMPLE_S: Final = 1.0

START: Final = "start to the first event, s"
RATE: Final = "backlog, rows/s"
RATE_RUNNING: Final = "backlog, rows/s, start-up not counted"
BACKLOG_MB: Final = "memory at the backlog, MB"
P50, P95, P99 = (f"lag at {PER_SECOND:,} rows/s, p{each}, ms" for each in (50, 95, 99))
LAG_MB: Final = f"memory at {PER_SECOND:,} rows/s, MB"
GOALS: Final = {
    START: "1 s",
    RATE: "2x",
    RATE_RUNNING: "2x",
    BACKLOG_MB: "100 MB",
    P50: "10 ms",
    P99: "40 ms",
    LAG_MB: "100 MB",
}

Results = dict[str, float]


@dataclass(slots=True)
class Reader:
    """A committed reader of one topic; keeps which rows came, and how often."""

    bootstrap: str
    topic: str
    seen: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        [made] = admin.create_topics([NewTopic(self.topic, 1, 1)]).values()
        made.result()

    @contextmanager
    def reading(self) -> Iterator[Consumer]:
        """From the topic's beginning."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        try:
            yield consumer
        finally:
            consumer.close()

    def await_row(self, consumer: Consumer, row: int, contender: Contender) -> float:
        """Read until this row's event has come, many at once; return when it had."""
        deadline_s, key = time.monotonic() + WITHIN_S, b'{"id":%d}' % row
        while True:
            keys = [message.key() for message in consumer.consume(10_000, timeout=0.02)]
            read_s = time.perf_counter()
            self.seen.update(_id_of(each) for each in keys)
            if key in keys:
                return read_s
            _check(contender, deadline_s)

    def lags_ms(self, consumer: Consumer, first: int, last: int, contender: Contender) -> list[float]:
        """Read up to the last row, each event as soon as it comes; return how late those from the first on
        were."""
        deadline_s, lags, row = time.monotonic() + WITHIN_S, [], -1
        while row != last:
            message = consumer.poll(1.0)
            read_ns = time.time_ns()
            if message is None:
                _check(contender, deadline_s)
                continue
            row = _id_of(message.key())
            self.seen[row] += 1
            if row >= first:
                event: dict[str, Any] = json.loads(message.value() or b"{}")
                lags.append((read_ns / 1000 - event["source"]["ts_us"]) / 1000)
        return lags

    def check(self, row_count: int, *, exactly_once: bool) -> None:
        """Fail where rows are missing, or there twice and must not be."""
        missing = [row for row in range(row_count) if not self.seen[row]]
        twice = [row for row, times in self.seen.items() if times > 1]
        if missing or (exactly_once and twice):
            raise SystemExit(
                f"{self.topic}: {len(missing)} rows are missing and {len(twice)} are there twice"
            )


def _id_of(key: bytes | str | None) -> int:
    assert key is not None
    return int(key[len('{"id":') : -1])


def _check(contender: Contender, deadline_s: float) -> None:
    contender.check()
    if time.monotonic() > deadline_s:
        raise SystemExit(f"{contender.name}: what was awaited did not come within {WITHIN_S:.0f} s")


@contextmanager
def sampled(contender: Contender) -> Iterator[list[float]]:
    """The memory that it has, again and again, for as long as the block runs."""
    samples: list[float] = []
    is_over = threading.Event()

    def sample() -> None:
        while not is_over.wait(SAMPLE_S):
            samples.append(contender.memory_mb())

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        is_over.set()
        thread.join()
    samples.append(contender.memory_mb())


@dataclass(slots=True)
class Measurement:
    """One contender in one run."""

    contender: Contender
    source: Source
    reader: Reader
    share: float
    row_count: int = 0
    """How many rows the table has; their ids are the numbers before it."""

    def run(self) -> Results:
        """Everything, one after the other."""
        contender = self.contender
        contender.prepare()
        try:
            with self.reader.reading() as consumer:
                self._first_time(consumer)
                results = self._start_up(consumer)
                results |= self._backlog(consumer, results[START])
                results |= self._lag(consumer)
        finally:
            contender.stop()
        self.reader.check(self.row_count, exactly_once=isinstance(contender, Headrace))
        return results

    def _first_time(self, consumer: Consumer) -> None:
        """Have it make its slot, and publish a row."""
        self.contender.start()
        self.source.await_reader(self.contender.slot)
        self._fill(1)
        self.reader.await_row(consumer, self.row_count - 1, self.contender)
        self.contender.stop()

    def _start_up(self, consumer: Consumer) -> Results:
        self._fill(1)
        begun_s = time.perf_counter()
        self.contender.start()
        took_s = self.reader.await_row(consumer, self.row_count - 1, self.contender) - begun_s
        self.contender.stop()
        return {START: took_s}

    def _backlog(self, consumer: Consumer, start_s: float) -> Results:
        count = max(1_000, int(BACKLOG * self.share))
        self._fill(count)
        begun_s = time.perf_counter()
        self.contender.start()
        with sampled(self.contender) as samples:
            took_s = self.reader.await_row(consumer, self.row_count - 1, self.contender) - begun_s
        return {
            RATE: count / took_s,
            RATE_RUNNING: count / max(took_s - start_s, 0.001),
            BACKLOG_MB: max(samples),
        }

    def _lag(self, consumer: Consumer) -> Results:
        warm_up, count = (max(1_000, int(PER_SECOND * each * self.share)) for each in (WARM_UP_S, LAG_S))
        first, beyond = self.row_count, self.row_count + warm_up + count
        self.row_count = beyond
        rates: list[float] = []
        writer = threading.Thread(
            target=lambda: rates.append(self.source.pace(first, beyond, PER_SECOND)), name="writer"
        )
        writer.start()
        with sampled(self.contender) as samples:
            lags = self.reader.lags_ms(consumer, first + warm_up, beyond - 1, self.contender)
        writer.join()
        if not rates or rates[0] < PACE_SHARE_MIN * PER_SECOND:
            told = f"the database did not take {PER_SECOND:,} transactions a second: {rates}"
            if self.share >= 1:
                raise SystemExit(told)
            _show(told)
        cuts = statistics.quantiles(lags, n=100)
        return {P50: cuts[49], P95: cuts[94], P99: cuts[98], LAG_MB: max(samples)}

    def _fill(self, count: int) -> None:
        self.source.fill(self.row_count, self.row_count + count)
        self.row_count += count


def measured(
    kind: type[Contender], postgres: EmbeddedPostgres, bootstrap: str, prefix: str, share: float
) -> Results:
    """One contender in one run, on what is new for it."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as home, source(postgres) as database:
        contender = kind(Path(home), database, bootstrap, prefix)
        return Measurement(contender, database, Reader(bootstrap, contender.topic), share).run()


def contenders() -> list[type[Contender]]:
    """Ours, and Debezium where it can be had."""
    try:
        Debezium.fetch(_show)
    except SetupError as error:
        _show(f"Debezium can't be had, so ours is measured alone: {error}")
        return [Headrace]
    return [Headrace, Debezium]


def main() -> None:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="how often everything is measured (3)")
    parser.add_argument("--share", type=float, default=1.0, help="how much of the full work is done (1.0)")
    options = parser.parse_args()
    kinds = contenders()
    runs: dict[str, list[Results]] = {kind.name: [] for kind in kinds}
    with HeadraceServer("sync") as broker, server() as postgres:
        for number in range(options.runs):
            for kind in kinds:
                _show(f"run {number + 1}: {kind.name}")
                prefix = f"{kind.name.lower()}_{number}"
                results = measured(kind, postgres, broker.bootstrap, prefix, options.share)
                _show(", ".join(f"{name} {_number(value)}" for name, value in results.items()))
                runs[kind.name].append(results)
    print(f"{options.runs} runs: median (smallest to largest)\n")
    print(table(runs))


def table(runs: dict[str, list[Results]]) -> str:
    """Medians, ranges, and ours divided by theirs."""
    ours, theirs = runs[Headrace.name], runs.get(Debezium.name)
    names = [*runs, "ratio", "goal"] if theirs else [*runs, "goal"]
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for label in ours[0]:
        cells = [_spread([each[label] for each in results]) for results in runs.values()]
        if theirs:
            ratio = statistics.median(each[label] for each in ours) / statistics.median(
                each[label] for each in theirs
            )
            cells.append(f"{ratio:.2f}")
        lines.append(f"| {label} | {' | '.join([*cells, GOALS.get(label, '')])} |")
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    return f"{_number(statistics.median(values))} ({_number(min(values))} to {_number(max(values))})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _show(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
