"""How changes travel from the log to the stores that follow it. Pure: nobody asks a store anything.

A change is a record: topic, partition, offset, and when the database committed it. A store *has* it when the
`next_offsets` of the status of its pipeline have passed it. So a change that is not decodable, or that its
pipeline filters, arrives, too: the store is as it should be with regard to it.

Statuses are written about once a second by the driver, and looked at once a second; each look is kept for a
while. A change has arrived at the time of the first look that says so. That is never too early, and at most
as much too late as two statuses are apart. Of a change that a store had in the oldest look that is kept,
nobody knows when it got there.

What arrived stays so, also where a pipeline that was reset or rebuilt reads it once more.

Not safe to share between threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.driver.status import Offsets
from headrace.driver.store_lag import StoreLag

CHANGE_COUNT_MAX: Final = 5_000
"""So many of the newest changes are remembered: some minutes of them, since only a few of a second are read.
A change must not be forgotten before it arrives, or those of a slow store would never be seen to."""
SHOWN_COUNT_MAX: Final = 40
"""How many changes the page shows; half of them, where there are so many, are in all stores."""
LOOK_COUNT_MAX: Final = 120
"""So many looks at each store are kept: two minutes."""
DEAD_LETTERS: Final = ".dead-letters"
TOPIC: Final = "topic"

Place = tuple[str, int, int]
"""Topic, partition and offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A record of a topic that a store follows."""

    topic: str
    partition: int
    offset: int
    committed_ms: int
    """When the database committed it; of a record that does not tell, when it was written."""
    operation: str | None = None
    """What happened to the row, in one word; None where the record does not tell."""
    key: str | None = None

    @property
    def place(self) -> Place:
        """Which record it is."""
        return self.topic, self.partition, self.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """What is known of a store, by the status of its pipeline."""

    pipeline: str
    kind: str
    """`table`, `search index`, ..., or `topic` of a view that is one."""
    name: str
    state: str
    """The pipeline's."""
    reads: tuple[str, ...]
    next_offsets: Offsets
    updated_ms: int
    """When the status was written."""
    last_error: str | None = None

    def has(self, change: Change) -> bool:
        """Whether the change was taken into account."""
        return self.next_offsets.get(change.topic, {}).get(change.partition, 0) > change.offset


