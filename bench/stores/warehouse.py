"""How long it takes to get 100,000 changes into a table of 1 million rows, of Delta and of DuckDB.

    python bench/stores/warehouse.py                # 1 million rows, 100,000 changes, 3 runs
    python bench/stores/warehouse.py --rows 100000 --changes 10000 --runs 1

A pipeline on Spark fills the table from a topic of a broker process. Then changes come, all at once: 70% of
rows that are there, 20% new ones and 10% that remove one. The pipeline, which still runs, writes them in one
batch, or in two where it sees one partition before the others. Its time is that of the batches, from planning
to commit; beside it stands what of it the store itself takes, from staged files to the commit. One run that
does not count comes first.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import duckdb
from deltalake import DeltaTable

import headrace.streams as hr
from following import Place, change, following, place, told
from headrace.streams.sinks.delta.log import TableLog
from headrace.streams.sinks.duck.applier import DuckdbApplier

WANTED_S: Final = 1.0
KINDS: Final = ("Delta", "DuckDB")
_APPLIES: Final[dict[str, tuple[type, str]]] = {
    "Delta": (TableLog, "commit"),
    "DuckDB": (DuckdbApplier, "apply"),
}


def rows(count: int) -> Iterator[tuple[int, bytes]]:
    """What the table is filled with."""
    return ((number, change(number)) for number in range(count))


def changes(count: int, row_count: int) -> Iterator[tuple[int, bytes]]:
    """What comes then: each key once."""
    chance = random.Random(2)
    there = chance.sample(range(row_count), count * 8 // 10)
    removed, updated = there[: count // 10], there[count // 10 :]
    for number in removed:
        yield number, change(number, gone=True)
    for number in updated:
        yield number, change(number, total=chance.randrange(1, 1000))
    for number in range(row_count, row_count + count - len(there)):
        yield number, change(number)


def store_of(kind: str, at: Place, run: int) -> Any:
    """A table of its own for each run."""
    if kind == "Delta":
        return hr.delta_table(at.home / f"delta-{run}", key="id", writers=2)
    return hr.duckdb_table(at.home / f"duck-{run}.duckdb", "orders", key="id", writers=2)


def row_count(store: Any) -> int:
    """How many rows a table has."""
    if isinstance(store, hr.DeltaTable):
        return int(DeltaTable(store.path).to_pyarrow_dataset().count_rows())
    with duckdb.connect(str(store.path), read_only=True) as connection:
        (count,) = connection.execute("SELECT count(*) FROM orders").fetchone() or (0,)
        return int(count)


@contextmanager
def timed(kind: str) -> Iterator[list[float]]:
    """How long each call of what changes the store takes."""
    holder, name = _APPLIES[kind]
    apply: Callable[..., Any] = getattr(holder, name)
    seconds: list[float] = []

    def measured(*arguments: Any) -> Any:
        begin_s = time.perf_counter()
        try:
            return apply(*arguments)
        finally:
            seconds.append(time.perf_counter() - begin_s)

    setattr(holder, name, measured)
    try:
        yield seconds
    finally:
        setattr(holder, name, apply)


def measure(kind: str, at: Place, run: int, size: int, count: int) -> tuple[float, float]:
    """Seconds of the batches, and of the store within them."""
    topic, store = f"{kind}-{run}", store_of(kind, at, run)
    with following(at, store, topic, at.home / f"data-{topic}", batch_records=size) as follower:
        follower.follow(rows(size))
        assert row_count(store) == size
        with timed(kind) as seconds:
            batches = follower.follow(changes(count, size))
    assert row_count(store) == size + count // 5 - count // 10
    return sum(batch.duration_ms for batch in batches if batch.input_row_count) / 1000, sum(seconds)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with place() as at:
        found = {
            kind: [measure(kind, at, run, options.rows, options.changes) for run in range(options.runs + 1)][
                1:
            ]
            for kind in KINDS
        }
    print(f"{options.changes:,} changes into {options.rows:,} rows, {options.runs} runs: ", end="")
    print("median (smallest to largest)\n\n| | the pipeline | of it the store itself |\n|---|---|---|")
    for kind, runs in found.items():
        batches, stores = zip(*runs, strict=True)
        print(f"| {kind} | {told(batches, '.2f')} s | {told(stores, '.2f')} s |")
    print(f"\nwanted: at most {WANTED_S:.0f} s")


if __name__ == "__main__":
    main()
