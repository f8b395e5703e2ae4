"""Tables that change under the hands of those who read them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import make_conninfo

from headrace.cdc import beginning, cancelling, incremental
from headrace.cdc.capture import Capture
from headrace.cdc.chunks import Chunk, CopiedRow
from headrace.cdc.connection import explained
from headrace.cdc.database_catalog import PublishedTable
from headrace.cdc.requests import Requests
from headrace.cdc.slots import NewSlot, create_slot
from headrace.cdc.snapshot import ExportedSnapshot
from headrace.cdc.state import TableSnapshot
from headrace.errors import ConfigError, StoreUnavailable
from headrace.testing.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.cdc.conftest import World

ORDERS = "shop.public.orders"
WAITING = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'orders'::regclass"
REWRITE = "ALTER TABLE orders ALTER id TYPE bigint"
ALTER = "ALTER TABLE orders RENAME v TO w"


def make_orders(world: World, row_count: int) -> None:
    world.database.execute("CREATE TABLE orders (id int PRIMARY KEY, v text)")
    world.database.execute("INSERT INTO orders SELECT n, 'v' || n FROM generate_series(1, %s) n", row_count)


def ask_for_orders(world: World) -> None:
    Requests(world.config.directory).add([TableSnapshot(schema="public", table="orders")])


def altered_while_the_reader_waits(
    world: World, monkeypatch: pytest.MonkeyPatch, statement: str
) -> list[threading.Thread]:
    """Before the first chunk is read, an ALTER TABLE has the lock, until the reader waits for it."""
    settle: Callable[..., None] = incremental._settle
    threads: list[threading.Thread] = []

    def settle_and_alter(*arguments: Any) -> None:
        settle(*arguments)
        has_lock = threading.Event()

        def alter() -> None:
            with world.database.connect() as connection, connection.transaction():
                connection.execute(statement.encode())
                has_lock.set()
                eventually(lambda: world.database.execute(WAITING), "a reader that waits")

        threads.append(threading.Thread(target=alter))
        threads[-1].start()
        assert has_lock.wait(60)

    monkeypatch.setattr(incremental, "_settle", settle_and_alter)
    return threads


def test_a_table_that_is_rewritten_while_the_slot_is_made_is_read_by_the_next_attempt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(world, 60)
    topics = world.follow(ORDERS)

    def rewritten_meanwhile(*arguments: Any, **options: Any) -> NewSlot:
        slot = create_slot(*arguments, **options)
        world.database.execute(REWRITE)
        return slot

    monkeypatch.setattr(beginning, "create_slot", rewritten_meanwhile)
    with pytest.raises(StoreUnavailable, match="orders was rewritten"):
        world.run_to_end(snapshot="only")
    monkeypatch.undo()
    world.run_to_end(snapshot="only")
    world.eventually_equal(topics, ORDERS, "orders")


@pytest.mark.parametrize("statement", [REWRITE, ALTER])
def test_a_table_that_changes_before_it_is_read_beside_the_stream_is_read_as_it_is_then(
    world: World, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    make_orders(world, 20)
    topics = world.follow(ORDERS)
    threads = altered_while_the_reader_waits(world, monkeypatch, statement)
    ask_for_orders(world)
    with world.running(snapshot="never"):
        world.eventually_equal(topics, ORDERS, "orders")
    for thread in threads:
        thread.join()


def test_a_table_that_is_altered_before_the_initial_snapshot_is_read_as_it_is_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(world, 20)
    topics = world.follow(ORDERS)
    lock = ExportedSnapshot.lock

    def alter_and_lock(snapshot: ExportedSnapshot, tables: list[PublishedTable]) -> None:
        world.database.execute(ALTER)
        lock(snapshot, tables)

    monkeypatch.setattr(ExportedSnapshot, "lock", alter_and_lock)
    world.run_to_end(snapshot="only")
    world.eventually_equal(topics, ORDERS, "orders")


def test_a_table_that_is_gone_before_the_initial_snapshot_is_left_out_by_the_next_attempt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(world, 20)
    world.database.execute("CREATE TABLE notes (id int PRIMARY KEY)")
    topics = world.follow(ORDERS)
    lock = ExportedSnapshot.lock

    def drop_and_lock(snapshot: ExportedSnapshot, tables: list[PublishedTable]) -> None:
        world.database.execute("DROP TABLE IF EXISTS notes")
        lock(snapshot, tables)

    monkeypatch.setattr(ExportedSnapshot, "lock", drop_and_lock)
    with pytest.raises(StoreUnavailable, match=r"public\.notes, public\.orders was dropped"):
        world.run_to_end(snapshot="only")
    world.run_to_end(snapshot="only")
    world.eventually_equal(topics, ORDERS, "orders")


def test_a_table_whose_index_is_to_be_made_anew_is_read_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(world, 120)
    topics = world.follow(ORDERS)
    read, threads = ExportedSnapshot._read, list[threading.Thread]()
    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'orders_pkey'::regclass"

    def read_while_one_waits(snapshot: ExportedSnapshot, chunk: Chunk) -> list[CopiedRow]:
        """The first reader to come finds one who waits for those that have the index open."""
        if not threads:
            threads.append(threading.Thread(target=world.database.execute, args=("REINDEX TABLE orders",)))
            threads[0].start()
        eventually(lambda: world.database.execute(waiting), "who wants the index for himself")
        return read(snapshot, chunk)

    monkeypatch.setattr(ExportedSnapshot, "_read", read_while_one_waits)
    capture, thread = kept_running(world, snapshot="only", reader_count=2)
    thread.join(60)
    is_read = not thread.is_alive()
    capture.stop()
    for each in (thread, *threads):
        each.join(60)
    assert is_read
    world.eventually_equal(topics, ORDERS, "orders")


def test_rows_that_a_policy_hides_from_the_role_stop_the_snapshot(world: World) -> None:
    make_orders(world, 3)
    role = f"reader_{world.database.execute('SELECT current_database()')[0][0]}"
    for statement in (
        f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'some'",
        f"GRANT SELECT ON orders TO {role}",
        "ALTER TABLE orders ENABLE ROW LEVEL SECURITY",
        "CREATE PUBLICATION shop FOR TABLE orders WITH (publish_via_partition_root = true)",
    ):
        world.database.execute(statement)
    try:
        with pytest.raises(ConfigError, match="row-level security"):
            world.run_to_end(dsn=make_conninfo(world.config.dsn, user=role, password="some"), snapshot="only")
    finally:
        world.database.execute(f"DROP OWNED BY {role}")
        world.database.execute(f"DROP ROLE {role}")


def await_standby(world: World, name: str) -> None:
    """Have transactions wait for a standby, or for none."""
    world.database.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    world.database.execute("SELECT pg_reload_conf()")
    eventually(lambda: world.database.execute("SHOW synchronous_standby_names") == [(name,)])
    # Whoever makes checkpoints is the one who has others wait, and reads the settings before it makes one.
    world.database.execute("CHECKPOINT")


def test_a_transaction_that_is_published_and_that_nobody_sees_yet_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_orders(world, 20)
    topics = world.follow(ORDERS)
    monkeypatch.setattr(incremental, "SETTLE_S_MAX", 0.0)
    monkeypatch.setattr(incremental, "UNSEEN_S_MAX", 0.0)

    def update() -> None:
        with world.database.connect() as connection:
            connection.execute("SET synchronous_commit = on")
            connection.execute("UPDATE orders SET v = 'newer' WHERE id = 7")

    updating = threading.Thread(target=update)
    with world.running(snapshot="never"):
        world.await_streaming()
        await_standby(world, "nobody")
        try:
            updating.start()
            eventually(lambda: 7 in topics.table(ORDERS), "the update")
            assert world.rows("orders")[7]["v"] == "v7"
            ask_for_orders(world)
            eventually(lambda: "waits for 1 transactions" in caplog.text, "the reader")
        finally:
            await_standby(world, "")
            updating.join()
        eventually(lambda: 20 in topics.table(ORDERS))
        world.eventually_equal(topics, ORDERS, "orders")


class TestStopping:
    """Whatever a capture waits for, it ends when it is told to."""

    @pytest.fixture(autouse=True)
    def at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cancelling, "GRACE_S", 0.0)
        monkeypatch.setattr(cancelling, "TELL_S", 0.0)

    def test_while_the_slot_waits_for_open_transactions(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        make_orders(world, 3)
        with world.database.connect() as writer, writer.transaction(force_rollback=True):
            writer.execute("INSERT INTO orders VALUES (4, 'open')")
            capture, thread = kept_running(world)
            eventually(lambda: "all transactions have ended" in caplog.text, "the wait")
            capture.stop()
            thread.join(60)
            assert not thread.is_alive()
        assert not world.database.execute(
            "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", world.config.slot
        )

    def test_while_the_rows_of_the_initial_snapshot_are_read(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_orders(world, 3)

        def sleep(snapshot: ExportedSnapshot, chunk: Chunk) -> list[CopiedRow]:
            with explained(world.config.dsn, f"the snapshot of {chunk.table.name}"):
                snapshot.connections[-1].execute("SELECT pg_sleep(600)")
            return []

        monkeypatch.setattr(ExportedSnapshot, "_read", sleep)
        capture, thread = kept_running(world)
        asleep = (
            "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
        )
        eventually(lambda: world.database.execute(asleep), "a reader that takes long")
        capture.stop()
        thread.join(60)
        assert not thread.is_alive()

    @pytest.mark.parametrize("is_settled", [False, True], ids=["looked at", "read"])
    def test_while_a_table_is_locked_that_is_to_be(
        self, world: World, monkeypatch: pytest.MonkeyPatch, is_settled: bool
    ) -> None:
        make_orders(world, 3)
        with world.database.connect() as altering, altering.transaction(force_rollback=True):

            def lock(*_: object) -> None:
                altering.execute("LOCK TABLE orders")

            capture, thread = kept_running(world, snapshot="never")
            world.await_streaming()
            if is_settled:
                monkeypatch.setattr(incremental, "_settle", lock)
            else:
                lock()
            ask_for_orders(world)
            eventually(lambda: world.database.execute(WAITING), "a reader that waits")
            capture.stop()
            thread.join(60)
            assert not thread.is_alive()


def kept_running(world: World, **settings: Any) -> tuple[Capture, threading.Thread]:
    capture = Capture(replace(world.config, **settings))
    thread = threading.Thread(target=capture.keep_running, name="capture", daemon=True)
    thread.start()
    return capture, thread


def test_a_temporary_slot_is_gone_while_the_rows_of_its_snapshot_are_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(world, 120)
    topics = world.follow(ORDERS)
    reached: list[str] = []

    def look(place: str) -> None:
        slots = "SELECT temporary FROM pg_replication_slots WHERE slot_name = %s"
        if place == "capture.slot.made":
            assert world.database.execute(slots, world.config.slot) == [(True,)]
        if place == "capture.snapshot":
            eventually(lambda: world.database.execute(slots, world.config.slot) == [], "no slot")
        reached.append(place)

    monkeypatch.setattr(beginning, "hit", look)
    Capture(replace(world.config, snapshot="only"), has_temporary_slot=True).run()
    world.eventually_equal(topics, ORDERS, "orders")
    assert {"capture.slot.made", "capture.snapshot"} <= set(reached)
