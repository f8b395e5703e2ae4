"""What an application finds in a search index is the same in a directory and on a server."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import UsageError
from headrace.search import Index, open_index
from headrace.search.fields import Column, Columns

COLUMNS = Columns(
    key=("id",),
    columns=(
        Column(name="id", type="bigint", kind="integer"),
        Column(name="name", type="string", kind="words"),
        Column(name="sku", type="string", kind="whole"),
        Column(name="price", type="decimal(9,2)", kind="float"),
        Column(name="in_stock", type="boolean", kind="boolean"),
        Column(name="since", type="date", kind="moment"),
        Column(name="tags", type="array<string>", kind="words", is_many=True),
        Column(name="attributes", type="map<string,string>", kind="json"),
        Column(name="sizes", type="array<struct<eu:int>>", kind="json", is_many=True),
        Column(name="photo", type="binary", kind="none"),
    ),
)
SHOE: dict[str, Any] = {
    "id": 1,
    "name": "Red running shoe",
    "sku": "SH-1 (red)",
    "price": 19.99,
    "in_stock": True,
    "since": "2026-01-02",
    "tags": ["sport", "summer sale"],
    "attributes": {"color": "red", "size": 42, "note": None},
    "sizes": [{"eu": 41}, {"eu": 42}, None],
    "photo": "AAEC",
}
BOOT: dict[str, Any] = {**SHOE, "id": 2, "name": "Blue boot", "sku": "BO-2", "price": 120, "in_stock": False}
BOOT |= {"since": "9999-12-31", "tags": [], "attributes": None, "sizes": []}
NAMELESS: dict[str, Any] = {**dict.fromkeys(SHOE), "id": 3}


@pytest.fixture
def products(backend: Any, index: Index) -> Index:
    backend.write(COLUMNS, {1: SHOE, 2: BOOT, 3: NAMELESS})
    return index


def test_rows_are_found_by_all_kinds_of_columns(products: Index) -> None:
    expected: dict[str, list[int]] = {
        "red": [1],
        "RUNNING shoe": [1],
        "blue AND boot": [2],
        '"running shoe"': [1],
        '"shoe running"': [],
        "sale": [1],
        "name:boot": [2],
        'sku:"SH-1 (red)"': [1],
        "sku:SH": [],
        "price:[100 TO 200]": [2],
        "price:<20.5": [1],
        "in_stock:true": [1],
        "since:[2026-01-01T00:00:00Z TO 2026-02-01T00:00:00Z]": [1],
        "since:>2200-01-01T00:00:00Z": [2],
        "boot OR since:<2026-01-02T00:00:01Z": [1, 2],
        "attributes.color:red": [1],
        "attributes.size:42": [1],
        "sizes.eu:42": [1],
        "id:2": [2],
        "*": [1, 2, 3],
        "* -boot": [1, 3],
        "_ledger:ledger": [],
        "nothing": [],
    }
    found = {query: sorted(hit.row["id"] for hit in products.search(query)) for query in expected}
    assert found == expected
    assert {query: products.count(query) for query in expected} == {
        query: len(ids) for query, ids in expected.items()
    }


def test_a_hit_has_the_whole_row_and_a_score(products: Index) -> None:
    (hit,) = products.search("shoe")
    assert hit.row == SHOE
    assert hit.score > 0
    assert products.search("red sale boot", limit=1, offset=1) == products.search("red sale boot")[1:2]


def test_words_can_be_looked_for_in_named_columns(products: Index) -> None:
    assert products.search("red", fields=["tags"]) == []
    assert [hit.row["id"] for hit in products.search("sport", fields=["tags", "name"])] == [1]
    assert [hit.row["id"] for hit in products.search("BO-2", fields=["sku"])] == [2]


def test_a_query_that_is_not_understood_is_the_askers_fault(products: Index) -> None:
    for query in ("(((", "nofield:x", "price:cheap", "name:[", '"open'):
        for look in (products.search, products.count):
            with pytest.raises(UsageError, match="can't be understood"):
                look(query)


def test_what_can_not_be_asked_for_is_refused(backend: Any, products: Index) -> None:
    for limit, offset in ((0, 0), (1, -1), (1, 10_000)):
        with pytest.raises(UsageError, match="can't be asked for"):
            products.search("red", limit=limit, offset=offset)
    for name in ("photo", "colour", "_key"):
        with pytest.raises(UsageError, match=f"no column {name} that could be searched"):
            products.search("red", fields=[name])
    with pytest.raises(UsageError, match="is id, and 2 values were given"):
        products.get(1, 2)
    with open_index(backend.address, f"{backend.name}-none") as other:
        for look in (other.count, lambda: other.search("x"), lambda: other.get(1)):
            with pytest.raises(UsageError, match="there is no search index"):
                look()


def test_rows_are_got_by_keys_of_all_kinds_and_counted(backend: Any, products: Index) -> None:
    assert products.get(2) == BOOT
    assert products.get(4) is None
    assert products.get("2") is None
    assert products.count() == len(products.search("*")) == 3


def test_a_key_may_have_any_characters(backend: Any, index: Index) -> None:
    keys = ["a/b?c#d", "100% +1 &", "..", "ümläut 🦆", '"\\\n', " ", "other"]
    named = Columns(key=("name",), columns=(COLUMNS.columns[1],))
    backend.write(named, {key: {"name": key} for key in keys})
    assert [index.get(key) for key in keys] == [{"name": key} for key in keys]
    backend.write(named, dict.fromkeys(keys[:-1]))
    assert [index.get(key) for key in keys] == [*[None] * (len(keys) - 1), {"name": "other"}]
    assert index.count() == 1


def test_changes_are_seen_by_the_next_search(backend: Any, products: Index) -> None:
    assert products.count() == 3
    backend.write(COLUMNS, {1: None, 2: {**BOOT, "name": "Green boot"}, 4: {**SHOE, "id": 4}})
    assert products.count() == 3
    assert products.get(1) is None
    assert [hit.row["name"] for hit in products.search("green")] == ["Green boot"]
    assert products.search("blue") == []
    backend.lose()
    with pytest.raises(UsageError, match="there is no search index"):
        products.count()
