"""How many rows a second become events, on one core, without a server and without a broker.

    python bench/cdc/decode.py

prints rows per second of each step and of all: decoding pgoutput, and converting, enveloping and writing
JSON. The table is that of the comparison with Debezium: a key, a number, a numeric, a text and a timestamp
with time zone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.cdc.catalog import KnownCatalog
from headrace.cdc.last_values import MissingValues, RecentValues
from headrace.cdc.pgoutput import decode
from headrace.cdc.settings import EventSettings
from headrace.cdc.spill import DiskSpill
from headrace.cdc.transactions import Transactions
from headrace.cdc.values.converters import ValueFormat
from headrace.cdc.writer import ChangeWriter
from headrace.testing import pgoutput as pg

ROWS = 100_000
TABLE = pg.table(
    1,
    "public.bench",
    {
        "id": "int8",
        "account": "int4",
        "amount": (1700, (12 << 16 | 2) + 4),
        "note": "text",
        "ts": "timestamptz",
    },
)


def main() -> None:
    """Measure and print."""
    print(f"{ROWS:,} inserts of 5 columns, one core, best of 3\n")
    print("| step | rows/s |\n|---|---:|")
    for name, rows_per_transaction in (("1,000 rows a transaction", 1000), ("1 row a transaction", 1)):
        payloads = stream(rows_per_transaction)
        print(f"| decode, {name} | {rate(partial(decode_all, payloads)):,.0f} |")
        print(f"| all, {name} | {rate(partial(capture, payloads)):,.0f} |")
    exact = ValueFormat(numerics="exact")
    print(f"| all, exact numerics | {rate(partial(capture, stream(1000), exact)):,.0f} |")
    print(f"| all, one streamed transaction, spilled | {rate(partial(capture, streamed())):,.0f} |")


def rows() -> list[bytes]:
    """The inserts."""
    return [
        pg.insert(
            1,
            [
                b"%d" % number,
                b"%d" % (number % 1000),
                b"%d.%02d" % (number % 500, number % 100),
                b"payment %d of this week" % number,
                b"2026-11-15 19:58:21.%06d+00" % (number % 1_000_000),
            ],
        )
        for number in range(ROWS)
    ]


def stream(rows_per_transaction: int) -> list[bytes]:
    """The messages of small transactions."""
    payloads, inserts = [], rows()
    for first in range(0, ROWS, rows_per_transaction):
        xid = 1000 + first
        payloads.append(pg.begin(final_lsn=first, commit_us=1_794_772_701_682_387, xid=xid))
        if first == 0:
            payloads.append(pg.relation(TABLE))
        payloads += inserts[first : first + rows_per_transaction]
        payloads.append(pg.commit(commit_lsn=first, end_lsn=first + 1, commit_us=1_794_772_701_682_387))
    return payloads


def streamed() -> list[bytes]:
    """The messages of one large transaction."""
    xid = (7).to_bytes(4, "big")
    payloads = [pg.stream_start(7, is_first=True), pg.relation(TABLE, 7)]
    payloads += [insert[:1] + xid + insert[1:] for insert in rows()]
    end = pg.stream_commit(xid=7, commit_lsn=1, end_lsn=2, commit_us=1_794_772_701_682_387)
    return [*payloads, pg.stream_stop(), end]


def decode_all(payloads: list[bytes]) -> None:
    """Only take the messages apart."""
    for payload in payloads:
        decode(payload, streaming=False)


def capture(payloads: list[bytes], values: ValueFormat | None = None) -> None:
    """All that a capture does but receive and publish."""
    settings = EventSettings(prefix="bench", database="bench", version="1", values=values or ValueFormat())
    writer = ChangeWriter(settings, KnownCatalog(), last_values=RecentValues())
    count = 0
    with TemporaryDirectory() as directory:
        transactions = Transactions(DiskSpill(Path(directory)), 1024 * 1024)
        for lsn, payload in enumerate(payloads):
            for at, message in transactions.feed(lsn, payload):
                made = writer.write(at, message, time.time_ns())
                assert not isinstance(made, MissingValues)
                count += sum(record.topic == "bench.public.bench" for record in made)
    assert count == ROWS


def rate(run: Callable[[], None]) -> float:
    """Rows per second of the fastest of three runs."""
    fastest = float("inf")
    for _ in range(3):
        begun = time.perf_counter()
        run()
        fastest = min(fastest, time.perf_counter() - begun)
    return ROWS / fastest


if __name__ == "__main__":
    main()
