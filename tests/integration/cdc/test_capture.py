"""From a table to its topic: snapshot, hand-over, stream, and whatever gets in between."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from headrace.broker import Broker
from headrace.cdc import incremental
from headrace.cdc.capture import Capture
from headrace.cdc.connection import Connection, connect, emit_message
from headrace.cdc.progress import Progress
from headrace.cdc.publisher import Publisher
from headrace.cdc.removal import begin_anew
from headrace.cdc.requests import Requests
from headrace.cdc.slots import read_slot
from headrace.cdc.state import CaptureState, Phase, TableSnapshot
from headrace.config import MIB, CaptureConfig
from headrace.errors import CaptureFailed, ConfigError, SlotLost, StoreUnavailable
from headrace.testing.postgres import fresh_database, postgres_server
from headrace.testing.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.cdc.conftest import Follower, World

ORDERS = "shop.public.orders"
on_each_server = pytest.mark.parametrize("world", ["headrace_postgres", "database_16"], indirect=True)


class StopWhenStreaming(Progress):
    """Stops a capture once it streams."""

    capture: Capture

    def streaming(self, state: CaptureState) -> None:  # noqa: ARG002  # all it takes is that it happens
        self.capture.stop()


def make_orders(world: World, row_count: int) -> None:
    world.database.execute("CREATE TABLE orders (id int PRIMARY KEY, v text)")
    world.database.execute("INSERT INTO orders SELECT n, 'v' || n FROM generate_series(1, %s) n", row_count)


def operations(follower: Follower, topic: str = ORDERS) -> list[str]:
    return [each.value["op"] for each in follower.events if each.topic == topic and each.value is not None]


def last_state(world: World) -> CaptureState | None:
    publisher = Publisher(world.config)
    publisher.close()
    return publisher.state


@on_each_server
def test_rows_are_published_and_then_their_changes(world: World) -> None:
    make_orders(world, 120)
    topics = world.follow(ORDERS, "shop.transaction", "shop.heartbeat")
    with world.running():
        world.eventually_equal(topics, ORDERS, "orders")
        assert operations(topics) == ["r"] * 120
        world.database.execute("UPDATE orders SET v = 'new' WHERE id = 7")
        world.database.execute("DELETE FROM orders WHERE id = 8")
        world.database.execute("UPDATE orders SET id = 1000 WHERE id = 9")
        world.eventually_equal(topics, ORDERS, "orders")
        assert operations(topics)[120:] == ["u", "d", "d", "c"]
        world.database.execute("TRUNCATE orders")
        world.eventually_equal(topics, ORDERS, "orders")
        eventually(lambda: any(each.topic == "shop.heartbeat" for each in topics.read()))
    markers = [
        each.value["source"]["snapshot"] for each in topics.events if each.topic == ORDERS and each.value
    ]
    assert markers[0] == "first_in_data_collection"
    assert markers[119:121] == ["last", "false"]


def test_writes_during_the_snapshot_are_neither_lost_nor_there_twice(world: World) -> None:
    make_orders(world, 300)
    topics = world.follow(ORDERS)
    stopping = threading.Event()

    def write() -> None:
        with world.database.connect() as connection:
            number = 1000
            while not stopping.is_set():
                number += 1
                with connection.transaction():
                    connection.execute("INSERT INTO orders VALUES (%s, 'w')", (number,))
                    connection.execute("UPDATE orders SET v = v || 'u' WHERE id = %s", (number % 300,))
                    connection.execute("DELETE FROM orders WHERE id = %s", (number - 3,))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with world.running(reader_count=3):
            eventually(lambda: topics.read() and len(operations(topics)) > 600, within_s=120)
            stopping.set()
            writer.join()
            world.eventually_equal(topics, ORDERS, "orders")
    finally:
        stopping.set()
        writer.join()
    places = [
        (each.value["source"]["lsn"], each.value["op"], str(each.key))
        for each in topics.events
        if each.value is not None
    ]
    assert len(places) == len(set(places))


@on_each_server
def test_a_capture_that_is_killed_anywhere_goes_on_with_nothing_missing_and_nothing_twice(
    world: World,
) -> None:
    make_orders(world, 230)
    topics = world.follow(ORDERS)
    deaths = [
        ("capture.slot", 0),
        ("capture.slot.made", 0),
        ("capture.snapshot", 2),
        ("capture.snapshot", 1),
        ("capture.sent", 1),
        ("capture.committed", 1),
        ("capture.confirmed", 1),
    ]
    for number, (failpoint, after) in enumerate(deaths):
        process = world.process(failpoint, after=after)
        world.database.execute("INSERT INTO orders VALUES (%s, 'while it ran')", 1000 + number)
        world.database.execute("UPDATE orders SET v = v || 'u' WHERE id %% 50 = %s", number)
        assert process.wait(120) == -9, failpoint
        world.database.execute("INSERT INTO orders VALUES (%s, 'while it was dead')", 2000 + number)
    with world.running():
        world.eventually_equal(topics, ORDERS, "orders")
    changes = [
        (each.value["source"]["lsn"], each.value["op"], each.key["id"])
        for each in topics.events
        if each.value is not None
    ]
    streamed = [change for change in changes if change[1] != "r"]
    assert len(streamed) == len(set(streamed))
    read = [change[2] for change in changes if change[1] == "r"]
    assert len(read) == len(set(read))


def test_a_kill_between_snapshot_and_stream_leaves_no_gap(world: World) -> None:
    make_orders(world, 60)
    topics = world.follow(ORDERS)
    process = world.process("capture.handover")
    assert process.wait(120) == -9
    world.database.execute("INSERT INTO orders VALUES (1000, 'in the gap')")
    with world.running():
        world.eventually_equal(topics, ORDERS, "orders")
    assert operations(topics) == ["r"] * 60 + ["c"]


def test_a_process_that_is_told_to_stop_publishes_what_is_whole_and_ends_well(world: World) -> None:
    make_orders(world, 10)
    topics = world.follow(ORDERS)
    process = world.process()
    world.eventually_equal(topics, ORDERS, "orders")
    process.terminate()
    assert process.wait(60) == 0


def test_a_snapshot_can_be_asked_for_while_changes_are_streamed(world: World) -> None:
    make_orders(world, 200)
    topics = world.follow(ORDERS)
    with world.running(snapshot="never"):
        world.await_streaming()
        world.database.execute("INSERT INTO orders VALUES (1000, 'streamed')")
        eventually(lambda: 1000 in topics.table(ORDERS))
        assert operations(topics) == ["c"]
        Requests(world.config.directory).add(
            [TableSnapshot(schema="public", table="orders", where="id <= 150")]
        )
        for number in range(40):
            world.database.execute("UPDATE orders SET v = 'u' WHERE id = %s", number)
        eventually(lambda: set(range(1, 151)) <= set(topics.table(ORDERS)), within_s=120)
        assert 151 not in topics.table(ORDERS)
        Requests(world.config.directory).add([TableSnapshot(schema="public", table="orders")])
        world.eventually_equal(topics, ORDERS, "orders")
    assert list((world.config.directory / "requests").iterdir()) == []
    markers = {each.value["source"]["snapshot"] for each in topics.events if each.value}
    assert markers == {"false", "incremental"}


def test_a_snapshot_that_was_asked_for_and_can_not_be_made_is_given_up_loudly(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    make_orders(world, 3)
    topics = world.follow(ORDERS)
    wrong = TableSnapshot(schema="public", table="orders", where="1 / (id - 1) > 7")
    gone = TableSnapshot(schema="public", table="gone")
    last = TableSnapshot(schema="public", table="orders", where="id = 2")
    Requests(world.config.directory).add([wrong, gone, last])
    with world.running(snapshot="never"):
        eventually(lambda: list(topics.table(ORDERS)) == [2], within_s=120)
        world.database.execute("INSERT INTO orders VALUES (4, 'streamed')")
        eventually(lambda: 4 in topics.table(ORDERS))
    for asked in (wrong, gone):
        assert f"goes on without the snapshot of {asked.name}" in caplog.text
    state = last_state(world)
    assert state is not None
    assert state.tables == ()


def test_a_table_that_is_gone_before_its_first_snapshot_is_complete_stops_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    make_orders(world, 60)
    assert world.process("capture.snapshot").wait(120) == -9
    world.database.execute("DROP TABLE orders")
    world.database.execute("CREATE TABLE others (id int PRIMARY KEY); INSERT INTO others VALUES (1)")
    topics = world.follow("shop.public.others")
    with world.running():
        world.await_streaming()
        world.database.execute("UPDATE others SET id = 2")
        eventually(lambda: 2 in topics.table("shop.public.others"))
    assert "there is no such table any more" in caplog.text


def test_a_row_that_changes_after_it_was_read_beside_the_stream_is_not_published_as_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(world, 20)
    topics = world.follow(ORDERS)

    def change_before(connection: Connection, prefix: str, content: str) -> None:
        """Between the read of a chunk and its watermark."""
        if prefix == incremental.WATERMARK:
            world.database.execute("UPDATE orders SET v = 'newer' WHERE id = 7")
            world.database.execute("DELETE FROM orders WHERE id = 8")
        emit_message(connection, prefix, content)

    monkeypatch.setattr(incremental, "emit_message", change_before)
    Requests(world.config.directory).add([TableSnapshot(schema="public", table="orders")])
    with world.running(snapshot="never"):
        eventually(lambda: 20 in topics.table(ORDERS), within_s=120)
        world.eventually_equal(topics, ORDERS, "orders")
    read = [each.key["id"] for each in topics.events if each.value is not None and each.value["op"] == "r"]
    assert sorted(read) == [number for number in range(1, 21) if number not in {7, 8}]


def test_a_snapshot_only_ends_by_itself_and_leaves_no_slot(world: World) -> None:
    make_orders(world, 60)
    topics = world.follow(ORDERS)
    process = world.process(snapshot="only")
    assert process.wait(120) == 0
    world.eventually_equal(topics, ORDERS, "orders")
    state = last_state(world)
    assert state is not None
    assert state.phase is Phase.DONE
    with connect(world.config.dsn) as connection:
        assert read_slot(connection, world.config.slot) is None


def test_a_table_without_a_key_is_published_whole_or_not_at_all(world: World) -> None:
    world.database.execute("CREATE TABLE notes (n int)")
    world.database.execute("INSERT INTO notes SELECT generate_series(1, 120)")
    topics = world.follow("shop.public.notes")
    process = world.process("capture.snapshot")
    assert process.wait(120) == -9
    assert topics.read() == []
    with pytest.raises(CaptureFailed, match=r"public\.notes has no primary key"):
        world.run_to_end()


@on_each_server
def test_unchanged_large_values_are_filled_in(world: World) -> None:
    make_orders(world, 0)
    world.database.execute("ALTER TABLE orders ALTER v SET STORAGE EXTERNAL, ADD n int")
    world.database.execute("INSERT INTO orders VALUES (1, repeat('x', 5000), 0)")
    topics = world.follow(ORDERS)
    with world.running():
        world.eventually_equal(topics, ORDERS, "orders")
        world.database.execute("UPDATE orders SET n = 1")
        world.eventually_equal(topics, ORDERS, "orders")
    assert topics.table(ORDERS)[1]["v"] == "x" * 5000


def test_a_table_that_changes_while_it_is_captured_is_announced(world: World) -> None:
    make_orders(world, 3)
    topics = world.follow(ORDERS, "shop.schema-changes")
    with world.running():
        world.eventually_equal(topics, ORDERS, "orders")
        world.await_streaming()
        world.database.execute("ALTER TABLE orders ADD extra int")
        world.database.execute("INSERT INTO orders VALUES (4, 'x', 5)")
        eventually(lambda: 4 in topics.table(ORDERS))
    assert topics.table(ORDERS)[4] == {"id": 4, "v": "x", "extra": 5}
    [change] = [each.value for each in topics.events if each.topic == "shop.schema-changes"]
    assert change["tableChanges"][0]["type"] == "ALTER"


def test_a_table_that_changes_while_no_capture_runs_is_announced_once(world: World) -> None:
    make_orders(world, 3)
    topics = world.follow(ORDERS, "shop.schema-changes")
    with world.running():
        world.eventually_equal(topics, ORDERS, "orders")
        world.await_streaming()
        world.database.execute("INSERT INTO orders VALUES (4, 'x')")
        eventually(lambda: 4 in topics.table(ORDERS))
    world.database.execute("INSERT INTO orders VALUES (5, 'before')")
    world.database.execute("ALTER TABLE orders ADD extra int")
    world.database.execute("INSERT INTO orders VALUES (6, 'after', 7)")
    for row_count in (6, 7):
        with world.running():
            eventually(lambda: len(topics.table(ORDERS)) == row_count)  # noqa: B023 - it ends before the next
        world.database.execute("INSERT INTO orders VALUES (%s, 'x', 0)", row_count + 10)
    assert topics.table(ORDERS)[5] == {"id": 5, "v": "before"}
    assert topics.table(ORDERS)[6] == {"id": 6, "v": "after", "extra": 7}
    told = [each.value or {} for each in topics.events if each.topic == "shop.schema-changes"]
    assert [each["tableChanges"][0]["type"] for each in told] == ["ALTER"]


def test_rows_from_before_a_column_of_their_key_was_renamed_have_the_key_of_then(world: World) -> None:
    make_orders(world, 1)
    world.database.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    topics = world.follow(ORDERS)
    with world.running():
        world.await_streaming()
        world.database.execute("INSERT INTO orders VALUES (2, 'known')")
        world.eventually_equal(topics, ORDERS, "orders")
    world.database.execute("INSERT INTO orders VALUES (3, 'before')")
    world.database.execute("ALTER TABLE orders RENAME id TO number")
    world.database.execute("INSERT INTO orders VALUES (4, 'after')")
    with world.running():
        eventually(lambda: len(topics.read()) == 4)
    assert [each.key for each in topics.events] == [{"id": 1}, {"id": 2}, {"id": 3}, {"number": 4}]


def test_that_a_truncation_does_not_reach_all_partitions_is_told_at_the_start_and_when_it_happens(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(world, 3)
    monkeypatch.setattr("headrace.cdc.capture.LOOK_S", 0.1)
    topics = world.follow(ORDERS)
    with world.running(partition_count=2):
        # A slot is active while it is made, too, and a table that is truncated then is begun with anew.
        eventually(lambda: len(topics.read()) == 3)
        assert "A table that is truncated needs --partitions 1" in caplog.text
        world.database.execute("TRUNCATE orders")
        eventually(lambda: "public.orders was truncated" in caplog.text, "the warning", within_s=60)


def test_a_slot_that_vanishes_stops_the_capture_loudly(world: World) -> None:
    make_orders(world, 3)
    topics = world.follow(ORDERS)
    with world.running():
        world.eventually_equal(topics, ORDERS, "orders")
    world.drop_slot()
    world.database.execute("INSERT INTO orders VALUES (4, 'nobody will know')")
    with pytest.raises(SlotLost, match=r"is gone.*--new-snapshot"):
        world.run_to_end()


def test_a_slot_that_was_made_anew_behind_our_back_stops_the_capture_loudly(world: World) -> None:
    make_orders(world, 3)
    topics = world.follow(ORDERS)
    with world.running():
        world.eventually_equal(topics, ORDERS, "orders")
    world.drop_slot()
    world.database.execute("INSERT INTO orders VALUES (4, 'nobody will know')")
    world.database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", world.config.slot)
    with pytest.raises(SlotLost, match="somebody else has read"):
        world.run_to_end()


def test_a_slot_whose_log_was_deleted_stops_the_capture_loudly(
    headrace_broker: Broker, tmp_path: Path
) -> None:
    with postgres_server(slot_wal_bytes_max=64 * MIB) as server, fresh_database(server) as database:
        database.execute("CREATE TABLE orders (id int PRIMARY KEY, v text)")
        config = CaptureConfig(
            name="shop",
            dsn=database.dsn,
            bootstrap=headrace_broker.bootstrap,
            data_dir=tmp_path,
            snapshot="never",
        )
        stop = StopWhenStreaming()
        stop.capture = Capture(config, stop)
        stop.capture.run()
        for _ in range(6):
            database.execute("SELECT pg_switch_wal()")
            database.execute("INSERT INTO orders SELECT coalesce(max(id), 0) + 1 FROM orders")
        database.execute("CHECKPOINT")
        with pytest.raises(SlotLost, match=r"the database has deleted log.*--new-snapshot"):
            Capture(config).run()
        begin_anew(config)
        Capture(replace(config, snapshot="only")).run()
        assert database.execute("SELECT slot_name FROM pg_replication_slots") == []


def test_a_slot_of_the_name_that_is_not_ours_is_left_alone(world: World) -> None:
    make_orders(world, 3)
    world.database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", world.config.slot)
    with pytest.raises(ConfigError, match="is there already"):
        world.run_to_end()
    with connect(world.config.dsn) as connection:
        assert read_slot(connection, world.config.slot) is not None


def test_a_capture_does_not_go_on_from_the_position_of_another_slot(world: World) -> None:
    make_orders(world, 3)
    topics = world.follow(ORDERS)
    with world.running():
        world.eventually_equal(topics, ORDERS, "orders")
    with pytest.raises(ConfigError, match=f"{world.config.slot}, and now names other"):
        world.run_to_end(slot="other")


def test_a_second_capture_of_the_name_is_kept_out_and_the_first_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(world, 3)
    topics = world.follow(ORDERS)
    with world.running():
        world.eventually_equal(topics, ORDERS, "orders")
        monkeypatch.setattr("headrace.cdc.lock.LOCK_S_MAX", 0.0)
        with pytest.raises(StoreUnavailable, match="runs already"):
            world.run_to_end()
        world.database.execute("INSERT INTO orders VALUES (4, 'x')")
        world.eventually_equal(topics, ORDERS, "orders")


def test_an_idle_capture_lets_the_database_delete_its_log(world: World) -> None:
    make_orders(world, 3)
    with world.running(), connect(world.config.dsn) as connection:
        eventually(lambda: read_slot(connection, world.config.slot))
        # Of tables that are not captured, a lot; of the captured one nothing.
        world.database.execute("CREATE UNLOGGED TABLE other (n int)")
        world.database.execute("CREATE TABLE noise AS SELECT n FROM generate_series(1, 10000) n")
        target = world.database.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")[0][0]

        def has_passed() -> bool:
            slot = read_slot(connection, world.config.slot)
            return slot is not None and (slot.confirmed_lsn or 0) > target

        eventually(has_passed, "the confirmed position")


def test_a_standby_that_takes_no_heartbeats_is_captured_without(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    make_orders(world, 3)
    # Functions that answer as those of a standby do, and are found before the real ones.
    world.database.execute(
        "CREATE SCHEMA standby; "
        "CREATE FUNCTION standby.pg_is_in_recovery() RETURNS bool LANGUAGE sql AS 'SELECT true'; "
        "CREATE FUNCTION standby.pg_last_wal_replay_lsn() RETURNS pg_lsn LANGUAGE sql "
        "AS 'SELECT pg_current_wal_lsn()'; "
        "CREATE FUNCTION standby.pg_logical_emit_message(bool, text, text, bool) RETURNS pg_lsn "
        "LANGUAGE plpgsql AS $$ BEGIN RAISE 'recovery is in progress' USING ERRCODE = 'XX000'; END $$"
    )
    topics = world.follow(ORDERS)
    options = "-c search_path=standby,pg_catalog,public"
    with world.running(dsn=make_conninfo(world.config.dsn, options=options)):
        world.await_streaming()
        eventually(lambda: "no heartbeats are written" in caplog.text)
        world.database.execute("INSERT INTO orders VALUES (4, 'x')")
        world.eventually_equal(topics, ORDERS, "orders")


@on_each_server
def test_a_large_transaction_is_streamed_and_published_in_one_piece(world: World) -> None:
    make_orders(world, 1)
    topics = world.follow(ORDERS, "shop.transaction")
    world.database.execute(
        f"ALTER DATABASE {world.database.execute('SELECT current_database()')[0][0]} "
        "SET logical_decoding_work_mem = '64kB'"
    )
    with world.running():
        world.eventually_equal(topics, ORDERS, "orders")
        with world.database.connect() as connection, connection.transaction():
            connection.execute("INSERT INTO orders SELECT n, 'big' FROM generate_series(10, 4000) n")
            with connection.transaction(force_rollback=True):
                connection.execute("UPDATE orders SET v = 'rolled back'")
        world.eventually_equal(topics, ORDERS, "orders")
    ends = [
        each.value
        for each in topics.events
        if each.topic == "shop.transaction" and each.value["status"] == "END"
    ]
    assert [each["event_count"] for each in ends] == [3991]


@pytest.mark.parametrize(
    ("publication", "words"),
    [
        ("FOR TABLE orders", r"lacks public\.parted, so its changes would be missing"),
        ("FOR ALL TABLES WITH (publish = 'insert, truncate')", "leaves out update, delete"),
        ("FOR ALL TABLES", r"public\.parted is partitioned: .*publish_via_partition_root"),
    ],
)
def test_a_publication_of_others_by_which_changes_would_be_missing_is_refused(
    world: World, publication: str, words: str
) -> None:
    make_orders(world, 1)
    keys = "" if "TABLE orders" in publication else "PARTITION BY RANGE (id)"
    world.database.execute(f"CREATE TABLE parted (id int PRIMARY KEY) {keys}")
    world.database.execute(f"CREATE PUBLICATION shop {publication}")
    with pytest.raises(ConfigError, match=words):
        world.run_to_end(snapshot="only")


def test_a_role_that_may_only_replicate_and_read_is_enough(world: World) -> None:
    make_orders(world, 3)
    database = world.database.execute("SELECT current_database()")[0][0]
    role = f"capture_{database}"
    for statement in (
        f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'least'",
        f"GRANT CONNECT ON DATABASE {database} TO {role}",
        f"GRANT USAGE ON SCHEMA public TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}",
        "CREATE PUBLICATION shop FOR TABLES IN SCHEMA public WITH (publish_via_partition_root = true)",
    ):
        world.database.execute(statement)
    topics = world.follow(ORDERS)
    with world.running(dsn=make_conninfo(world.config.dsn, user=role, password="least")):
        world.eventually_equal(topics, ORDERS, "orders")
        world.database.execute("UPDATE orders SET v = 'new'")
        world.eventually_equal(topics, ORDERS, "orders")
    world.database.execute(f"DROP OWNED BY {role}")
    world.database.execute(f"DROP ROLE {role}")


def test_a_table_that_is_created_after_the_start_and_not_captured_is_told_of(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(world, 1)
    monkeypatch.setattr("headrace.cdc.capture.LOOK_FOR_TABLES_S", 0.1)
    monkeypatch.setattr("headrace.cdc.capture.LOOK_S", 0.1)
    with world.running(exclude_tables=("public.unwanted",)):
        world.await_streaming()
        world.database.execute("CREATE TABLE unwanted (id int); CREATE TABLE later (id int PRIMARY KEY)")
        eventually(lambda: "public.later is not captured" in caplog.text, within_s=120)
    assert "public.unwanted" not in caplog.text
    assert "public.orders is not captured" not in caplog.text


def test_the_first_transaction_after_a_start_names_the_place_up_to_which_all_is_published(
    world: World,
) -> None:
    make_orders(world, 1)
    topics = world.follow(ORDERS)
    for number in (2, 3):
        with world.running():
            world.await_streaming()
            world.database.execute("INSERT INTO orders VALUES (%s, 'x')", number)
            world.eventually_equal(topics, ORDERS, "orders")
    streamed = [each.value["source"] for each in topics.events if each.value["op"] == "c"]
    befores = [json.loads(each["sequence"])[0] for each in streamed]
    assert None not in befores
    assert int(befores[0]) <= streamed[0]["lsn"] < int(befores[1]) <= streamed[1]["lsn"]


@pytest.mark.parametrize(("one", "written"), [("SELECT 1::money::text", "12.34"), ("SELECT '￥1'", "1234")])
def test_money_has_as_many_digits_behind_the_point_as_the_database_gives_it(
    world: World, monkeypatch: pytest.MonkeyPatch, one: str, written: str
) -> None:
    """The second is how a server with the money of Japan answers, and what it would show as ￥1,234."""
    world.database.execute("CREATE TABLE prices (id int PRIMARY KEY, price money)")
    world.database.execute("INSERT INTO prices VALUES (1, 12.34)")
    monkeypatch.setattr("headrace.cdc.database_catalog._ONE", one)
    world.run_to_end(snapshot="only")
    assert world.follow("shop.public.prices").table("shop.public.prices")[1]["price"] == written
