"""Events that Debezium 3.6 has written, record by record: what it made of a stream, we make of it, too.

`data/debezium-events.ndjson` holds its records; the texts that the server had sent are written out below.
What differs on purpose is taken out of the comparison by name, and tested on its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from headrace.cdc.catalog import KnownCatalog, PgType
from headrace.cdc.envelope import SnapshotPoint
from headrace.cdc.last_values import MissingValues
from headrace.cdc.messages import UNCHANGED, Row
from headrace.cdc.pgoutput import decode
from headrace.cdc.record import Record
from headrace.cdc.settings import EventSettings
from headrace.cdc.values.converters import ValueFormat
from headrace.cdc.writer import ChangeWriter
from headrace.testing import pgoutput as pg

Event = dict[str, Any]
MOOD = PgType(oid=90001, name="mood", schema="public")
NUMERIC_10_2 = (1700, (10 << 16 | 2) + 4)
DEMO_COLUMNS: dict[str, str | tuple[int, int]] = {
    "id": "int4", "n": NUMERIC_10_2, "n2": "numeric", "tz": "timestamptz", "ts": "timestamp", "d": "date",
    "j": "jsonb", "u": "uuid", "ai": "_int4", "at": "_text", "b": "bytea", "m": (MOOD.oid, -1), "bo": "bool",
    "f": "float8", "iv": "interval", "t": "time", "big": "text",
}  # fmt: skip
DEMO = pg.table(1, "public.demo", DEMO_COLUMNS)
DEMO_WITH_EXTRA = pg.table(1, "public.demo", {**DEMO_COLUMNS, "extra": "int4"})
BENCH = pg.table(
    2,
    "public.bench",
    {"id": "int8", "account": "int4", "amount": NUMERIC_10_2, "note": "text", "ts": "timestamptz"},
)
SIGNALS = pg.table(3, "public.sig", {"id": "text", "type": "text", "data": "text"})
BIG = b"x" * 3000
NOTHING: Row = [None] * 15
FIRST: Row = [
    b"1", b"12.34", b"1000000000000000000000000000000", b"2026-01-02 01:04:05.678901+00",
    b"2026-01-02 03:04:05.678901", b"2026-01-02", b'{"a": [1, 2]}',
    b"7c1c7c6e-0f9a-4c53-9f2b-000000000001",
    b"{1,NULL,3}", b'{a,"b,c",NULL}', b"\\x00ff", b"ok", b"t", b"1.5", b"1 day 02:00:00",
    b"12:34:56.789", BIG,
]  # fmt: skip
SECOND: Row = [b"2", b"1.50", *NOTHING]
THIRD: Row = [b"3", b"1.50", *NOTHING]
FIFTH: Row = [b"5", None, b"123.456", *NOTHING[1:], b"1"]


@cache
def recorded() -> tuple[Event, ...]:
    lines = (Path(__file__).parent / "data" / "debezium-events.ndjson").read_text().splitlines()
    return tuple(json.loads(line) for line in lines)


def recorded_on(topic: str) -> list[Event]:
    return [event for event in recorded() if event["topic"] == topic]


def bench_row(event: Event) -> Row:
    row = event["value"]["after"]
    at = row["ts"].replace("T", " ").replace("Z", "+00")
    texts = (row["id"], row["account"], f"{row['id']}.00", row["note"], at)
    return [str(text).encode() for text in texts]


def signal_row(event: Event) -> Row:
    return [text.encode() for text in event["value"]["after"].values()]


@pytest.fixture
def writer() -> ChangeWriter:
    settings = EventSettings(
        prefix="dbz", database="postgres", version="3.6.0.Final", values=ValueFormat(numerics="exact")
    )
    writer = ChangeWriter(settings, KnownCatalog([MOOD]))
    for table in (DEMO, BENCH, SIGNALS):
        writer.know(table)
    return writer


def write(writer: ChangeWriter, lsn: int, payload: bytes, now_ns: int = 0) -> list[Record]:
    made = writer.write(lsn, decode(payload, streaming=False), now_ns)
    if isinstance(made, MissingValues):
        assert made.columns == ("big",)
        assert made.key == {"id": b"1"}
        made = writer.write(lsn, made.answered({"big": BIG}), now_ns)
    assert not isinstance(made, MissingValues)
    return made


def replay(writer: ChangeWriter) -> list[Record]:
    """The whole stream that Debezium had read, transaction by transaction."""
    demo = recorded_on("dbz.public.demo")[1:]
    bench = [event for event in recorded_on("dbz.public.bench") if event["value"]["op"] == "c"]
    signals = recorded_on("dbz.public.sig")
    message = recorded_on("dbz.message")[0]
    changes: dict[int, list[tuple[Event, bytes]]] = {
        806: [(demo[0], pg.insert(1, SECOND))],
        807: [(demo[1], pg.update(1, [b"1", b"2.50", *FIRST[2:-1], UNCHANGED]))],
        808: [(demo[2], pg.update(1, THIRD, key=[b"2", None, *NOTHING]))],
        809: [(demo[4], pg.delete(1, key=[b"3", None, *NOTHING]))],
        811: [(demo[5], pg.insert(1, FIFTH))],
        812: [(message, pg.message("pfx", b"hello", lsn=message["value"]["source"]["lsn"]))],
        813: [],
        814: [(event, pg.insert(2, bench_row(event))) for event in bench],
    }
    changes |= {
        815 + number: [(event, pg.insert(3, signal_row(event)))] for number, event in enumerate(signals)
    }
    records: list[Record] = []
    for xid, of_transaction in changes.items():
        records += transaction(writer, xid, of_transaction)
    return records


def transaction(writer: ChangeWriter, xid: int, changes: Iterable[tuple[Event, bytes]]) -> list[Record]:
    ends = [event["value"]["id"] for event in recorded_on("dbz.transaction")]
    end_lsn = max(int(each.partition(":")[2]) for each in ends if each.startswith(f"{xid}:"))
    commit_us = next((event["value"]["source"]["ts_us"] for event, _ in changes), 0)
    records = write(writer, 0, pg.begin(final_lsn=end_lsn - 48, commit_us=commit_us, xid=xid))
    if xid == 811:
        records += write(writer, 0, pg.relation(DEMO_WITH_EXTRA))
    for event, payload in changes:
        now_ns = event["value"].get("ts_ns", event["value"]["ts_ms"] * 1_000_000)
        records += write(writer, event["value"]["source"]["lsn"], payload, now_ns)
    return records + write(
        writer, 0, pg.commit(commit_lsn=end_lsn - 48, end_lsn=end_lsn, commit_us=commit_us)
    )


def without_ids(value: Event) -> Event:
    """Rows of a transaction have one id here and several there: that is compared on its own."""
    ours = json.loads(json.dumps(value))
    if ours.get("transaction"):
        ours["transaction"]["id"] = ours["transaction"]["id"].partition(":")[0]
    return ours  # type: ignore[no-any-return]


def own_headers(event: Event) -> list[tuple[str, bytes]]:
    """Those that don't tell which connector of which Connect cluster has written the record."""
    return [(name, text.encode()) for name, text in event["headers"] if ".context." not in name]


