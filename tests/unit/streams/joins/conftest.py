"""Rows of two sides, and a way to drive a logic as a query does that is killed in each micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from headrace.streams.buckets.logic import Arrivals, Logic, SourceProgress, Step
from headrace.streams.buckets.tables import KeptTables, Owner
from headrace.streams.joins import runs
from headrace.streams.joins.sides import HASH, IS_RIGHT, TIME, source_name

SECOND_US = 1_000_000
DELAY_SECONDS = 3
BEFORE_ALL = -(10**9)
AFTER_ALL = 10**9
AT = pa.timestamp("us", "UTC")
ROWS = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("left_id", pa.int64()),
        pa.field("right_id", pa.int64()),
        pa.field("_deleted", pa.bool_()),
        pa.field("place", pa.int64(), nullable=False),
        pa.field(IS_RIGHT, pa.bool_(), nullable=False),
        pa.field(HASH, pa.int64(), nullable=False),
        pa.field(TIME, AT),
    ]
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of either side. Times are in seconds."""

    side: str
    key: str | None
    at: int | None
    id: int = 0
    partition: int = 0
    written: int = 0
    deleted: bool = False


Batch = Sequence[Row]


def arrivals_of(batch: Batch, *, is_end: bool = False) -> Arrivals:
    """A micro-batch as a bucket gets it: by source, and within a source in the order of the log."""
    by_source: dict[str, list[Row]] = {}
    for row in batch:
        by_source.setdefault(source_name(row.side, f"topic-{row.partition}"), []).append(row)
    rows = [row for source in sorted(by_source) for row in by_source[source]]
    columns = {
        "key": [row.key for row in rows],
        "left_id": [row.id if row.side == "left" else None for row in rows],
        "right_id": [row.id if row.side == "right" else None for row in rows],
        "_deleted": [row.deleted for row in rows],
        "place": [row.partition for row in rows],
        IS_RIGHT: [row.side == "right" for row in rows],
        # A poor hash: other keys have the same.
        HASH: [ord(row.key[0]) % 2 if row.key else 42 for row in rows],
        TIME: pa.array([_us(row.at) for row in rows], pa.int64()).view(AT),
    }
    progress = tuple(
        SourceProgress(
            source=source,
            row_count=len(of),
            event_time_us_max=_us(max((row.at for row in of if row.at is not None), default=None)),
            record_time_us_max=_us(max(row.written for row in of)),
        )
        for source, of in sorted(by_source.items())
    )
    return Arrivals(rows=pa.Table.from_pydict(columns, schema=ROWS), progress=progress, is_end=is_end)


def _us(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * SECOND_US


@dataclass(slots=True)
class Store:
    """A checkpoint: tables as bytes, of which a step reads what it asks for."""

    kept: dict[str, bytes] = field(default_factory=dict)

    def step(self, logic: Logic, arrivals: Arrivals) -> Step:
        """Step twice, as after a crash; both must come to the same."""
        owner = Owner(operator="join", by=("key",), bucket_count=1)
        made = []
        for _ in range(2):
            tables = KeptTables(self.kept.get, self.kept.keys, owner)
            step = logic.step(tables, arrivals)
            made.append((step, tables.changes(step.state)))
        (step, changes), (again, changes_again) = made
        assert step.outputs == again.outputs
        assert changes == changes_again
        for name, blob in changes.items():
            if blob is None:
                del self.kept[name]
            else:
                self.kept[name] = blob
        schemas = logic.output_schemas(ROWS)
        for name, table in step.outputs.items():
            assert table.schema == schemas[name]
        return step


def drive(logic: Logic, batches: Sequence[Batch], *, ends: bool = False) -> list[Step]:
    """Step through the batches."""
    store = Store()
    last = len(batches) - 1
    return [
        store.step(logic, arrivals_of(batch, is_end=ends and number == last))
        for number, batch in enumerate(batches)
    ]


class Clock:
    """What the time of a join is, computed anew each time from all that has come."""

    def __init__(self, sides: Iterable[str] = ("left", "right")) -> None:
        self.sides = tuple(sides)
        self.newest: dict[tuple[str, int], int] = {}
        self.passed = dict.fromkeys(self.sides, BEFORE_ALL)
        self.now = BEFORE_ALL

    def advance(self, batch: Batch, *, is_end: bool) -> tuple[int, int]:
        before = self.now
        for row in batch:
            if row.at is not None:
                place = row.side, row.partition
                self.newest[place] = max(self.newest.get(place, BEFORE_ALL), row.at)
        for side in self.sides:
            newest = min((at for (one, _), at in self.newest.items() if one == side), default=BEFORE_ALL)
            self.passed[side] = max(self.passed[side], newest)
        self.now = AFTER_ALL if is_end else max(self.now, min(self.passed.values()) - DELAY_SECONDS)
        return before, self.now


def plain(table: pa.Table | None) -> list[dict[str, Any]]:
    """Rows as they are."""
    return [] if table is None else table.to_pylist()


def _row(side: str, key: str | None, at: int | None, **more: Any) -> Row:
    return Row(side, key, at, **more)


class Kit:
    """What tests are given of this file."""

    arrivals_of = staticmethod(arrivals_of)
    drive = staticmethod(drive)
    clock = Clock
    store = Store
    plain = staticmethod(plain)
    row = staticmethod(_row)
    rows = ROWS


@pytest.fixture(scope="session")
def kit() -> type[Kit]:
    return Kit


def _streams(values: Mapping[str, Any]) -> st.SearchStrategy[list[list[Row]]]:
    row = st.builds(
        Row,
        side=st.sampled_from(["left", "right"]),
        key=st.sampled_from(["a", "b", "c", None]),
        at=st.one_of(st.integers(0, 60), st.integers(0, 60), st.none()),
        partition=st.integers(0, 1),
        **values,
    )
    batches = st.lists(st.lists(row, max_size=12), min_size=1, max_size=14)
    return batches.map(_numbered)


def _numbered(batches: list[list[Row]]) -> list[list[Row]]:
    numbers = iter(range(10_000))
    return [
        [
            Row(row.side, row.key, _drifted(row.at, place), next(numbers), row.partition, place, row.deleted)
            for row in batch
        ]
        for place, batch in enumerate(batches)
    ]


def _drifted(at: int | None, place: int) -> int | None:
    """Times go on from batch to batch, and overlap."""
    return None if at is None else at + 8 * place


@pytest.fixture(scope="session")
def streams() -> Any:
    """Makes streams of both sides."""
    return _streams


@pytest.fixture(autouse=True, scope="module")
def _small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runs, "PIECE_ROWS", 2)
        yield
