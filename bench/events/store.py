"""The event store beside the library `eventsourcing`, on the same PostgreSQL.

    python bench/events/store.py --peer VENV/bin/python               # full size, 3 runs each
    python bench/events/store.py --peer VENV/bin/python --peer FAST_VENV/bin/python
    python bench/events/store.py --peer VENV/bin/python --share 0.02  # only to see that it works

An embedded PostgreSQL that waits for the disk (durability sync) serves both, by a socket. Each run of each of
them has a process and an empty database of its own, and they take turns. What is measured is the same on both
sides:

- single appends      one event, one commit, again and again, to one aggregate
- batched appends     200 events of an aggregate in each commit
- load                an aggregate without snapshots, read from the database and folded
- fold                the same events, read already: decoded and folded; ours are once msgspec.Structs and
                      once frozen dataclasses, both against the one way that the library has
- 50 writers          threads of one process, each with an aggregate of its own, one event in each commit
- contended           50 threads on one aggregate: load, decide, append, and again on a conflict; ours only
- million             loading an aggregate of a million events that has a snapshot; ours only

Answers are checked: every aggregate must have the balance that its events make. VENV is an environment with
eventsourcing[postgres] in it. As that installs, it runs on the driver's code in Python; with psycopg[binary]
beside it, on the faster one, which ours comes with. `--peer` may be given for both.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.config import PostgresConfig
from headrace.postgres import EmbeddedPostgres

RUN_S_MAX: Final = 3_600
OURS: Final = "store_headrace.py"
PEER: Final = "store_eventsourcing.py"
ROWS: Final = {
    "single": "single appends, events/s",
    "batched": "batched appends, events/s",
    "load": "load without snapshot, events/s",
    "fold": "fold of Structs, events/s",
    "fold_dataclasses": "fold of frozen dataclasses, events/s",
    "writers": "50 writers, events/s",
    "contended": "50 writers on one aggregate, commands/s",
    "million_ms": "load of the long aggregate with a snapshot, ms",
}
COMPARED: Final = {"fold_dataclasses": "fold"}
"""With which row of the peer a row is compared, where it has no such row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run of one side has measured."""

    driver: str
    """Which code of psycopg the peer has run on."""
    rates: dict[str, float]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", action="append", default=[], help="an interpreter that has eventsourcing")
    parser.add_argument("--share", type=float, default=1.0, help="of the full size")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    sides = [(sys.executable, OURS), *((peer, PEER) for peer in options.peer)]
    measured: list[list[Run]] = [[] for _ in sides]
    # Below a directory that everybody can enter: PostgreSQL does not run as root.
    directory = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
    try:
        with EmbeddedPostgres(PostgresConfig(data_dir=directory)) as server:
            for number in range(options.runs):
                for side, (interpreter, program) in enumerate(sides):
                    with _fresh(server.dsn, f"side_{side}_{number}") as dsn:
                        measured[side].append(_run(interpreter, program, dsn, options.share))
    finally:
        shutil.rmtree(directory)
    print(_table(measured))


@contextmanager
def _fresh(dsn: str, name: str) -> Iterator[str]:
    """An empty database, which is dropped then: nothing that it leaves is vacuumed in the next one's time."""
    database = sql.Identifier(name)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(database))
        connection.execute("CHECKPOINT")
        yield make_conninfo(dsn, dbname=name)
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(database))


def _run(interpreter: str, program: str, dsn: str, share: float) -> Run:
    # What the peer reads from its environment, and we from the DSN.
    known = conninfo_to_dict(dsn)
    settings = {f"BENCH_{name.upper()}": str(value) for name, value in known.items()}
    done = subprocess.run(
        [interpreter, str(Path(__file__).with_name(program)), str(share)],
        env={**os.environ, **settings, "BENCH_DSN": dsn},
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        timeout=RUN_S_MAX,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    print(f"{program}: {told}", file=sys.stderr)
    return Run(driver=told.pop("driver", ""), rates=told)


def _medians(runs: Sequence[Run]) -> dict[str, float]:
    return {row: statistics.median(run.rates[row] for run in runs) for row in ROWS if row in runs[0].rates}


def _table(measured: Sequence[Sequence[Run]]) -> str:
    ours, *peers = map(_medians, measured)
    titles = "".join(f" eventsourcing on psycopg ({runs[0].driver}) | ratio |" for runs in measured[1:])
    lines = [f"| | headrace |{titles}", "|---|---|" + "---|---|" * len(peers)]
    for row, title in ROWS.items():
        shown = f"{ours[row]:.2f}" if row.endswith("_ms") else f"{ours[row]:,.0f}"
        beside = "".join(_beside(ours[row], peer.get(COMPARED.get(row, row))) for peer in peers)
        lines.append(f"| {title} | {shown} |{beside}")
    lines.append(f"\n50 writers reach {ours['writers'] / ours['single']:.1f} times the throughput of one.")
    return "\n".join(lines)


def _beside(ours: float, theirs: float | None) -> str:
    return f" {theirs:,.0f} | {ours / theirs:.1f} |" if theirs else " - | - |"


if __name__ == "__main__":
    main()
