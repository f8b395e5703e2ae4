"""Stores that are watched by the statuses of their pipelines and a real broker, and by nothing else."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from headrace.console import stores_watch
from headrace.console.feed import CONSUMER_SETTINGS, client_settings
from headrace.console.observations import LagsMeasured, Observation, StoresSeen
from headrace.console.stores_watch import measure_lags, watch_stores
from headrace.console.travel import Travels
from headrace.driver import store_lag
from headrace.driver.process import ProcessId
from headrace.driver.status import Offsets, Status, write_status
from headrace.driver.store_lag import StoreLag, StoreLagReader
from headrace.testing.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.console.conftest import Topics

    from headrace.config import ConsoleConfig

TOPIC = "shop.public.orders"
WITHIN_S = 60.0


def status(next_offset: int) -> Status:
    now = datetime.now(UTC)
    return Status(
        name="order_warehouse",
        state="running",
        process=ProcessId.own(),
        started_at=now,
        updated_at=now,
        mode="micro-batch",
        bootstrap="b",
        reads=(TOPIC,),
        writes="/data/orders",
        writes_kind="Delta table",
        next_offsets={TOPIC: {0: next_offset}},
    )


def event(committed_ms: int) -> bytes:
    return json.dumps({"op": "c", "after": {"order_id": 1}, "source": {"ts_ms": committed_ms}}).encode()


class Seen:
    """All that was posted."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []
        self.travels = Travels()

    def post(self, observation: Observation) -> None:
        self.observations.append(observation)
        match observation:
            case StoresSeen(stores=stores, changes=changes):
                self.travels.take(stores, changes)
            case LagsMeasured(lags=lags):
                self.travels.measure(lags)
            case _:
                raise AssertionError(observation)


@contextmanager
def working(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """On a thread of its own, which must end when it is told to."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(WITHIN_S)
    assert not thread.is_alive()


def test_a_change_is_seen_on_its_way_and_when_it_has_arrived(
    topics: Topics, config: ConsoleConfig, tmp_path: Path
) -> None:
    seen, settings = Seen(), client_settings(config)

    def work(stop: threading.Event) -> None:
        watch_stores(tmp_path, settings, CONSUMER_SETTINGS, stop, seen.post)

    def told() -> list[tuple[str, bool]]:
        found = seen.travels.as_json(0, with_keys=True)["changes"]
        return [(each["operation"], each["stores"]["order_warehouse"]["has"]) for each in found]

    topics.create(TOPIC)
    topics.send(TOPIC, event(1))
    with working(work):
        write_status(tmp_path, status(1))
        eventually(lambda: seen.observations, within_s=WITHIN_S)
        topics.send(TOPIC, event(time.time_ns() // 1_000_000))
        # What was there before anybody looked is not shown.
        eventually(lambda: told() == [("insert", False)], lambda: str(told()), within_s=WITHIN_S)
        write_status(tmp_path, status(2))
        eventually(lambda: told() == [("insert", True)], lambda: str(told()), within_s=WITHIN_S)
    (change,) = seen.travels.as_json(0, with_keys=True)["changes"]
    assert change["stores"]["order_warehouse"]["took_ms"] is not None


def test_how_far_a_store_is_behind_is_measured(topics: Topics, config: ConsoleConfig, tmp_path: Path) -> None:
    seen = Seen()
    topics.create(TOPIC)
    topics.send(TOPIC, *(event(number) for number in range(5)))
    write_status(tmp_path, status(2))

    def lag() -> int | None:
        stores = seen.observations and seen.observations[-1]
        assert isinstance(stores, LagsMeasured)
        return stores.lags["order_warehouse"].rows if stores.lags else None

    def work(stop: threading.Event) -> None:
        measure_lags(replace(config, data_dir=tmp_path), tmp_path, stop, seen.post)

    with working(work):
        eventually(lambda: seen.observations, within_s=WITHIN_S)
        eventually(lambda: lag() == 3, within_s=WITHIN_S)
        write_status(tmp_path, status(5))
        eventually(lambda: lag() == 0, within_s=WITHIN_S)


def test_where_there_is_no_store_nobody_is_asked_anything(tmp_path: Path, nowhere: ConsoleConfig) -> None:
    seen = Seen()

    def work(stop: threading.Event) -> None:
        watch_stores(tmp_path, client_settings(nowhere), CONSUMER_SETTINGS, stop, seen.post)

    with working(work):
        pass
    assert seen.observations == []


def test_where_each_store_stands_is_looked_up_when_its_turn_comes(
    tmp_path: Path, nowhere: ConsoleConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To measure one takes a while, and by then the others have gone on."""
    first, second = replace(status(1), name="a"), replace(status(1), name="b")
    measured: list[Offsets] = []
    stop = threading.Event()

    class Reader:
        def __init__(self, *_arguments: object) -> None:
            """Asks nobody."""

        def lag(self, next_offsets: Offsets) -> StoreLag:
            measured.append(next_offsets)
            write_status(tmp_path, replace(second, next_offsets={TOPIC: {0: 2}}))
            return StoreLag(rows=0, bytes=0, seconds=0.0)

        def close(self) -> None:
            """Nothing is open."""

    def post(_: Observation) -> None:
        stop.set()

    monkeypatch.setattr(stores_watch, "StoreLagReader", Reader)
    for each in (first, second):
        write_status(tmp_path, each)
    measure_lags(nowhere, tmp_path, stop, post)
    assert measured == [{TOPIC: {0: 1}}, {TOPIC: {0: 2}}]


@pytest.mark.timeout(120)
def test_the_few_records_that_wait_are_measured_without_waiting_for_more(
    topics: Topics, config: ConsoleConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or else a store would seem to be behind by as long as it takes to measure it."""
    monkeypatch.setattr(store_lag, "_LOOK_S", 600.0)
    topics.create(TOPIC)
    topics.send(TOPIC, *(event(number) for number in range(5)))
    with closing(StoreLagReader(config.bootstrap, config.client_options)) as reader:
        eventually(lambda: (found := reader.lag({TOPIC: {0: 2}})) is not None and found.rows == 3)
