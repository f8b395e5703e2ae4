"""From rows as JSON to documents."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from headrace.search.fields import Column, Columns, Kind, part_of
from headrace.streams.sinks.search.documents import FIRST_MOMENT, LAST_MOMENT, document


def made(kind: Kind, value: Any, *, is_many: bool = False) -> Any:
    column = Column(name="c", type="?", kind=kind, is_many=is_many)
    row = json.dumps({"id": 1, "c": value})
    found = document(Columns(key=("id",), columns=(column,)), "[1]", row)
    assert (found.pop("_key"), found.pop("_row"), found.pop("_part")) == ("[1]", row.encode(), part_of("[1]"))
    return found.get("c", [])


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("words", "a b", ["a b"]),
        ("whole", "", [""]),
        ("integer", -(2**63), [-(2**63)]),
        ("boolean", False, [False]),
        ("float", 5, [5.0]),
        ("float", 1.5, [1.5]),
        ("float", "NaN", []),
        ("float", "-Infinity", []),
        ("moment", "2026-01-02", [datetime(2026, 1, 2)]),  # noqa: DTZ001 - as tantivy takes it
        ("moment", "2026-01-02T03:04:05.000006Z", [datetime(2026, 1, 2, 3, 4, 5, 6)]),  # noqa: DTZ001
        ("moment", "2026-01-02T03:04:05.000006", [datetime(2026, 1, 2, 3, 4, 5, 6)]),  # noqa: DTZ001
        ("moment", "9999-12-31", [LAST_MOMENT]),
        ("moment", "0001-01-01T00:00:00.000000Z", [FIRST_MOMENT]),
        ("moment", "+10000-01-01", [LAST_MOMENT]),
        ("json", {"a": None, "b": [None, 2**80], "c": {"d": 1}}, [{"b": [float(2**80)], "c": {"d": 1}}]),
        ("json", "a variant that is text", []),
        ("none", "AAEC", []),
        ("words", None, []),
        ("moment", None, []),
    ],
)
def test_a_value_becomes_what_its_field_takes(kind: Kind, value: Any, expected: list[Any]) -> None:
    assert made(kind, value) == expected


def test_an_array_has_a_value_for_each_element_that_is_no_null() -> None:
    assert made("words", ["a", None, "b"], is_many=True) == ["a", "b"]
    assert made("float", [1, "NaN"], is_many=True) == [1.0]
    assert made("json", [{"a": 1}, {"a": 2}], is_many=True) == [{"a": 1}, {"a": 2}]
    assert made("words", [], is_many=True) == made("words", None, is_many=True) == []
