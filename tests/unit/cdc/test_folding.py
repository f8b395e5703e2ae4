"""A table, and what its topic says: at every commit, folding the records by key gives the table.

A made-up server runs transactions over two tables: some sent whole, some streamed in blocks that
interleave, with subtransactions that are rolled back, truncations, keys that change and values that are not
sent again. It keeps the tables as plain dictionaries; the capture sees only the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cdc.catalog import KnownCatalog
from headrace.cdc.last_values import MissingValues, RecentValues
from headrace.cdc.messages import UNCHANGED, Row
from headrace.cdc.record import Record
from headrace.cdc.settings import EventSettings
from headrace.cdc.spill import DiskSpill
from headrace.cdc.transactions import Transactions
from headrace.cdc.writer import ChangeWriter
from headrace.testing import pgoutput as pg

BY_KEY, WHOLE = 1, 2
RELATIONS = {
    BY_KEY: pg.table(BY_KEY, "public.by_key", {"id": "int4", "n": "int4", "big": "text"}),
    WHOLE: pg.table(WHOLE, "public.whole", {"id": "int4", "n": "int4", "big": "text"}, identity="f"),
}
CATALOG = KnownCatalog(primary_keys={("public", "whole"): ("id",)})
SLOTS = 3
"""Transactions that are open at once write to rows of their own, as locks would have it."""
KEYS_PER_SLOT = 4

Tables = dict[int, dict[int, tuple[int, str]]]
"""By table and key: n and big."""


class Waiting(NamedTuple):
    """A message that was not sent yet, without its (sub)transaction's number, which only a stream has."""

    xid: int
    bare: bytes
    describes: int | None = None


class Running:
    """A transaction that has not ended: what it sees, and what it has to send."""

    def __init__(self, xid: int, slot: int, seen: Tables, *, is_alone: bool) -> None:
        self.xid = xid
        self.slot = slot
        self.tables = seen
        self.savepoints: list[tuple[int, Tables]] = []
        self.unsent: list[Waiting] = []
        self.is_streamed = False
        self.is_alone = is_alone
        self.described: set[int] = set()

    @property
    def writes_as(self) -> int:
        return self.savepoints[-1][0] if self.savepoints else self.xid


