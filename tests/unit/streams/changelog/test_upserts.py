"""What a store is kept current by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.streams.changelog import slots
from headrace.streams.changelog.upserts import Upserts

LOGIC = Upserts(key=("id",))


def table(*changes: tuple[int, str | None, int]) -> pa.Table:
    names = ("id", "name", "_weight")
    schema = pa.schema(
        [("id", pa.int64()), ("name", pa.string()), ("_weight", pa.int32()), ("_hash", pa.int64())]
    )
    rows = [{**dict(zip(names, each, strict=True)), "_hash": each[0] << 16} for each in changes]
    return pa.Table.from_pylist(rows, schema)


def test_each_key_is_written_once_as_it_is_at_the_end_or_deleted(bucket: Callable[..., Any]) -> None:
    changes = table(
        (1, "new", 1), (1, "old", -1), (2, "gone", -1), (3, "between", 1), (3, "between", -1), (4, None, 1)
    )
    stepped = bucket(LOGIC)
    assert stepped.step(changes) == [
        {"id": 1, "name": "new", "_delete": False},
        {"id": 2, "name": None, "_delete": True},
        {"id": 4, "name": None, "_delete": False},
    ]
    # The one that is gone had never come.
    assert stepped.last.counts == {"unmatched": 1}
    assert stepped.step(table()) == []
    stepped.step(table((2, "gone", 1), (4, None, -1)))
    assert set(stepped.state) == {"slots"}


def test_the_order_of_changes_does_not_matter(bucket: Callable[..., Any]) -> None:
    changes = [(1, "a", -1), (1, "b", 1), (1, "b", -1), (1, "c", 1)]
    for rows in (changes, changes[::-1]):
        assert bucket(LOGIC).step(table(*rows)) == [{"id": 1, "name": "c", "_delete": False}]


@pytest.mark.parametrize("rows", [[(7, "a", 1), (7, "b", 1)], [(7, "a", 1), (7, "a", 1)]])
def test_a_key_with_two_rows_at_once_is_refused(bucket: Callable[..., Any], rows: list[Any]) -> None:
    told = r"2 rows of the key \{'id': 7\} at once"
    with pytest.raises(PipelineError, match=told):
        bucket(LOGIC).step(table(*rows))
    stepped = bucket(LOGIC)
    stepped.step(table(rows[0]))
    with pytest.raises(PipelineError, match=told):
        stepped.step(table(rows[1]))


ADDED = st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["a", "b"])), max_size=8)


@settings(deadline=None, max_examples=60)
@given(batches=st.lists(ADDED, max_size=6), crashes=st.booleans(), slot_rows=st.sampled_from([1, 99]))
def test_a_store_that_is_kept_by_upserts_is_a_copy_of_the_table(
    bucket: Callable[..., Any], batches: list[list[tuple[int, str]]], crashes: bool, slot_rows: int
) -> None:
    rows: dict[int, str] = {}
    store: dict[int, str] = {}
    with patch.object(slots, "SLOT_ROWS", slot_rows):
        stepped = bucket(LOGIC)
        for batch in batches:
            before = dict(rows)
            for id_, name in batch:
                # The second time that a row comes, it goes.
                if rows.get(id_) == name:
                    del rows[id_]
                else:
                    rows[id_] = name
            changes = [(*row, -1) for row in before.items()] + [(*row, 1) for row in rows.items()]
            for row in stepped.step(table(*changes), crashes=crashes):
                store.pop(row["id"], None)
                if not row["_delete"]:
                    store[row["id"]] = row["name"]
            assert store == rows
            assert stepped.last is None or stepped.last.counts == {}
        assert bool(set(stepped.state) - {"slots"}) == bool(rows)


def test_a_row_in_the_place_of_another_does_not_touch_the_state(bucket: Callable[..., Any]) -> None:
    stepped = bucket(LOGIC)
    stepped.step(table((1, "a", 1)))
    stepped.step(table((1, "a", -1), (1, "b", 1)))
    assert stepped.written == set()
