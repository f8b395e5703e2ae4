"""The snapshot that a view's source is compared by: of the right tables, and not before all is published."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from headrace.cdc import removal
from headrace.cdc.publisher import Publisher
from headrace.cdc.removal import delete_topics
from headrace.cdc.state import CaptureState, Phase, TableSnapshot
from headrace.cli import view_source
from headrace.cli.view_source import await_published, snapshot_of
from headrace.errors import BrokerUnavailable, ConfigError
from headrace.testing.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.cdc.conftest import World


def scratch_topics(world: World) -> list[str]:
    topics = AdminClient({"bootstrap.servers": world.bootstrap}).list_topics(timeout=30).topics
    return [name for name in topics if "verify" in name]


def silent(_line: str) -> None:
    """Nobody looks on."""


def test_a_table_whose_name_no_topic_can_have_is_found_and_nothing_is_left_of_its_snapshot(
    world: World,
) -> None:
    world.database.execute('CREATE TABLE "größen [alt]" (id int PRIMARY KEY)')
    world.database.execute('INSERT INTO "größen [alt]" VALUES (1), (2)')
    topic = "shop.public.gr__en__alt_"
    with world.running():
        eventually(lambda: len(world.follow(topic).read()) == 2)
        with snapshot_of(world.config, [topic], silent) as taken:
            rows = world.follow(taken.topics[topic])
            assert set(rows.table(taken.topics[topic])) == {1, 2}
    assert scratch_topics(world) == []


def test_a_topic_of_no_table_is_refused_before_anything_is_read(world: World) -> None:
    world.database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    with (
        pytest.raises(ConfigError, match=r"has no table for shop\.public\.gone"),
        snapshot_of(world.config, ["shop.public.orders", "shop.public.gone"], silent),
    ):
        pass


def test_a_capture_is_not_compared_while_rows_of_its_own_snapshot_are_missing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_source, "PUBLISHED_S_MAX", 0.0)
    monkeypatch.setattr(view_source, "PAUSE_S", 0.01)
    state = CaptureState(slot="s", system="1", phase=Phase.STREAMING, lsn=100)
    publisher = Publisher(world.config)
    publisher.commit(replace(state, tables=(TableSnapshot(schema="public", table="orders"),)))
    with pytest.raises(ConfigError, match=r"not published all rows of public\.orders"):
        await_published(world.config, 100)
    publisher.commit(state)
    await_published(world.config, 100)
    with pytest.raises(ConfigError, match="is it running"):
        await_published(world.config, 101)
    publisher.close()


def test_topics_of_a_broker_that_does_not_answer_are_told_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "ANSWER_S_MAX", 0.2)
    with pytest.raises(BrokerUnavailable, match=r"shop\.\* could not be deleted"):
        delete_topics(replace(world.config, bootstrap="127.0.0.1:1"))


def test_a_run_that_is_told_to_end_clears_away_what_it_has_made(world: World) -> None:
    world.database.execute("CREATE TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (1)")
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with world.running():
            world.await_streaming()
            with pytest.raises(KeyboardInterrupt), snapshot_of(world.config, ["shop.public.orders"], silent):
                os.kill(os.getpid(), signal.SIGTERM)
        assert scratch_topics(world) == []
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
