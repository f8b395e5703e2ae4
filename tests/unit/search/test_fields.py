"""What an index keeps of its rows' columns."""

from __future__ import annotations

import pytest

from headrace.search.fields import PARTS, Column, Columns, part_of

NAME = Column(name="name", type="string", kind="words")
SKU = Column(name="sku", type="string", kind="whole")
TAGS = Column(name="tags", type="array<string>", kind="words", is_many=True)
PHOTO = Column(name="photo", type="binary", kind="none")
COLUMNS = Columns(key=("sku",), columns=(NAME, SKU, TAGS, PHOTO))


def test_columns_come_back_as_they_were_kept() -> None:
    assert Columns.from_json(COLUMNS.to_json()) == COLUMNS


@pytest.mark.parametrize("text", ["{}", "[]", '{"version": 9}', "nothing", '{"version": 1, "columns": [{}]}'])
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Columns.from_json(text)


def test_words_are_looked_for_in_text_and_binary_values_are_not_searched() -> None:
    assert COLUMNS.text_names == ["name", "tags"]
    assert Columns(key=("sku",), columns=(SKU, PHOTO)).text_names == ["sku"]
    assert PHOTO not in COLUMNS.searched


def test_differences_are_told_whatever_the_order() -> None:
    assert COLUMNS.differences(Columns(key=("sku",), columns=(PHOTO, TAGS, SKU, NAME))) == []
    price = Column(name="price", type="double", kind="float")
    whole = Column(name="name", type="string", kind="whole")
    assert COLUMNS.differences(Columns(key=("name",), columns=(whole, SKU, TAGS, price))) == [
        "price is new",
        "photo is gone",
        "name was string, searched as words and is string, searched as whole",
        "the key was sku and is name",
    ]


def test_keys_are_spread_over_all_parts() -> None:
    assert {part_of(f"[{number}]") for number in range(20_000)} == set(range(PARTS))
