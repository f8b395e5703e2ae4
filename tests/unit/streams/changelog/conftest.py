"""A bucket that keeps its state as bytes, as Spark does, and a table that adds up the changes it is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from headrace.streams.buckets.logic import RESULTS, Arrivals, Logic, Step
from headrace.streams.buckets.tables import KeptTables, Owner

OWNER = Owner(operator="test", by=("key",), bucket_count=1)


class Bucket:
    """Steps a logic. A step that crashes leaves nothing behind."""

    def __init__(self, logic: Logic) -> None:
        self.logic = logic
        self.state: dict[str, bytes] = {}
        self.last: Step | None = None
        self.written: set[str] = set()

    def step(self, rows: pa.Table, *, crashes: bool = False) -> list[dict[str, Any]]:
        """The results of a micro-batch."""
        kept = KeptTables(self.state.get, self.state.keys, OWNER)
        step = self.logic.step(kept, Arrivals(rows=rows))
        changes = kept.changes(step.state)
        if crashes:
            return self.step(rows)
        self.written = {name for name, blob in changes.items() if blob is not None}
        for name, blob in changes.items():
            if blob is None:
                del self.state[name]
            else:
                self.state[name] = blob
        self.last = step
        schema = self.logic.output_schemas(rows.schema)[RESULTS]
        results: list[dict[str, Any]] = (
            step.outputs.get(RESULTS, schema.empty_table()).cast(schema).to_pylist()
        )
        return results


class Sum:
    """The sum of changes: rows as sorted pairs of names and texts, by how often there are such."""

    def __init__(self) -> None:
        self.rows: Counter[tuple[tuple[str, str], ...]] = Counter()

    def add(self, changes: Sequence[Mapping[str, Any]]) -> None:
        """Add changes; no row may be in them twice."""
        seen = [as_row(change) for change in changes]
        assert len(set(seen)) == len(seen), f"changes are not added up: {changes}"
        for change, row in zip(changes, seen, strict=True):
            assert change["_weight"] != 0
            self.rows[row] += change["_weight"]
            if not self.rows[row]:
                del self.rows[row]


def as_row(row: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The row, without what is told of the change, in a form that NaN is equal to itself in."""
    return tuple(
        sorted((name, repr(value)) for name, value in row.items() if name not in {"_weight", "_changed_at"})
    )


@pytest.fixture(scope="session")
def bucket() -> Callable[[Logic], Bucket]:
    """Makes a bucket for a logic."""
    return Bucket


@pytest.fixture(scope="session")
def total() -> Callable[[], Sum]:
    """Makes a table that adds changes up."""
    return Sum


@pytest.fixture(scope="session")
def row() -> Callable[[Mapping[str, Any]], tuple[tuple[str, str], ...]]:
    """A row as the sum has it."""
    return as_row
