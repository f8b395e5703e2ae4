"""What tells the rows of a join of two tables apart, against all joins of small tables."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.streams.changelog.join import How
from headrace.streams.join_tables import result_key

LEFT, RIGHT = ("a", "b", "x"), ("a", "b", "y")
Row = dict[str, Any]


def joined(left: list[Row], right: list[Row], on: tuple[str, ...], how: How) -> list[Row]:
    """The naive join; what is joined on is one column."""

    def fits(one: Row, other: Row) -> bool:
        return all(one[name] == other[name] for name in on)

    nulls: Row = dict.fromkeys(("b_left", "b_right", "x", "y"))
    lefts = [{**nulls, **_named(row, on, "left")} for row in left]
    pairs = [(one, other) for one in left for other in right if fits(one, other)]
    found = [{**nulls, **_named(one, on, "left"), **_named(other, on, "right")} for one, other in pairs]
    if how != "inner":
        met = [one for one, _ in pairs]
        found += [row for one, row in zip(left, lefts, strict=True) if one not in met]
    if how == "full":
        met = [other for _, other in pairs]
        found += [{**nulls, **_named(row, on, "right")} for row in right if row not in met]
    return found


def _named(row: Row, on: tuple[str, ...], side: str) -> Row:
    return {name if name in on or name != "b" else f"b_{side}": value for name, value in row.items()}


def rows_by(key: tuple[str, ...], names: tuple[str, ...]) -> st.SearchStrategy[list[Row]]:
    row = st.fixed_dictionaries({name: st.integers(0, 2) for name in names})
    return st.lists(row, max_size=5, unique_by=lambda each: tuple(each[name] for name in key))


KEYS = st.sampled_from([("a",), ("b",), ("a", "b")])


@settings(deadline=None, max_examples=500)
@given(
    data=st.data(),
    left_key=KEYS,
    right_key=KEYS,
    on=st.sampled_from([("a",), ("a", "b")]),
    how=st.sampled_from(get_args(How)),
)
def test_no_two_rows_of_a_join_have_one_key(
    data: st.DataObject,
    left_key: tuple[str, ...],
    right_key: tuple[str, ...],
    on: tuple[str, ...],
    how: How,
) -> None:
    rows = joined(data.draw(rows_by(left_key, LEFT)), data.draw(rows_by(right_key, RIGHT)), on, how)

    def named(key: tuple[str, ...], side: str) -> tuple[str, ...]:
        return tuple(_named(dict.fromkeys(key), on, side))

    key = result_key(named(left_key, "left"), named(right_key, "right"), {name: name for name in on}, how)
    told = [tuple(row[name] for name in key) for row in rows]
    assert len(set(told)) == len(told)


def test_a_reference_is_told_apart_by_the_key_of_the_table_that_refers() -> None:
    assert result_key(["order_id"], ["id"], {"product_id": "id"}, "left") == ("order_id",)
    assert result_key(["id"], ["order_id"], {"id": "product_id"}, "inner") == ("order_id",)
    assert result_key(["id"], ["order_id"], {"id": "product_id"}, "left") == ("id", "order_id")
    assert result_key(["id"], ["id"], {"id": "id"}, "full") == ("id",)
