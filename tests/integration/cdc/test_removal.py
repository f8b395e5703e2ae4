"""The end of a capture: what it has made is gone, and nothing else."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from psycopg.conninfo import make_conninfo

from headrace.cdc import removal
from headrace.cdc.publisher import Publisher
from headrace.cdc.record import Record
from headrace.cdc.removal import begin_anew, forget_database, remove
from headrace.cdc.state import CaptureState, Phase
from headrace.errors import BrokerUnavailable, CaptureFailed, ConfigError, SlotLost

if TYPE_CHECKING:
    from tests.integration.cdc.conftest import World

ORDERS = "shop.public.orders"


def has_run(world: World, **settings: Any) -> None:
    topics = world.follow(ORDERS)
    with world.running(**settings):
        world.eventually_equal(topics, ORDERS, "orders")


def make_orders(world: World) -> None:
    world.database.execute("CREATE TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (1)")


def slots(world: World) -> list[Any]:
    return world.database.execute(
        "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    )


def publications(world: World) -> list[Any]:
    return world.database.execute("SELECT pubname FROM pg_publication")


def test_what_a_capture_has_made_goes(world: World) -> None:
    make_orders(world)
    has_run(world)
    assert remove(world.config) == []
    assert (slots(world), publications(world)) == ([], [])


def test_a_capture_whose_database_is_gone_is_forgotten_and_what_may_be_there_is_told(world: World) -> None:
    make_orders(world)
    has_run(world)
    gone = replace(world.config, dsn="host=127.0.0.1 port=1 dbname=gone")
    left = forget_database(gone)
    assert left.names == [f"the replication slot {gone.slot}", "the publication shop"]
    topics = AdminClient({"bootstrap.servers": world.bootstrap}).list_topics(timeout=60).topics
    assert ORDERS in topics
    assert "shop.capture" not in topics
    # It was not gone, after all.
    assert (slots(world), publications(world)) == ([(gone.slot,)], [("shop",)])
    for statement in left.statements:
        world.database.execute(statement)
        world.database.execute(statement)
    assert (slots(world), publications(world)) == ([], [])


def test_a_publication_of_others_is_not_said_to_be_the_captures(world: World) -> None:
    make_orders(world)
    world.database.execute("CREATE PUBLICATION shop FOR TABLE orders")
    has_run(world)
    left = forget_database(world.config)
    assert left.names == [f"the replication slot {world.config.slot}"]
    assert "PUBLICATION" not in " ".join(left.statements)
    assert remove(world.config) == [f"the replication slot {world.config.slot}", "the publication shop"]


def test_what_a_capture_has_not_made_stays(world: World) -> None:
    make_orders(world)
    slot = world.config.slot
    world.database.execute("CREATE TABLE other (id int PRIMARY KEY)")
    world.database.execute("CREATE PUBLICATION shop FOR TABLE orders")
    world.database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", slot)
    assert remove(world.config) == [f"the replication slot {slot}", "the publication shop"]
    assert (slots(world), publications(world)) == ([(slot,)], [("shop",)])
    world.database.execute("SELECT pg_drop_replication_slot(%s)", slot)
    has_run(world, include_tables=("public.orders",))
    assert remove(world.config) == ["the publication shop"]
    assert slots(world) == []
    tables = world.database.execute("SELECT tablename FROM pg_publication_tables WHERE pubname = 'shop'")
    assert tables == [("orders",)]


def test_a_role_that_owns_nothing_can_remove_its_capture(world: World) -> None:
    make_orders(world)
    role = f"remover_{world.database.execute('SELECT current_database()')[0][0]}"
    world.database.execute(
        f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'least'; GRANT SELECT ON orders TO {role}; "
        "CREATE PUBLICATION shop FOR TABLE orders WITH (publish_via_partition_root = true)"
    )
    config = replace(world.config, dsn=make_conninfo(world.config.dsn, user=role, password="least"))
    has_run(world, dsn=config.dsn)
    assert remove(config) == ["the publication shop"]
    assert slots(world) == []
    world.database.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_nothing_is_dropped_where_the_broker_does_not_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(world)
    has_run(world)
    monkeypatch.setattr(removal, "ANSWER_S_MAX", 0.2)
    with pytest.raises(BrokerUnavailable):
        remove(replace(world.config, bootstrap="127.0.0.1:1"))
    assert slots(world) == [(world.config.slot,)]
    assert publications(world) == [("shop",)]


@pytest.mark.parametrize("request_name", ["create_topics", "delete_topics"])
def test_a_broker_that_does_not_answer_in_time_is_told_of_as_unavailable(
    world: World, monkeypatch: pytest.MonkeyPatch, request_name: str
) -> None:
    def unanswered(self: AdminClient, topics: list[Any], **_: Any) -> dict[str, Future[None]]:
        return {str(topic): Future() for topic in topics}

    monkeypatch.setattr(AdminClient, request_name, unanswered)
    monkeypatch.setattr(removal, "ANSWER_S_MAX", 0.5)
    with pytest.raises(BrokerUnavailable):
        remove(world.config)


def test_the_other_of_two_captures_of_one_prefix_keeps_its_position(world: World) -> None:
    publisher = Publisher(world.config)
    publisher.commit(CaptureState(slot="s", system="1", phase=Phase.STREAMING))
    publisher.close()
    remove(replace(world.config, name="b", slot="b", publication="b", prefix="shop"))
    publisher = Publisher(world.config)
    publisher.close()
    assert publisher.state is not None


def test_a_state_that_can_not_be_read_is_no_obstacle_to_beginning_anew(world: World) -> None:
    publisher = Publisher(world.config)
    publisher.send([Record("shop.capture", b"shop", b"what is this?")])
    publisher._producer.commit_transaction()
    with pytest.raises(CaptureFailed, match="begins anew"):
        Publisher(world.config)
    begin_anew(world.config)
    publisher = Publisher(world.config)
    publisher.close()
    assert publisher.state is not None
    assert publisher.state.phase is Phase.MAKING_SLOT


def test_beginning_anew_drops_no_slot_of_others(world: World) -> None:
    make_orders(world)
    slot = world.config.slot
    world.database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", slot)
    with pytest.raises(ConfigError, match="has not made it"):
        begin_anew(world.config)
    world.database.execute("SELECT pg_drop_replication_slot(%s)", slot)
    begin_anew(world.config)
    world.database.execute("SELECT pg_create_physical_replication_slot(%s)", slot)
    try:
        with pytest.raises(SlotLost, match="it is one of no plugin"):
            begin_anew(world.config)
        with pytest.raises(SlotLost, match="it is one of no plugin"):
            world.run_to_end()
        assert remove(world.config) == [f"the replication slot {slot}"]
    finally:
        # One that is not there any more can't be dropped.
        world.database.execute("SELECT pg_drop_replication_slot(%s)", slot)
