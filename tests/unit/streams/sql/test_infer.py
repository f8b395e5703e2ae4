"""Columns by a sample of records."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.streams.sql.definitions import split_columns
from headrace.streams.sql.infer import Inferred, infer, infer_columns

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3)
    ),
)
OBJECTS = st.lists(st.dictionaries(st.sampled_from("abcd"), VALUES), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], "bigint"),
        ([1, None], "bigint"),
        ([1, 2.5], "double"),
        ([2**63], "decimal(38,0)"),
        ([2**63, 1], "decimal(38,0)"),
        ([10**40], "double"),
        ([True, False], "boolean"),
        ([True, 1], "string"),
        (["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123+01:00"], "timestamp"),
        (["2026-01-02T03:04:05Z", "soon"], "string"),
        (["2026-01-02 03:04:05"], "string"),
        ([None], "string"),
        ([[1], [], [2.5]], "array<double>"),
        ([{}], "map<string, string>"),
        ([{"x": 1}, {"y": [True]}], "struct<`x`: bigint, `y`: array<boolean>>"),
        ([{"x": 1}, 5], "string"),
    ],
)
def test_a_column_has_the_type_that_all_its_values_have(values: list[Any], kind: str) -> None:
    assert infer_columns([{"a b": value} for value in values]) == f"`a b` {kind}"


@given(OBJECTS)
def test_each_field_is_a_column_whatever_its_values_are(objects: list[dict[str, Any]]) -> None:
    names = dict.fromkeys(name for each in objects for name in each)
    assert list(split_columns(infer_columns(objects))) == list(names)


@given(OBJECTS)
def test_the_order_of_records_does_not_change_types(objects: list[dict[str, Any]]) -> None:
    def kinds(each: list[dict[str, Any]]) -> dict[str, str]:
        # The order of the fields of structs follows the records.
        return {name: kind for name, kind in split_columns(infer_columns(each)).items() if "<" not in kind}

    assert kinds(objects) == kinds(objects[::-1])


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([b'{"a": 1}', b"bad", b"[1]"], Inferred(format="json", columns="`a` bigint")),
        ([b'{"a": 1}', None], Inferred(format="json", columns="`a` bigint", is_keyed=True)),
        ([b"one", b"two"], Inferred(format="text")),
        ([b"one", b"\xff"], Inferred(format="bytes")),
        ([], None),
        ([None], None),
    ],
)
def test_the_format_is_told_by_the_records(values: list[bytes | None], found: Inferred | None) -> None:
    assert infer(values) == found


def test_an_object_that_is_too_deep_is_no_json() -> None:
    deep = ("[" * 100_000).encode()
    assert infer([b'{"a": ' + deep, json.dumps({"b": 1}).encode()]) == Inferred(
        format="json", columns="`b` bigint"
    )
