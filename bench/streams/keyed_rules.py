"""Three rules about card transactions, written in each way that can be measured, and once as a plain loop.

A card's transactions are judged in the order in which they lie in the log: how many there were in the last
minute, how much was spent in the last ten, and how fast the card would have had to travel. A transaction that
comes late counts as of the newest time of its card.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import headrace.streams as hr
from cards import transactions

MINUTE_MS: Final = 60_000
COUNT_MIN: Final = 8
SPENT_CENTS_MIN: Final = 1_800_000
SPEED_KMH_MIN: Final = 15_000.0
KM_PER_DEGREE: Final = 111.0
ALERT: Final = "tx bigint, seen bigint, spent bigint, speed double"
HISTORY: Final = "cents bigint, lat double, lon double, at_ms bigint"
"""What is kept of each transaction of the last ten minutes, by a vectorised step."""

Alert = tuple[str, int, int, int, float]


def speed_kmh(lat: float, lon: float, lat_before: float, lon_before: float, pause_ms: int) -> float:
    """How fast the card has travelled, on a flat world."""
    north, east = (lat - lat_before) * KM_PER_DEGREE, (lon - lon_before) * KM_PER_DEGREE
    return math.sqrt(north * north + east * east) / max(pause_ms, 1000) * 3_600_000


def judge(state: dict[str, Any], cents: int, lat: float, lon: float, at_ms: int) -> tuple[int, int, float]:
    """Take a transaction in, and return how many there were, how much was spent, and the speed."""
    times, spent = state["times"], state["spent"]
    before_ms = times[-1] if times else at_ms
    now_ms = max(at_ms, before_ms)
    speed = 0.0
    if times:
        speed = speed_kmh(lat, lon, state["lat"], state["lon"], now_ms - before_ms)
    times.append(now_ms)
    spent.append(cents)
    old = 0
    while times[old] <= now_ms - 10 * MINUTE_MS:
        old += 1
    if old:
        del times[:old], spent[:old]
    state["lat"], state["lon"] = lat, lon
    seen = sum(1 for each in times if each > now_ms - MINUTE_MS)
    return seen, sum(spent), speed


def is_suspicious(seen: int, spent: int, speed: float) -> bool:
    """Whether to tell of a transaction."""
    return seen >= COUNT_MIN or spent >= SPENT_CENTS_MIN or speed >= SPEED_KMH_MIN


def reference(count: int, cards: int) -> Counter[Alert]:
    """The alerts, by a loop over dicts."""
    states: dict[str, dict[str, Any]] = defaultdict(
        lambda: {"times": [], "spent": [], "lat": 0.0, "lon": 0.0}
    )
    found: Counter[Alert] = Counter()
    for number, card, cents, lat, lon, at_ms in transactions(count, cards):
        told = judge(states[card], cents, lat, lon, at_ms)
        if is_suspicious(*told):
            found[card, number, *told] += 1
    return found


@dataclass
class History:
    """What is kept of a card, per event."""

    times: list[int] = field(default_factory=list)
    spent: list[int] = field(default_factory=list)
    lat: float | None = None
    lon: float | None = None


def per_event(key: str, row: dict[str, Any], state: dict[str, Any]) -> dict[str, Any] | None:  # noqa: ARG001 - see hr.keyed
    """The rules, a transaction at a time."""
    seen, spent, speed = judge(state, row["cents"], row["lat"], row["lon"], row["at_ms"])
    if not is_suspicious(seen, spent, speed):
        return None
    return {"tx": row["tx"], "seen": seen, "spent": spent, "speed": speed}


@hr.vectorised
def at_once(rows: pa.Table, state: pa.Table, time: hr.EventTime) -> tuple[pa.Table | None, pa.Table]:  # noqa: ARG001 - see hr.vectorised
    """The rules, all transactions of a bucket at a time."""
    if not len(rows):
        return None, state
    judged, after = judge_all(rows, state)
    seen, spent, speed = (judged[name].to_numpy() for name in ("seen", "spent", "speed"))
    told = (seen >= COUNT_MIN) | (spent >= SPENT_CENTS_MIN) | (speed >= SPEED_KMH_MIN)
    return judged.filter(pa.array(told)), after


def judge_all(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """What `judge` says of each transaction, and the state: the last ten minutes of each card."""
    both = pa.concat_tables(
        [
            state.append_column("tx", pa.array([-1] * len(state), pa.int64())),
            rows.select([*state.column_names, "tx"]),
        ]
    )
    cards = both["card"].combine_chunks().dictionary_encode()
    numbers = cards.indices.to_numpy().astype(np.int64)
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    cents, lat, lon, at_ms, tx = (
        both[name].to_numpy()[order] for name in ("cents", "lat", "lon", "at_ms", "tx")
    )
    # All cards on one line of time, each behind the one before: the newest so far is then a running maximum.
    first_ms = at_ms.min()
    span = int(at_ms.max() - first_ms) + 20 * MINUTE_MS
    now = np.maximum.accumulate(numbers * span + (at_ms - first_ms))
    places = np.arange(len(now))
    seen = places + 1 - np.searchsorted(now, now - MINUTE_MS, side="right")
    since = np.searchsorted(now, now - 10 * MINUTE_MS, side="right")
    spent_before = np.concatenate([[0], np.cumsum(cents)])
    spent = spent_before[1:] - spent_before[since]
    is_first = np.concatenate([[True], numbers[1:] != numbers[:-1]])
    north, east = (np.diff(each, prepend=each[0]) * KM_PER_DEGREE for each in (lat, lon))
    pause = np.maximum(np.diff(now, prepend=now[0]), 1000)
    speed = np.where(is_first, 0.0, np.sqrt(north * north + east * east) / pause * 3_600_000)
    new = np.flatnonzero(tx >= 0)
    judged = pa.table(
        {
            "card": cards.dictionary.take(pa.array(numbers[new])),
            "tx": tx[new],
            "seen": seen[new],
            "spent": spent[new],
            "speed": speed[new],
        }
    )
    last = now[np.append(np.flatnonzero(is_first)[1:] - 1, len(now) - 1)]
    kept = np.flatnonzero(now > last[numbers] - 10 * MINUTE_MS)
    return judged, pa.table(
        {
            "card": cards.dictionary.take(pa.array(numbers[kept])),
            "cents": cents[kept],
            "lat": lat[kept],
            "lon": lon[kept],
            # As of the newest time of the card, which is what it counts as.
            "at_ms": now[kept] - numbers[kept] * span + first_ms,
        }
    )


class PackedValue(StatefulProcessor):
    """The rules at Spark's best: one value for each card, packed by hand, read and written once a batch."""

    def __init__(self, *, tells_all: bool = False) -> None:
        self._tells_all = tells_all

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self._history = handle.getValueState(
            "history", "times array<bigint>, spent array<bigint>, lat double, lon double"
        )

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: ARG002, N803 - Spark's name
    ) -> Iterator[Row]:
        """Judge the transactions of a card."""
        state = self._read()
        for row in sorted(rows, key=lambda row: row["tx"]):
            yield from self._judged(state, key[0], row)
        self._write(state)

    def close(self) -> None:
        """Nothing is held."""

    def _judged(self, state: dict[str, Any], card: str, row: Row) -> Iterator[Row]:
        seen, total, speed = judge(state, row["cents"], row["lat"], row["lon"], row["at_ms"])
        if self._tells_all or is_suspicious(seen, total, speed):
            yield Row(card=card, tx=row["tx"], seen=seen, spent=total, speed=speed)

    def _read(self) -> dict[str, Any]:
        kept = self._history.get()
        times, spent, lat, lon = ([], [], 0.0, 0.0) if kept is None else kept
        return {"times": list(times), "spent": list(spent), "lat": lat, "lon": lon}

    def _write(self, state: dict[str, Any]) -> None:
        self._history.update((state["times"], state["spent"], state["lat"], state["lon"]))


