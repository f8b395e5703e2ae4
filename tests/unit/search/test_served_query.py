"""Queries in the words of a search server."""

from __future__ import annotations

import pytest

from headrace.search.fields import Column, Columns
from headrace.search.served_query import named_columns, served_query, unknown_columns

COLUMNS = Columns(
    key=("id",),
    columns=(
        Column(name="id", type="bigint", kind="integer"),
        Column(name="a.b", type="string", kind="words"),
        Column(name="attributes", type="map<string,string>", kind="json"),
        Column(name="any", type="variant", kind="json"),
        Column(name="photo", type="binary", kind="none"),
    ),
)


@pytest.mark.parametrize(
    ("query", "sent"),
    [
        ("red shoe", "red shoe"),
        ("at:>2026-01-01T00:00:00Z", r"at:>2026-01-01T00\:00\:00Z"),
        ("at:2026-01-01T00:00:00.5+02:00 red", r"at:2026-01-01T00\:00\:00.5+02\:00 red"),
        ("at:[2026-01-01T00:00:00Z TO *]", "at:[2026-01-01T00:00:00Z TO *]"),
        ('at:"2026-01-01T00:00:00Z" "* (\\" *"', 'at:"2026-01-01T00:00:00Z" "* (\\" *"'),
        ("* -boot", "*:* -boot"),
        ("(* AND red) OR -*", "(*:* AND red) OR -*:*"),
        ("sho* *oe name:* price:{1 TO *}", "sho* *oe name:* price:{1 TO *}"),
        ('"open *', '"open *'),
        ("price:[1 TO *", "price:[1 TO *"),
    ],
)
def test_moments_and_all_are_written_as_the_server_wants_them(query: str, sent: str) -> None:
    assert served_query(query) == sent


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("red shoe", []),
        ("name:red -size.eu:42 (sku:x OR name:y)", ["name", "size.eu", "sku"]),
        ('"a:b" [c:d TO e:f] at:2026-01-01T00:00:00Z', ["at"]),
        (r"a\:b:c item-no:1", ["a:b", "item-no"]),
        ("x" * 100_000, []),
    ],
)
def test_the_columns_that_a_query_names_are_known(query: str, names: list[str]) -> None:
    assert named_columns(query) == names


def test_columns_that_can_not_be_searched_are_unknown_and_those_of_the_server_are_its_own() -> None:
    names = ["id", "a.b", "a", "attributes.color", "a.b.keyword", "any", "photo", "colour", "_id"]
    assert unknown_columns(names, COLUMNS) == ["a", "any", "photo", "colour"]
