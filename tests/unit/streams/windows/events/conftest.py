"""Streams for windows that events make, and a way to drive a logic as a restarted query would."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from headrace.streams.buckets.logic import Arrivals, Logic, SourceProgress, Step, Tables

SECOND_US = 1_000_000
ROWS = pa.schema(
    {
        "key": pa.string(),
        "at": pa.timestamp("us", "UTC"),
        "amount": pa.int64(),
        "closes": pa.bool_(),
        "id": pa.int64(),
    }
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a stream. Times are in seconds."""

    key: str | None
    at: int | None
    amount: int | None = 1
    closes: bool | None = False
    partition: int = 0
    written: int = 0
    """When its record was written to the log."""
    id: int = 0


Batch = Sequence[Row]
DELAY_SECONDS = 3


def arrivals_of(batch: Batch, *, is_end: bool = False) -> Arrivals:
    """A micro-batch as a bucket gets it: by partition, and within a partition in the order of the log."""
    rows = sorted(batch, key=lambda row: row.partition)
    table = pa.Table.from_pydict(
        {
            "key": [row.key for row in rows],
            "at": pa.array([_us(row.at) for row in rows], pa.int64()).view(pa.timestamp("us", "UTC")),
            "amount": [row.amount for row in rows],
            "closes": [row.closes for row in rows],
            "id": [row.id for row in rows],
        },
        schema=ROWS,
    )
    progress = tuple(
        SourceProgress(
            source=f"events-{partition}",
            row_count=len(of),
            event_time_us_max=_us(max((row.at for row in of if row.at is not None), default=None)),
            record_time_us_max=_us(max(row.written for row in of)),
        )
        for partition, of in _by_partition(rows).items()
    )
    return Arrivals(rows=table, progress=progress, is_end=is_end)


def _by_partition(rows: Iterable[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row.partition, []).append(row)
    return found


def _us(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * SECOND_US


def _stored(state: Tables) -> Tables:
    """The state as it comes back from a checkpoint."""
    tables = {}
    for name, table in state.items():
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        tables[name] = pa.ipc.open_stream(sink.getvalue()).read_all()
    return tables


def drive(logic: Logic, batches: Sequence[Batch], *, ends: bool = False) -> list[Step]:
    """Step through the batches. Each runs twice, as after a crash, and must come to the same both times."""
    state: Tables = {}
    steps = []
    for number, batch in enumerate(batches):
        arrivals = arrivals_of(batch, is_end=ends and number == len(batches) - 1)
        stored = _stored(state)
        step = logic.step(stored, arrivals)
        again = logic.step(_stored(state), arrivals)
        assert step.outputs == again.outputs
        assert step.state == again.state
        assert stored == _stored(state), "a step changes no argument"
        schemas = logic.output_schemas(ROWS)
        assert {name: table.schema for name, table in step.outputs.items()} == {
            name: schemas[name] for name in step.outputs
        }
        steps.append(step)
        state = step.state
    return steps


def plain(table: pa.Table | None) -> list[dict[str, Any]]:
    """Rows with times in seconds."""
    if table is None:
        return []
    return [{name: _seconds(value) for name, value in row.items()} for row in table.to_pylist()]


def _seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(_seconds(one) for one in value.values())
    return int(value.timestamp()) if hasattr(value, "timestamp") else value


class Clock:
    """The watermark, naively: the least of what all partitions have come to, less the delay."""

    def __init__(self) -> None:
        self.newest: dict[int, int] = {}
        self.watermark = -(10**12)
        self.log_time = -(10**12)

    def advance(self, batch: Batch, *, is_end: bool) -> tuple[int, int]:
        """The watermark before and after the batch."""
        before = self.watermark
        for row in batch:
            self.log_time = max(self.log_time, row.written)
            if row.at is not None:
                self.newest[row.partition] = max(self.newest.get(row.partition, row.at), row.at)
        if self.newest:
            self.watermark = max(before, min(self.newest.values()) - DELAY_SECONDS)
        if is_end:
            self.watermark = 10**12
        return before, self.watermark


@st.composite
def _streams(draw: st.DrawFn) -> list[list[Row]]:
    """Micro-batches of out-of-order rows of a few keys over two partitions; time moves on."""
    sizes = draw(st.lists(st.integers(0, 8), min_size=1, max_size=7))
    now, number, batches = 20, 0, []
    for size in sizes:
        batch = []
        for _ in range(size):
            now += draw(st.sampled_from([0, 0, 1, 1, 2, 5, 12]))
            behind = draw(st.sampled_from([0, 0, 0, 1, 2, 4, 7, 15, 40]))
            batch.append(
                Row(
                    key=draw(st.sampled_from(["a", "a", "a", "b", None])),
                    at=draw(st.sampled_from([now - behind] * 12 + [None])),
                    amount=draw(st.sampled_from([1, 2, 5, -3, None])),
                    closes=draw(st.sampled_from([False, False, True, None])),
                    partition=draw(st.integers(0, 1)),
                    written=now,
                    id=number,
                )
            )
            number += 1
        # As a bucket gets them; so the reference need not sort.
        batches.append(sorted(batch, key=lambda row: row.partition))
    return batches


@dataclass(frozen=True, slots=True)
class Kit:
    """What the tests of this directory share."""

    row: Callable[..., Row] = Row
    arrivals: Callable[..., Arrivals] = arrivals_of
    drive: Callable[..., list[Step]] = drive
    plain: Callable[..., list[dict[str, Any]]] = plain
    clock: Callable[[], Clock] = Clock
    schema: pa.Schema = ROWS
    delay_seconds: int = DELAY_SECONDS


@pytest.fixture(scope="session")
def kit() -> Kit:
    return Kit()


@pytest.fixture(scope="session")
def streams() -> st.SearchStrategy[list[list[Row]]]:
    return _streams()
