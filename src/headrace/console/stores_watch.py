"""Watches the stores of a data directory: by the statuses of their pipelines, and the ends of what they read.

Two works, each for a thread of its own, because how far a store is behind takes a second to find out, and a
look at the statuses must not wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.console.changes_reader import ChangesReader
from headrace.console.meter import Meter, Stopped, places
from headrace.console.observations import LagsMeasured, Observation, StoresSeen
from headrace.console.pipelines import epoch_ms, look
from headrace.console.travel import Change, Store, followers
from headrace.driver.store_lag import StoreLag, StoreLagReader
from headrace.errors import BrokerUnavailable

if TYPE_CHECKING:
    from headrace.config import ConsoleConfig
    from headrace.driver.status import Offsets, Status

LOOK_EVERY_S: Final = 1.0
LAG_EVERY_S: Final = 2.0
TOPIC_COUNT_MAX: Final = 50
"""Of more topics that stores follow, the rest is not read."""

Settings = Mapping[str, str | int | float | bool]
Post = Callable[[Observation], None]


def watch_stores(
    data_dir: Path, settings: Settings, of_consumers: Settings, stop: threading.Event, post: Post
) -> None:
    """Tell once a second what stores there are, and which changes came, until it is stopped."""
    _await_stores(data_dir, stop)
    meter = Meter(settings, stop)
    with closing(ChangesReader({**settings, **of_consumers})) as reader:
        while not stop.is_set():
            found = stores_of(data_dir)
            try:
                post(StoresSeen(stores=tuple(found), changes=tuple(_changes(meter, reader, found))))
            except Stopped:
                return
            stop.wait(LOOK_EVERY_S)


def measure_lags(config: ConsoleConfig, data_dir: Path, stop: threading.Event, post: Post) -> None:
    """Tell every few seconds how far stores are behind, until it is stopped."""
    _await_stores(data_dir, stop)
    with closing(StoreLagReader(config.bootstrap, config.client_options)) as reader:
        while not stop.is_set():
            lags: dict[str, StoreLag] = {}
            for pipeline in [store.pipeline for store in stores_of(data_dir)]:
                # Looked up anew, because it has gone on while others were measured.
                next_offsets = _next_offsets(data_dir, pipeline)
                lag = reader.lag(next_offsets) if next_offsets and not stop.is_set() else None
                if lag is not None:
                    lags[pipeline] = lag
            post(LagsMeasured(lags=lags))
            stop.wait(LAG_EVERY_S)


def stores_of(data_dir: Path) -> list[Store]:
    """The stores that the pipelines of a directory keep."""
    return followers(store_of(status) for status in look(data_dir))


def store_of(status: Status) -> Store:
    """What a status tells of what its pipeline writes."""
    return Store(
        pipeline=status.name,
        kind=status.writes_kind,
        name=status.writes,
        state=status.state,
        reads=status.reads,
        next_offsets=status.next_offsets,
        updated_ms=epoch_ms(status.updated_at),
        last_error=status.last_error,
    )


def _next_offsets(data_dir: Path, pipeline: str) -> Offsets:
    return next((each.next_offsets for each in stores_of(data_dir) if each.pipeline == pipeline), {})


def _await_stores(data_dir: Path, stop: threading.Event) -> None:
    """Where there are none, no client has to be made."""
    while not stop.is_set() and not stores_of(data_dir):
        stop.wait(LOOK_EVERY_S)


def _changes(meter: Meter, reader: ChangesReader, stores: list[Store]) -> list[Change]:
    topics = tuple(dict.fromkeys(topic for store in stores for topic in store.reads))[:TOPIC_COUNT_MAX]
    if not topics:
        return []
    # A broker that is away is told of by whoever measures topics.
    with suppress(BrokerUnavailable):
        return reader.read(places(meter.ends(topics)))
    return []
