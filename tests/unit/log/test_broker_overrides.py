"""Defaults of topics that change while the broker runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from headrace.clock import Clock
from headrace.config import LogConfig
from headrace.errors import ConfigError, StorageError
from headrace.log.broker_overrides import BrokerOverrides
from headrace.log.store import LogStore
from headrace.testing.disk import SimulatedDisk

OpenStore = Callable[[], LogStore]
DATA_DIR = Path("/home/somebody/.headrace")
FILE = DATA_DIR / "broker-settings.json"


@pytest.fixture
def open_store(disk: SimulatedDisk, clock: Clock) -> OpenStore:
    return lambda: LogStore.open(DATA_DIR, LogConfig(retention_ms=5), clock, disk=disk)


def retention_ms(store: LogStore, topic: str) -> int:
    return store.topics[topic].partitions[0].settings.retention_ms


def test_defaults_hold_at_once_for_all_topics_that_say_nothing_else(
    open_store: OpenStore, disk: SimulatedDisk
) -> None:
    store = open_store()
    store.catalog.begin_creation("plain", 1).at_once()
    store.catalog.begin_creation("special", 1, {"retention.ms": "7"}).at_once()
    store.begin_override(BrokerOverrides(cluster={"log.retention.ms": "10"})).at_once()
    assert (retention_ms(store, "plain"), retention_ms(store, "special")) == (10, 7)
    store.begin_override(
        BrokerOverrides(cluster={"log.retention.ms": "10"}, broker={"log.retention.ms": "9"})
    ).at_once()
    store.catalog.begin_creation("new", 1).at_once()
    disk.crash(Random(1))
    store = open_store()
    assert [retention_ms(store, name) for name in ("plain", "special", "new")] == [9, 7, 9]
    store.begin_override(BrokerOverrides()).at_once()
    assert [retention_ms(store, name) for name in ("plain", "special", "new")] == [5, 7, 5]


def test_a_topic_that_is_created_while_defaults_change_gets_the_new_ones(open_store: OpenStore) -> None:
    store = open_store()
    creation = store.catalog.begin_creation("orders", 1)
    creation.run()
    store.begin_override(BrokerOverrides(broker={"log.retention.ms": "9"})).at_once()
    creation.finish()
    assert retention_ms(store, "orders") == 9


def test_what_is_set_for_groups_survives_a_crash_and_a_change_of_defaults(
    open_store: OpenStore, disk: SimulatedDisk
) -> None:
    groups = {"billing": {"share.isolation.level": "read_committed"}, "a/b c\u00e9": {"x": "y"}}
    store = open_store()
    store.catalog.begin_creation("plain", 1).at_once()
    store.begin_override(BrokerOverrides(groups=groups)).at_once()
    disk.crash(Random(1))
    store = open_store()
    assert store.overrides == BrokerOverrides(groups=groups)
    assert retention_ms(store, "plain") == 5
    store.begin_override(replace(store.overrides, broker={"log.retention.ms": "9"})).at_once()
    disk.crash(Random(1))
    store = open_store()
    assert store.overrides.groups == groups
    assert retention_ms(store, "plain") == 9


def test_a_file_of_a_version_that_knew_no_settings_of_groups_is_read(
    open_store: OpenStore, disk: SimulatedDisk
) -> None:
    store = open_store()
    store.begin_override(BrokerOverrides(broker={"log.retention.ms": "1"})).at_once()
    store.close()
    disk.overwrite(FILE, b'{"format": 1, "cluster": {}, "broker": {"log.retention.ms": "9"}}')
    assert open_store().overrides == BrokerOverrides(broker={"log.retention.ms": "9"})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"log.retention.ms": "long"}, r"log\.retention\.ms is a default of topics\. Invalid value 'long'"),
        ({"retention.ms": "1"}, r"retention\.ms can't be changed"),
        ({"log.cleaner.max.compaction.lag.ms": "1"}, r"min\.compaction\.lag\.ms is 2"),
    ],
)
def test_a_default_that_cannot_be_is_refused_and_nothing_changes(
    open_store: OpenStore, overrides: dict[str, str], message: str
) -> None:
    store = open_store()
    store.catalog.begin_creation("orders", 1, {"min.compaction.lag.ms": "2"}).at_once()
    with pytest.raises(ConfigError, match=message):
        store.begin_override(BrokerOverrides(broker=overrides)).at_once()
    assert store.overrides == BrokerOverrides()
    assert store.failed is None


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b"{}", b'{"format": 1}', b"\xff", b'{"format": 2}'),
        b'{"format": 1, "cluster": {}, "broker": {}, "groups": {"g": 1}}',
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    open_store: OpenStore, disk: SimulatedDisk, content: bytes
) -> None:
    store = open_store()
    store.begin_override(BrokerOverrides(broker={"log.retention.ms": "9"})).at_once()
    store.close()
    disk.overwrite(FILE, content)
    with pytest.raises(StorageError, match=r"broker-settings\.json"):
        open_store()