@pytest.mark.parametrize("topic", ["dbz.public.demo", "dbz.public.bench", "dbz.public.sig", "dbz.message"])
def test_a_stream_becomes_the_events_that_debezium_made_of_it(writer: ChangeWriter, topic: str) -> None:
    ours = [record for record in replay(writer) if record.topic == topic and record.value is not None]
    theirs = [event for event in recorded_on(topic) if event["value"]["op"] != "r"]
    assert len(ours) == len(theirs)
    for record, event in zip(ours, theirs, strict=True):
        expected = without_ids(event["value"])
        if expected.get("after") and expected["after"].get("big") == "__debezium_unavailable_value":
            expected["after"]["big"] = BIG.decode()
        value = without_ids(json.loads(record.value or b""))
        if ("__debezium.oldkey", b'{"id":2}') in record.headers:
            # Two events come of one message here, and are written at the same time.
            expected |= {name: value[name] for name in ("ts_ms", "ts_us", "ts_ns")}
        assert value == expected
        assert list(value) == list(expected)
        assert list(value["source"]) == list(expected["source"])
        assert json.loads(record.key or b"") == event["key"]
        assert [*record.headers] == own_headers(event)


def test_a_tombstone_lies_where_debeziums_offsets_have_a_gap(writer: ChangeWriter) -> None:
    ours = [record for record in replay(writer) if record.topic == "dbz.public.demo"]
    gaps = {1, 2, 3, 4, 5, 6, 7, 8} - {event["offset"] for event in recorded_on("dbz.public.demo")}
    assert gaps == {offset for offset, record in enumerate(ours, start=1) if record.value is None} == {4, 7}