class Server:
    """Runs transactions at random, and says which bytes a capture gets, and what the tables are then."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.tables: Tables = {BY_KEY: {}, WHOLE: {}}
        self.described: set[int] = set()
        self.running: list[Running] = []
        self.last_xid = 700
        self.lsn = 1000

    def history(self, steps: int) -> Iterator[bytes]:
        """The stream."""
        for _ in range(steps):
            yield from self.step()
        while self.running:
            yield from self.end(self.running[0])

    def step(self) -> Iterator[bytes]:
        free = set(range(SLOTS)) - {each.slot for each in self.running}
        is_locked = any(each.is_alone for each in self.running)
        if free and not is_locked and (not self.running or self.random.random() < 0.2):
            is_alone = not self.running and self.random.random() < 0.3
            begun = Running(self.next_xid(), min(free), deepcopy(self.tables), is_alone=is_alone)
            self.running.append(begun)
            return
        transaction = self.random.choice(self.running)
        chance = self.random.random()
        if chance < 0.6:
            self.change(transaction)
        elif chance < 0.7:
            transaction.savepoints.append((self.next_xid(), deepcopy(transaction.tables)))
        elif chance < 0.8 and transaction.savepoints:
            yield from self.roll_back(transaction)
        elif chance < 0.9:
            yield from self.stream(transaction)
        else:
            yield from self.end(transaction)

    def next_xid(self) -> int:
        self.last_xid += 1
        return self.last_xid

    def change(self, transaction: Running) -> None:
        if transaction.is_alone and self.random.random() < 0.2:
            self.truncate(transaction)
            return
        oid = self.random.choice([BY_KEY, WHOLE])
        table = transaction.tables[oid]
        first = 0 if transaction.is_alone else transaction.slot * KEYS_PER_SLOT
        keys = range(first, SLOTS * KEYS_PER_SLOT if transaction.is_alone else first + KEYS_PER_SLOT)
        key = self.random.choice(keys)
        new = (self.random.randrange(100), self.random.choice("ab") * self.random.choice([3, 400]))
        if key not in table:
            table[key] = new
            self.send(transaction, oid, "insert", self.row(key, new))
        elif self.random.random() < 0.3:
            old = table.pop(key)
            self.send(transaction, oid, "delete", None, self.row(key, old))
        else:
            self.update(transaction, oid, key, self.random.choice(keys), new)

    def update(self, transaction: Running, oid: int, key: int, moved_to: int, new: tuple[int, str]) -> None:
        table = transaction.tables[oid]
        old = table.pop(key)
        target = key if moved_to in table else moved_to
        is_unchanged = len(old[1]) > 100 and self.random.random() < 0.7
        table[target] = (new[0], old[1]) if is_unchanged else new
        sent = self.row(target, table[target])
        if is_unchanged:
            sent[2] = UNCHANGED
        self.send(transaction, oid, "update", sent, self.row(key, old), is_moved=target != key)

    def truncate(self, transaction: Running) -> None:
        oids = self.random.choice([[BY_KEY], [WHOLE], [BY_KEY, WHOLE]])
        for oid in oids:
            transaction.tables[oid].clear()
            self.describe(transaction, oid)
        transaction.unsent.append(Waiting(transaction.writes_as, pg.truncate(oids)))

    @staticmethod
    def row(key: int, values: tuple[int, str]) -> Row:
        return [str(key).encode(), str(values[0]).encode(), values[1].encode()]

    def describe(self, transaction: Running, oid: int) -> None:
        transaction.unsent.append(Waiting(transaction.writes_as, pg.relation(RELATIONS[oid]), oid))

    def send(
        self,
        transaction: Running,
        oid: int,
        what: str,
        new: Row | None,
        old: Row | None = None,
        *,
        is_moved: bool = False,
    ) -> None:
        self.describe(transaction, oid)
        if oid == WHOLE:
            before = {"old": old} if old else {}
        else:
            before = {"key": [old[0], None, None]} if old and (is_moved or what == "delete") else {}
        bare = getattr(pg, what)(oid, *([new] if new is not None else []), **before)
        transaction.unsent.append(Waiting(transaction.writes_as, bare))

    def payloads(self, transaction: Running, *, is_streamed: bool) -> Iterator[bytes]:
        """What waits to be sent, as it is sent in this way."""
        known = transaction.described if is_streamed else self.described
        for waiting in transaction.unsent:
            if waiting.describes in known:
                continue
            if waiting.describes is not None:
                known.add(waiting.describes)
            xid = waiting.xid.to_bytes(4, "big") if is_streamed else b""
            yield waiting.bare[:1] + xid + waiting.bare[1:]
        transaction.unsent.clear()

    def stream(self, transaction: Running) -> Iterator[bytes]:
        is_first = not transaction.is_streamed
        transaction.is_streamed = True
        yield pg.stream_start(transaction.xid, is_first=is_first)
        yield from self.payloads(transaction, is_streamed=True)
        yield pg.stream_stop()

    def roll_back(self, transaction: Running) -> Iterator[bytes]:
        """A savepoint, or one further out with all that are within it."""
        depth = self.random.randrange(len(transaction.savepoints))
        gone = transaction.savepoints[depth:]
        del transaction.savepoints[depth:]
        transaction.tables = gone[0][1]
        xids = {xid for xid, _ in gone}
        transaction.unsent = [each for each in transaction.unsent if each.xid not in xids]
        if transaction.is_streamed:
            for xid in self.random.sample(sorted(xids), len(xids)):
                yield pg.stream_abort(transaction.xid, xid, is_parallel=self.random.random() < 0.5)

    def end(self, transaction: Running) -> Iterator[bytes]:
        self.running.remove(transaction)
        if self.random.random() < 0.2:
            if transaction.is_streamed:
                yield pg.stream_abort(transaction.xid, transaction.xid)
            return
        self.lsn += 100
        commit = {"commit_lsn": self.lsn - 50, "end_lsn": self.lsn, "commit_us": self.lsn}
        if transaction.is_streamed:
            yield from self.stream(transaction)
        self.publish(transaction)
        if transaction.is_streamed:
            self.described |= transaction.described
            yield pg.stream_commit(xid=transaction.xid, **commit)
        else:
            yield pg.begin(final_lsn=self.lsn - 50, commit_us=self.lsn, xid=transaction.xid)
            yield from self.payloads(transaction, is_streamed=False)
            yield pg.commit(**commit)

    def publish(self, transaction: Running) -> None:
        """Everybody sees what it did."""
        own = range(transaction.slot * KEYS_PER_SLOT, (transaction.slot + 1) * KEYS_PER_SLOT)
        for oid, table in self.tables.items():
            for key in list(table) if transaction.is_alone else own:
                table.pop(key, None)
            theirs = transaction.tables[oid]
            table |= {key: row for key, row in theirs.items() if transaction.is_alone or key in own}


class Reader:
    """Folds the records of topics by key."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[bytes, dict[str, object]]] = {
            f"db.public.{each.name}": {} for each in RELATIONS.values()
        }
        self.open: dict[str, int] = {}

    def take(self, record: Record) -> None:
        if record.topic == "db.transaction":
            self.count(json.loads(record.value or b""))
            return
        if record.topic == "db.schema-changes":
            return
        rows = self.topics[record.topic]
        if record.value is None:
            assert record.key not in rows, "a tombstone follows a delete"
            return
        event = json.loads(record.value)
        self.open[event["transaction"]["id"]] += 1
        assert event["transaction"]["total_order"] == self.open[event["transaction"]["id"]]
        if event["op"] == "t":
            rows.clear()
            return
        assert record.key is not None
        if event["op"] == "d":
            del rows[record.key]
            return
        assert (event["op"] == "u") == (record.key in rows)
        rows[record.key] = event["after"]

    def count(self, status: dict[str, object]) -> None:
        if status["status"] == "BEGIN":
            assert not self.open, "transactions come one after the other"
            self.open[str(status["id"])] = 0
        else:
            assert self.open == {status["id"]: status["event_count"]}
            self.open.clear()

    def tables(self) -> Tables:
        found: Tables = {}
        for relation in RELATIONS.values():
            rows = self.topics[f"db.public.{relation.name}"].values()
            found[relation.oid] = {int(str(row["id"])): (int(str(row["n"])), str(row["big"])) for row in rows}
        return found