class ListOfTransactions(PackedValue):
    """The rules with the state that Spark has for several things of a key: a list."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self._transactions = handle.getListState(
            "transactions", "at_ms bigint, cents bigint, lat double, lon double"
        )

    def _read(self) -> dict[str, Any]:
        kept = list(self._transactions.get())
        lat, lon = (kept[-1][2], kept[-1][3]) if kept else (0.0, 0.0)
        return {
            "times": [each[0] for each in kept],
            "spent": [each[1] for each in kept],
            "lat": lat,
            "lon": lon,
        }

    def _write(self, state: dict[str, Any]) -> None:
        place = (state["lat"], state["lon"])
        both = zip(state["times"], state["spent"], strict=True)
        self._transactions.put([(at_ms, cents, *place) for at_ms, cents in both])


class ValueForEachEvent(PackedValue):
    """The rules as a function of one event would have them: state is read and written for each."""

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: ARG002, N803 - Spark's name
    ) -> Iterator[Row]:
        """Judge the transactions of a card."""
        for row in sorted(rows, key=lambda row: row["tx"]):
            state = self._read()
            yield from self._judged(state, key[0], row)
            self._write(state)


def packed_value(rows: DataFrame, *, tells_all: bool = False) -> DataFrame:
    """The rules by Spark's own operator, at its best."""
    return _by_spark(rows, PackedValue(tells_all=tells_all))


def list_of_transactions(rows: DataFrame, *, tells_all: bool = False) -> DataFrame:
    """The rules by Spark's own operator, with a list."""
    return _by_spark(rows, ListOfTransactions(tells_all=tells_all))


def value_for_each_event(rows: DataFrame) -> DataFrame:
    """The rules by Spark's own operator, event by event."""
    return _by_spark(rows, ValueForEachEvent())


def _by_spark(rows: DataFrame, processor: StatefulProcessor) -> DataFrame:
    return (
        rows.select("tx", "card", "cents", "lat", "lon", "at_ms")
        .groupBy("card")
        .transformWithState(processor, f"card string, {ALERT}", outputMode="update", timeMode="None")
    )


def vectorised(rows: DataFrame) -> DataFrame:
    """The rules by a vectorised step."""
    return hr.keyed(rows, by="card", step=at_once, state=HISTORY, returns=ALERT)


def by_event(rows: DataFrame) -> DataFrame:
    """The rules by a function of one transaction."""
    return hr.keyed(rows, by="card", step=per_event, state=History, returns=ALERT)