def test_transactions_begin_and_end_as_debeziums_do(writer: ChangeWriter) -> None:
    ours = [
        (json.loads(record.key or b""), json.loads(record.value or b""))
        for record in replay(writer)
        if record.topic == "dbz.transaction"
    ]
    theirs = [event["value"] for event in recorded_on("dbz.transaction")]
    # It also tells of a transaction in which nothing happened that anybody captures, and gives no name to
    # what a logical message is counted as.
    theirs = [value for value in theirs if not value["id"].startswith("813:")]
    for (key, value), expected in zip(ours, theirs, strict=True):
        assert list(value) == list(expected)
        assert key == {"id": value["id"]}
        assert value.pop("id").partition(":")[0] == expected["id"].partition(":")[0]
        collections = value["data_collections"]
        if collections and collections[0]["data_collection"] == "message":
            collections[0]["data_collection"] = expected["data_collections"][0]["data_collection"]
        assert value == {name: expected[name] for name in value}


def test_all_events_of_a_transaction_have_one_id(writer: ChangeWriter) -> None:
    ids: dict[str, set[str]] = {}
    for record in replay(writer):
        if record.value is None or record.topic == "dbz.schema-changes":
            continue
        value = json.loads(record.value)
        of_transaction = value["id"] if "id" in value else value["transaction"]["id"]
        ids.setdefault(of_transaction.partition(":")[0], set()).add(of_transaction)
    assert len(ids) == 12
    assert all(len(each) == 1 for each in ids.values())


def test_rows_of_snapshots_become_the_events_that_debezium_made_of_them(writer: ChangeWriter) -> None:
    theirs = [event for event in recorded() if event["value"].get("op") == "r"]
    assert len(theirs) == 6
    for event in theirs:
        source = event["value"]["source"]
        before, _ = json.loads(source["sequence"])
        point = SnapshotPoint(
            marker=source["snapshot"],
            at_ns=source["ts_ns"],
            lsn=source["lsn"],
            xid=source["txId"],
            last_commit_lsn=None if before is None else int(before),
        )
        oid, row = (1, FIRST) if source["table"] == "demo" else (2, bench_row(event))
        record = writer.snapshot_row(oid, row, point, event["value"]["ts_ns"])
        assert record is not None
        assert json.loads(record.value or b"") == event["value"]
        assert list(json.loads(record.value or b"")) == list(event["value"])
        assert (record.topic, json.loads(record.key or b"")) == (event["topic"], event["key"])


def test_a_column_that_was_added_is_announced_before_its_first_row(writer: ChangeWriter) -> None:
    records = [record for record in replay(writer) if record.topic != "dbz.transaction"]
    place = next(place for place, record in enumerate(records) if record.topic == "dbz.schema-changes")
    change = json.loads(records[place].value or b"")
    assert change["tableChanges"][0]["type"] == "ALTER"
    assert [column["name"] for column in change["tableChanges"][0]["table"]["columns"]][-1] == "extra"
    assert "extra" in json.loads(records[place + 1].value or b"")["after"]
    assert "extra" not in (records[place - 1].value or b"").decode()