def followers(stores: Iterable[Store]) -> list[Store]:
    """Those of all pipelines that keep a store, or a topic that is made of what stores are made of."""
    all_of_them = list(stores)
    kept = [store for store in all_of_them if store.kind != TOPIC]
    topics = {topic for store in kept for topic in store.reads}
    return [
        store
        for store in all_of_them
        if store.kind != TOPIC or (topics.intersection(store.reads) and not store.name.endswith(DEAD_LETTERS))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A change in a store."""

    took_ms: int | None
    """From the commit on, at most; None where nobody looked when it arrived."""


@dataclass(slots=True)
class _Journey:
    """A change, and the stores that have it, by pipeline."""

    change: Change
    arrivals: dict[str, Arrival] = field(default_factory=dict)


class Travels:
    """The last changes, and where they are; see the top of this file."""

    def __init__(self) -> None:
        self._journeys: dict[Place, _Journey] = {}
        self._looks: dict[str, deque[Store]] = {}
        self._lags: dict[str, StoreLag] = {}
        self._arrived_counts: dict[str, int] = {}

    def take(self, stores: Sequence[Store], changes: Iterable[Change]) -> None:
        """Take in a look at all stores, and changes that were read since the last one."""
        for change in changes:
            self._journeys.setdefault(change.place, _Journey(change))
        while len(self._journeys) > CHANGE_COUNT_MAX:
            del self._journeys[next(iter(self._journeys))]
        self._looks = {
            store.pipeline: self._looks.get(store.pipeline, deque(maxlen=LOOK_COUNT_MAX)) for store in stores
        }
        for store in stores:
            looks = self._looks[store.pipeline]
            if not looks or looks[-1].updated_ms != store.updated_ms or looks[-1].state != store.state:
                looks.append(store)
            self._arrive(store.pipeline, looks)

    def measure(self, lags: Mapping[str, StoreLag]) -> None:
        """Take in how far the stores are behind, by pipeline."""
        self._lags = dict(lags)

    def as_json(self, now_ms: int, *, with_keys: bool) -> dict[str, Any]:
        """What the page shows. Keys are parts of records, which not everybody may see."""
        return {
            "stores": [self._store_json(looks[-1], now_ms) for looks in self._looks.values()],
            "changes": [self._journey_json(each, with_keys=with_keys) for each in self._shown()],
        }

    def _shown(self) -> list[_Journey]:
        """The newest changes, and the newest of those that are everywhere: of the newest, none may be there
        where a store is slow, or changes are many."""
        newest = sorted(self._journeys.values(), key=lambda each: each.change.committed_ms, reverse=True)
        arrived = [each for each in newest if self._is_everywhere(each)][: SHOWN_COUNT_MAX // 2]
        places = {each.change.place for each in arrived}
        others = [each for each in newest if each.change.place not in places]
        shown = [*arrived, *others[: SHOWN_COUNT_MAX - len(arrived)]]
        return sorted(shown, key=lambda each: each.change.committed_ms, reverse=True)

    def _is_everywhere(self, journey: _Journey) -> bool:
        return all(
            pipeline in journey.arrivals
            for pipeline, looks in self._looks.items()
            if journey.change.topic in looks[-1].reads
        )

    def _arrive(self, pipeline: str, looks: Sequence[Store]) -> None:
        for journey in self._journeys.values():
            change = journey.change
            if pipeline in journey.arrivals or not looks[-1].has(change):
                continue
            journey.arrivals[pipeline] = arrival_of(change, looks)
            self._arrived_counts[pipeline] = self._arrived_counts.get(pipeline, 0) + 1

    def _store_json(self, store: Store, now_ms: int) -> dict[str, Any]:
        lag = self._lags.get(store.pipeline)
        took = sorted(
            arrival.took_ms
            for journey in self._journeys.values()
            if (arrival := journey.arrivals.get(store.pipeline)) is not None and arrival.took_ms is not None
        )
        return {
            "pipeline": store.pipeline,
            "kind": store.kind,
            "name": store.name,
            "state": store.state,
            "reads": list(store.reads),
            "lag_rows": None if lag is None else lag.rows,
            "lag_bytes": None if lag is None else lag.bytes,
            "lag_s": None if lag is None else round(lag.seconds, 1),
            "told_ms_ago": max(0, now_ms - store.updated_ms),
            "arrived_count": self._arrived_counts.get(store.pipeline, 0),
            "took_ms_p50": took[len(took) // 2] if took else None,
            "took_ms_max": took[-1] if took else None,
            "last_error": store.last_error,
        }

    def _journey_json(self, journey: _Journey, *, with_keys: bool) -> dict[str, Any]:
        change = journey.change
        return {
            "topic": change.topic,
            "partition": change.partition,
            "offset": change.offset,
            "operation": change.operation,
            "key": change.key if with_keys else None,
            "committed_ms": change.committed_ms,
            "stores": {
                pipeline: _arrival_json(journey.arrivals.get(pipeline))
                for pipeline, looks in self._looks.items()
                if change.topic in looks[-1].reads
            },
        }


def arrival_of(change: Change, looks: Sequence[Store]) -> Arrival:
    """When a change arrived in a store that has it, by all looks at it, the oldest first."""
    if looks[0].has(change):
        return Arrival(took_ms=None)
    first = next(look for look in looks if look.has(change))
    return Arrival(took_ms=max(0, first.updated_ms - change.committed_ms))


def _arrival_json(arrival: Arrival | None) -> dict[str, Any]:
    return {"has": arrival is not None, "took_ms": None if arrival is None else arrival.took_ms}
