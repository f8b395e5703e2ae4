"""What a store is kept current by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import PipelineError
from headrace.streams.changelog.upserts import Upserts

LOGIC = Upserts(key=("id",))


def table(*changes: tuple[int, str | None, int]) -> pa.Table:
    names = ("id", "name", "_weight")
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("_weight", pa.int32())])
    return pa.Table.from_pylist([dict(zip(names, each, strict=True)) for each in changes], schema)


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
    assert stepped.state == {}
    assert stepped.step(table()) == []


def test_the_order_of_changes_does_not_matter(bucket: Callable[..., Any]) -> None:
    changes = [(1, "a", -1), (1, "b", 1), (1, "b", -1), (1, "c", 1)]
    for rows in (changes, changes[::-1]):
        assert bucket(LOGIC).step(table(*rows)) == [{"id": 1, "name": "c", "_delete": False}]


@pytest.mark.parametrize("rows", [[(7, "a", 1), (7, "b", 1)], [(7, "a", 1), (7, "a", 1)]])
def test_a_key_with_two_rows_at_once_is_refused(bucket: Callable[..., Any], rows: list[Any]) -> None:
    with pytest.raises(PipelineError, match=r"2 rows of the key \{'id': 7\} at once"):
        bucket(LOGIC).step(table(*rows))
