"""The changes of a table that is told by the versions of its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.streams.changelog import slots
from headrace.streams.changelog.current import CurrentRows
from headrace.streams.changelog.unavailable import UNAVAILABLE, is_marked

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("price", pa.float64()),
        ("_kind", pa.string()),
        ("_is_for_all", pa.bool_()),
        ("_changed_at", pa.timestamp("us", "UTC")),
        ("_hash", pa.int64()),
    ]
)
TABLE = ("id", "name", "tags", "price")


def version(kind: str, id_: int, second: int = 0, **columns: Any) -> dict[str, Any]:
    row = {"id": id_, "name": None, "tags": None, "price": None, **columns}
    at = NOON + timedelta(seconds=second)
    return {**row, "_kind": kind, "_is_for_all": kind == "truncate", "_changed_at": at, "_hash": id_ << 16}


def table(*versions: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(versions), SCHEMA)


def current(versions: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """What the table is after all versions: the naive way."""
    rows: dict[int, dict[str, Any]] = {}
    for each in versions:
        if each["_kind"] == "truncate":
            rows.clear()
        elif each["_kind"] == "delete":
            rows.pop(each["id"], None)
        else:
            before = rows.get(each["id"], {})
            row = {name: each[name] for name in TABLE}
            if row["name"] == UNAVAILABLE:
                row["name"] = before.get("name")
            rows[each["id"]] = row
    return rows


VERSIONS = st.builds(
    lambda kind, id_, name, tags, price: version(
        kind, id_, **({"name": name, "tags": tags, "price": price} if kind == "upsert" else {})
    ),
    st.sampled_from(["upsert"] * 8 + ["delete"] * 3 + ["truncate"]),
    st.integers(0, 40),
    st.sampled_from([None, "", "ü", "a", UNAVAILABLE]),
    st.sampled_from([None, [], ["x"], ["x", None]]),
    st.sampled_from([None, 0.0, 1.5, float("nan")]),
)


@settings(deadline=None, max_examples=60)
@given(
    batches=st.lists(st.tuples(st.lists(VERSIONS, max_size=30), st.booleans()), max_size=6),
    slot_rows=st.sampled_from([2, 8, 2048]),
)
def test_the_sum_of_changes_is_the_table_after_each_batch(
    bucket: Callable[..., Any],
    total: Callable[[], Any],
    row: Callable[..., Any],
    batches: list[tuple[list[dict[str, Any]], bool]],
    slot_rows: int,
) -> None:
    with patch.object(slots, "SLOT_ROWS", slot_rows):
        stepped, summed = bucket(CurrentRows(key=("id",))), total()
        seen: list[dict[str, Any]] = []
        for batch, crashes in batches:
            seen += batch
            summed.add(stepped.step(table(*batch), crashes=crashes))
            assert summed.rows == Counter(row(each) for each in current(seen).values())


def test_an_update_is_what_goes_and_what_comes_at_the_time_of_the_change(bucket: Callable[..., Any]) -> None:
    stepped = bucket(CurrentRows(key=("id",)))
    stepped.step(table(version("upsert", 1, 0, name="a"), version("upsert", 2, 0, name="b")))
    changes = stepped.step(table(version("upsert", 1, 5, name="c"), version("delete", 2, 6)))
    told = {(each["id"], each["name"], each["_weight"]): each["_changed_at"] for each in changes}
    assert told == {
        (1, "a", -1): NOON + timedelta(seconds=5),
        (1, "c", 1): NOON + timedelta(seconds=5),
        (2, "b", -1): NOON + timedelta(seconds=6),
    }


def test_a_truncation_takes_all_rows_at_its_time_but_for_those_that_come_again(
    bucket: Callable[..., Any],
) -> None:
    stepped = bucket(CurrentRows(key=("id",)))
    stepped.step(table(*(version("upsert", number, name="a") for number in range(3))))
    again = version("upsert", 1, 8, name="a")
    changes = stepped.step(table(version("upsert", 7, 3), version("truncate", 0, 4), again))
    assert [(each["id"], each["_weight"], each["_changed_at"]) for each in changes] == [
        (0, -1, NOON + timedelta(seconds=4)),
        (2, -1, NOON + timedelta(seconds=4)),
    ]


def test_versions_that_say_what_is_known_change_nothing_and_write_nothing(bucket: Callable[..., Any]) -> None:
    stepped = bucket(CurrentRows(key=("id",)))
    stepped.step(table(version("upsert", 1, name="a", price=float("nan"))))
    assert stepped.step(table(version("upsert", 1, 9, name="a", price=float("nan")))) == []
    assert stepped.step(table(version("delete", 2, 9))) == []
    assert stepped.step(table()) == []
    assert stepped.written == set()


def test_a_value_that_was_not_sent_is_kept_or_counted_where_none_is_known(bucket: Callable[..., Any]) -> None:
    stepped = bucket(CurrentRows(key=("id",)))
    stepped.step(table(version("upsert", 1, name="large")))
    (gone, come) = stepped.step(table(version("upsert", 1, name=UNAVAILABLE, price=2.0)))
    assert (gone["name"], come["name"], come["price"]) == ("large", "large", 2.0)
    (come,) = stepped.step(table(version("upsert", 2, name=UNAVAILABLE)))
    assert come["name"] is None
    assert stepped.last is not None
    assert stepped.last.counts == {"unavailable": 1}


def test_a_list_that_was_not_sent_is_kept(bucket: Callable[..., Any]) -> None:
    stepped = bucket(CurrentRows(key=("id",)))
    stepped.step(table(version("upsert", 1, name="a", tags=["large", "list"])))
    # It is unknown once, and then known to be so.
    marked = [version("upsert", id_, name="b", tags=[UNAVAILABLE]) for id_ in (1, 2, 2)]
    come = [row["tags"] for row in stepped.step(table(*marked)) if row["_weight"] > 0]
    assert come == [["large", "list"], None]
    assert stepped.last.counts == {"unavailable": 1}


@pytest.mark.parametrize(
    ("mark", "kind"),
    [
        (UNAVAILABLE, pa.string()),
        (UNAVAILABLE.encode(), pa.binary()),
        ([UNAVAILABLE], pa.list_(pa.string())),
        ([UNAVAILABLE.encode()], pa.list_(pa.binary())),
        (list(UNAVAILABLE.encode()), pa.list_(pa.int32())),
    ],
)
def test_values_that_were_not_sent_are_told_by_their_type(mark: Any, kind: pa.DataType) -> None:
    others = [[*mark, mark[0]], mark[:0]] if isinstance(mark, list) else [mark[1:]]
    assert is_marked(pa.array([mark, None, *others], kind)).tolist() == [True, *[False] * (len(others) + 1)]
    assert not is_marked(pa.array([1.5])).any()


def test_a_delete_without_its_key_is_refused(bucket: Callable[..., Any]) -> None:
    with pytest.raises(PipelineError, match=r"a delete has no value for name, .* key=.'id', 'name'"):
        bucket(CurrentRows(key=("id", "name"))).step(table(version("delete", 1)))


def test_a_step_writes_only_the_slots_that_it_touches(bucket: Callable[..., Any]) -> None:
    stepped = bucket(CurrentRows(key=("id",)))
    stepped.step(table(*(version("upsert", number) for number in range(3 * slots.SLOT_ROWS))))
    assert sorted(stepped.state) == [f"rows-{slot:05}" for slot in range(4)] + ["slots"]
    stepped.step(table(version("upsert", 6, name="new")))
    assert stepped.written == {"rows-00002"}
