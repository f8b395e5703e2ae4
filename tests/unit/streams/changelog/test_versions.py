"""The history of a table: which version was the current one when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import RESULTS, Arrivals
from headrace.streams.changelog import slots
from headrace.streams.changelog.unavailable import UNAVAILABLE
from headrace.streams.changelog.versions import TableVersions

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("_kind", pa.string()),
        ("_is_for_all", pa.bool_()),
        ("_changed_at", pa.timestamp("us", "UTC")),
        ("_hash", pa.int64()),
    ]
)
Version = tuple[str, int, str | None, int]
"""Kind, key, name, and second."""


def table(versions: Sequence[Version]) -> pa.Table:
    rows = [
        {
            "id": id_,
            "name": name if kind == "upsert" else None,
            "_kind": kind,
            "_is_for_all": kind == "truncate",
            "_changed_at": at(second),
            "_hash": id_ << 16,
        }
        for kind, id_, name, second in versions
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def at(second: int) -> datetime:
    return NOON + timedelta(seconds=second)


def current_at(versions: Sequence[Version], second: int) -> dict[int, str | None]:
    """What the table was at the end of a second, of versions whose times don't go back."""
    rows: dict[int, str | None] = {}
    for kind, id_, name, came in versions:
        if came > second:
            break
        if kind == "upsert":
            rows[id_] = name
        elif kind == "delete":
            rows.pop(id_, None)
        else:
            rows.clear()
    return rows


VERSIONS = st.lists(
    st.tuples(
        st.sampled_from(["upsert"] * 8 + ["delete"] * 2 + ["truncate"]),
        st.integers(0, 4),
        st.sampled_from([None, "a", "b"]),
        st.integers(0, 2),
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=80)
@given(
    steps=VERSIONS,
    cuts=st.sets(st.integers(0, 25)),
    crashes=st.booleans(),
    slot_rows=st.sampled_from([1, 99]),
)
def test_the_history_tells_what_the_table_was_at_each_moment(
    bucket: Callable[..., Any],
    steps: list[Version],
    cuts: set[int],
    crashes: bool,
    slot_rows: int,
) -> None:
    second, versions = 0, []
    for kind, id_, name, passed in steps:
        second += passed
        versions.append((kind, id_, name, second))
    written: dict[tuple[int, datetime], dict[str, Any]] = {}
    with patch.object(slots, "SLOT_ROWS", slot_rows):
        stepped = bucket(TableVersions(key=("id",)))
        bounds = [0, *sorted(cut for cut in cuts if cut < len(versions)), len(versions)]
        for start, end in pairwise(bounds):
            for row in stepped.step(table(versions[start:end]), crashes=crashes):
                key = (row["id"], row["valid_from"])
                written.pop(key, None)
                if not row["_delete"]:
                    written[key] = row
    for moment in range(second + 1):
        found = [
            (row["id"], row["name"])
            for row in written.values()
            if row["valid_from"] <= at(moment) and (row["valid_to"] is None or at(moment) < row["valid_to"])
        ]
        assert sorted(found, key=repr) == sorted(current_at(versions, moment).items(), key=repr)
    open_rows = {row["id"]: row["name"] for row in written.values() if row["valid_to"] is None}
    assert open_rows == current_at(versions, second)


def shown(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (
            row["name"],
            row["valid_from"].second,
            None if row["valid_to"] is None else row["valid_to"].second,
            row["_delete"],
        )
        for row in rows
    ]


def test_versions_within_a_batch_are_not_lost(bucket: Callable[..., Any]) -> None:
    stepped = bucket(TableVersions(key=("id",)))
    changes: list[Version] = [("upsert", 1, "a", 1), ("upsert", 1, "b", 2), ("delete", 1, None, 5)]
    assert shown(stepped.step(table(changes))) == [("a", 1, 2, False), ("b", 2, 5, False)]
    assert stepped.state == {}


def test_what_lasted_no_time_is_no_version(bucket: Callable[..., Any]) -> None:
    stepped = bucket(TableVersions(key=("id",)))
    assert shown(stepped.step(table([("upsert", 1, "a", 1)]))) == [("a", 1, None, False)]
    assert shown(stepped.step(table([("upsert", 1, "b", 1)]))) == [("b", 1, None, False)]
    assert shown(stepped.step(table([("upsert", 1, "b", 3)]))) == []
    assert shown(stepped.step(table([("delete", 1, None, 0)]))) == [("b", 1, 1, True)]


def test_values_beyond_the_calendar_of_python_are_kept_as_they_are() -> None:
    far = pa.array([2**57, None], pa.int64()).cast(pa.timestamp("us", "UTC"))
    day = pa.array([10**7, None], pa.int32()).cast(pa.date32())
    both = {"at": far, "day": day}
    nested = {
        "days": pa.ListArray.from_arrays([0, 1, 2], day),
        "inner": pa.StructArray.from_arrays([far, pa.ListArray.from_arrays([0, 2, 2], far)], ["at", "all"]),
    }
    rows = table([("upsert", 1, "a", 1), ("upsert", 2, "b", 1)])
    for name, column in {**both, **nested}.items():
        rows = rows.append_column(name, column)
    logic = TableVersions(key=("id",))
    first = logic.step({}, Arrivals(rows=rows))
    assert first.outputs[RESULTS]["at"].to_numpy()[0] == far.to_numpy(zero_copy_only=False)[0]
    assert logic.step(first.state, Arrivals(rows=rows)).outputs[RESULTS].num_rows == 0


def test_a_delete_without_its_key_is_refused(bucket: Callable[..., Any]) -> None:
    with pytest.raises(PipelineError, match="a delete has no value for name"):
        bucket(TableVersions(key=("id", "name"))).step(table([("delete", 1, None, 1)]))


def test_a_value_that_was_not_sent_is_that_of_the_version_before(bucket: Callable[..., Any]) -> None:
    stepped = bucket(TableVersions(key=("id",)))
    stepped.step(table([("upsert", 1, "large", 1)]))
    assert stepped.step(table([("upsert", 1, UNAVAILABLE, 2)])) == []
    assert shown(stepped.step(table([("upsert", 2, UNAVAILABLE, 2)]))) == [(None, 2, None, False)]
    assert stepped.last.counts == {"unavailable": 1}


def test_what_is_gone_tells_no_value_that_was_not_sent(bucket: Callable[..., Any]) -> None:
    for ends in ("delete", "truncate"):
        stepped = bucket(TableVersions(key=("id",)))
        stepped.step(table([("upsert", 1, "large", 1)]))
        changes: list[Version] = [
            ("upsert", 1, UNAVAILABLE, 2),
            (ends, 1, None, 3),
            ("upsert", 1, UNAVAILABLE, 4),
        ]
        assert shown(stepped.step(table(changes))) == [("large", 1, 3, False), (None, 4, None, False)]
        assert stepped.last.counts == {"unavailable": 1}
