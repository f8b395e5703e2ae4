"""The stream of a real PostgreSQL: read without waiting in vain, confirmed, lost."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace.cdc.connection import connect, described
from headrace.cdc.database_catalog import DatabaseCatalog
from headrace.cdc.last_values import MissingValues
from headrace.cdc.messages import UNCHANGED, Commit, Insert, LogicalMessage, Message, Relation, Update
from headrace.cdc.missing_values import read_missing
from headrace.cdc.pgoutput import decode
from headrace.cdc.replication import Alive, Data, ReplicationStream
from headrace.cdc.slots import NewSlot, create_slot, drop_slot, ensure_own_publication, read_slot
from headrace.errors import CaptureFailed, ConfigError, SlotLost, StoreUnavailable
from headrace.testing.postgres import TestDatabase
from headrace.testing.waiting import eventually

WITHIN_S = 120.0


class Streamed:
    """A table, a slot and its stream."""

    def __init__(self, database: TestDatabase) -> None:
        self.database = database
        self.slot_name = f"test_{database.execute('SELECT current_database()')[0][0]}"
        database.execute("CREATE TYPE mood AS ENUM ('ok', 'sad')")
        database.execute(
            "CREATE TABLE orders (b text, a int, m mood[], n numeric(8, 2), PRIMARY KEY (a, b) INCLUDE (n))"
        )
        with closing(connect(database.dsn)) as connection:
            ensure_own_publication(connection, "p", [("public", "orders")])
        with closing(connect(database.dsn, replication=True)) as connection:
            self.slot: NewSlot = create_slot(connection, self.slot_name)

    def stream(self, start_lsn: int | None = None) -> ReplicationStream:
        return ReplicationStream(
            self.database.dsn,
            slot=self.slot_name,
            publication="p",
            start_lsn=self.slot.consistent_lsn if start_lsn is None else start_lsn,
        )

    def await_idle(self) -> None:
        """A server that is busy notices a moment later that the last reader is gone."""
        in_use = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
        eventually(
            lambda: not self.database.execute(in_use, self.slot_name), "an idle slot", within_s=WITHIN_S
        )

    def until(self, stream: ReplicationStream, kind: type[Message]) -> list[Message]:
        """Messages up to one of a kind, and with it."""
        messages: list[Message] = []

        def has_come() -> bool:
            data = [item for item in stream.read() if isinstance(item, Data)]
            messages.extend(decode(item.payload, streaming=False) for item in data)
            return any(isinstance(each, kind) for each in messages)

        while not has_come():
            stream.wait(60)
        return messages


@pytest.fixture
def streamed(headrace_postgres: TestDatabase) -> Iterator[Streamed]:
    return Streamed(headrace_postgres)  # type: ignore[return-value]


def test_changes_since_the_slot_was_made_are_streamed_from_any_position(streamed: Streamed) -> None:
    streamed.database.execute("INSERT INTO orders VALUES ('x', 1, '{ok}', 1.5)")
    with streamed.stream() as stream:
        messages = streamed.until(stream, Commit)
    assert [each.new for each in messages if isinstance(each, Insert)] == [[b"x", b"1", b"{ok}", b"1.50"]]
    [end_lsn] = [each.end_lsn for each in messages if isinstance(each, Commit)]
    streamed.database.execute("INSERT INTO orders VALUES ('y', 2)")
    streamed.await_idle()
    with streamed.stream(end_lsn) as stream:
        messages = streamed.until(stream, Commit)
    assert [each.new for each in messages if isinstance(each, Insert)] == [[b"y", b"2", None, None]]


def test_only_what_is_confirmed_is_not_sent_again(streamed: Streamed) -> None:
    with streamed.stream() as stream, closing(connect(streamed.database.dsn)) as connection:
        streamed.database.execute("INSERT INTO orders VALUES ('x', 1)")
        [end_lsn] = [each.end_lsn for each in streamed.until(stream, Commit) if isinstance(each, Commit)]
        before = read_slot(connection, streamed.slot_name)
        assert before is not None
        assert before.confirmed_lsn == streamed.slot.consistent_lsn
        assert before.active_pid is not None
        stream.confirm(end_lsn)

        def confirmed() -> bool:
            slot = read_slot(connection, streamed.slot_name)
            return slot is not None and slot.confirmed_lsn == end_lsn

        eventually(confirmed, "the confirmation")


def test_a_wait_ends_when_somebody_wakes_it(streamed: Streamed) -> None:
    with streamed.stream() as stream:
        waker = threading.Timer(0.05, stream.wake)
        waker.start()
        stream.wait(600)
        waker.join()


def test_a_server_that_asks_whether_we_are_there_is_answered_at_once(streamed: Streamed) -> None:
    with streamed.stream() as stream:
        stream.wait(0)
        assert stream._alive(struct.pack(">cQqB", b"k", 4711, 0, 0)) == Alive(4711)
        assert stream._status_due_s > time.monotonic()
        assert stream._alive(struct.pack(">cQqB", b"k", 4712, 0, 1)) == Alive(4712)
        assert stream._status_due_s == 0
        stream.wait(600)
        assert stream._status_due_s > time.monotonic()


def test_messages_outside_of_transactions_are_streamed_once(streamed: Streamed) -> None:
    streamed.database.execute("SELECT pg_logical_emit_message(false, 'note', 'x', true)")
    with streamed.stream() as stream:
        [message] = [
            each for each in streamed.until(stream, LogicalMessage) if isinstance(each, LogicalMessage)
        ]
        assert (message.prefix, message.content, message.is_transactional) == ("note", b"x", False)
    # Where its record ends, the next begins, which must not be passed over.
    streamed.await_idle()
    with streamed.stream(message.lsn) as stream:
        streamed.database.execute("SELECT pg_logical_emit_message(false, 'later', '', true)")
        [again] = [
            each for each in streamed.until(stream, LogicalMessage) if isinstance(each, LogicalMessage)
        ]
        assert again.prefix == "later"


def test_a_slot_that_is_missing_or_in_use_says_so(streamed: Streamed) -> None:
    with streamed.stream(), pytest.raises(StoreUnavailable, match="is the capture running twice"):
        streamed.stream()
    with closing(connect(streamed.database.dsn)) as connection:
        eventually(lambda: not _is_active(connection, streamed.slot_name))
        assert drop_slot(connection, streamed.slot_name)
        assert not drop_slot(connection, streamed.slot_name)
        assert read_slot(connection, streamed.slot_name) is None
    with pytest.raises(SlotLost, match="does not exist"):
        streamed.stream()


def _is_active(connection: object, name: str) -> bool:
    slot = read_slot(connection, name)  # type: ignore[arg-type]
    return slot is not None and slot.active_pid is not None


def test_a_server_that_ends_the_stream_is_a_fault_that_may_pass(streamed: Streamed) -> None:
    with streamed.stream() as stream:
        streamed.database.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s",
            streamed.slot_name,
        )

        def read_on() -> None:
            while True:
                list(stream.read())
                stream.wait(60)

        with pytest.raises(StoreUnavailable):
            read_on()


def test_the_catalog_describes_tables_as_the_stream_does(streamed: Streamed) -> None:
    database = streamed.database
    database.execute("CREATE DOMAIN cents AS numeric(10, 3)")
    database.execute(
        "CREATE TABLE payments "
        "(id uuid PRIMARY KEY, c cents, d varchar(7), g int GENERATED ALWAYS AS (1) STORED)"
    )
    database.execute("ALTER TABLE payments REPLICA IDENTITY FULL")
    with closing(connect(database.dsn)) as connection, streamed.stream() as stream:
        assert ensure_own_publication(connection, "p", [("public", "payments"), ("public", "orders")]) == [
            ("public", "payments")
        ]
        database.execute("INSERT INTO orders VALUES ('x', 1)")
        database.execute("INSERT INTO payments VALUES (gen_random_uuid(), 1, 'x')")
        told = [each for each in streamed.until(stream, Commit) if isinstance(each, Relation)]
        while len(told) < 2:
            told += [each for each in streamed.until(stream, Commit) if isinstance(each, Relation)]
        catalog = DatabaseCatalog(connection, database.dsn)
        orders, payments = catalog.published("p")
        assert [orders.relation, payments.relation] == told
        assert (orders.key, payments.key) == (("a", "b"), ("id",))
        assert catalog.primary_key_of(orders.relation) == ("a", "b")
        mood = catalog.type_of(orders.relation.columns[2].type_oid)
        assert mood is not None
        element = catalog.type_of(mood.element_oid)
        assert element is not None
        assert element.name == "mood"
        cents = catalog.type_of(payments.relation.columns[1].type_oid)
        assert cents is not None
        assert (cents.name, cents.base_oid) == ("cents", 1700)
        assert catalog.type_of(2**31) is None


def test_errors_name_the_server_and_never_the_password(headrace_postgres: TestDatabase) -> None:
    with pytest.raises(ConfigError, match="password authentication failed") as refused:
        connect(f"{headrace_postgres.dsn} password=guessed")
    assert "guessed" not in str(refused.value)
    assert described("postgresql://ann:secret@db.example/shop") == "PostgreSQL ann@db.example:5432/shop"
    with pytest.raises(ConfigError, match="can't be read") as unread:
        connect("host = = secret")
    assert "secret" not in str(unread.value)
    with pytest.raises(StoreUnavailable, match=r"no connection to PostgreSQL 127\.0\.0\.1:1/"):
        connect("host=127.0.0.1 port=1", within_s=0)
    assert not issubclass(ConfigError, CaptureFailed)


@pytest.mark.parametrize(
    ("table", "other"),
    [
        ("CREATE TABLE orders (id int PRIMARY KEY, v text)", "CREATE TABLE child () INHERITS (orders)"),
        (
            "CREATE TABLE orders (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
            "CREATE TABLE part PARTITION OF orders DEFAULT",
        ),
    ],
    ids=["inherited from", "partitioned"],
)
def test_missing_values_come_from_the_table_itself_or_its_partitions(
    headrace_postgres: TestDatabase, table: str, other: str
) -> None:
    headrace_postgres.execute(table)
    headrace_postgres.execute(other)
    with closing(connect(headrace_postgres.dsn)) as connection:
        ensure_own_publication(connection, "p", [("public", "orders")])
        relation = DatabaseCatalog(connection, headrace_postgres.dsn).published("p")[-1].relation
        update = Update(relation.oid, None, False, [b"1", UNCHANGED])
        missing = MissingValues(relation=relation, key={"id": b"1"}, columns=("v",), update=update)
        if "INHERITS" in other:
            headrace_postgres.execute("INSERT INTO child VALUES (1, 'of another table')")
            assert read_missing(connection, headrace_postgres.dsn, missing) is None
        headrace_postgres.execute("INSERT INTO orders VALUES (1, 'large')")
        assert read_missing(connection, headrace_postgres.dsn, missing) == {"v": b"large"}