def answered(missing: MissingValues, server: Server) -> dict[str, bytes | None] | None:
    """What the row is now, when the transaction has committed."""
    row = server.tables[missing.relation.oid].get(int(str(missing.key["id"], "ascii")))  # type: ignore[arg-type]
    return None if row is None else {"big": row[1].encode()}


@settings(max_examples=150, deadline=None)
@given(
    st.randoms(use_true_random=False),
    st.integers(1, 80),
    st.sampled_from([0, 300, 10**6]),
    st.sampled_from([0, 1000, 10**6]),
)
def test_folding_the_records_gives_the_tables_at_every_commit(
    random: Random, steps: int, memory_bytes_max: int, remembered_bytes_max: int
) -> None:
    server, reader = Server(random), Reader()
    event_settings = EventSettings(prefix="db", database="db", version="1")
    writer = ChangeWriter(event_settings, CATALOG, last_values=RecentValues(remembered_bytes_max))
    with TemporaryDirectory() as directory:
        transactions = Transactions(DiskSpill(Path(directory)), memory_bytes_max)
        for payload in server.history(steps):
            for lsn, message in transactions.feed(server.lsn, payload):
                made = writer.write(lsn, message, 0)
                if isinstance(made, MissingValues):
                    made = writer.write(lsn, made.answered(answered(made, server)), 0)
                assert not isinstance(made, MissingValues)
                for record in made:
                    reader.take(record)
            if payload[:1] in {b"C", b"c"}:
                assert reader.tables() == server.tables
        assert transactions.memory_bytes == 0
        assert list(Path(directory).iterdir()) == []
    assert b"unavailable" not in repr(reader.topics).encode()
