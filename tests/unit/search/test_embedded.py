"""An index in a directory, searched without Spark."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import StorageError, UsageError
from headrace.search import Index, layout, open_index
from headrace.search.fields import Column, Columns
from headrace.search.keys import key_text
from headrace.streams.sinks.ledger import NO_DIGEST, Entry
from headrace.streams.sinks.run_ledger import Ledger
from headrace.streams.sinks.search.documents import document
from headrace.streams.sinks.search.generation import Generation, ensure

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
    "attributes": {"color": "red", "size": 42},
    "photo": "AAEC",
}
BOOT: dict[str, Any] = {**SHOE, "id": 2, "name": "Blue boot", "sku": "BO-2", "price": 120, "in_stock": False}
BOOT |= {"since": "9999-12-31", "tags": [], "attributes": None}
LEDGER = Ledger(run=1, entry=Entry(next_batch_id=1, query_id="q", task_count=1, digest=NO_DIGEST))


def write(generation: Generation, rows: Mapping[int, dict[str, Any] | None]) -> None:
    with generation.writing() as changes:
        for id_, row in rows.items():
            key = key_text([id_])
            if row is None:
                changes.delete(key)
            else:
                changes.put(key, changes.document(document(COLUMNS, key, json.dumps(row))))
        changes.commit("products", LEDGER)


@pytest.fixture
def generation(tmp_path: Path) -> Generation:
    made = ensure(tmp_path / "products", COLUMNS)
    write(made, {1: SHOE, 2: BOOT})
    return made


@pytest.fixture
def products(generation: Generation, tmp_path: Path) -> Index:
    return open_index(tmp_path, "products")


def test_rows_are_got_and_counted_and_the_ledger_is_never_shown(products: Index) -> None:
    assert products.get(2) == BOOT
    assert products.get(3) is None
    assert products.get("2") is None
    assert products.count() == len(products.search("*")) == 2


def test_another_generation_is_seen_by_the_next_search(products: Index, tmp_path: Path) -> None:
    assert products.count() == 2
    index = tmp_path / "products"
    rebuilt = ensure(index / layout.generation_name("rebuilt"), COLUMNS)
    write(rebuilt, {7: {**SHOE, "id": 7}})
    assert products.count() == 2
    layout.point(index, rebuilt.path)
    assert [hit.row["id"] for hit in products.search("shoe")] == [7]


def test_a_generation_that_is_removed_is_looked_for_anew(products: Index, tmp_path: Path) -> None:
    assert products.count() == 2
    index = tmp_path / "products"
    (index / layout.CURRENT).rename(index / "aside")
    with pytest.raises(UsageError, match="there is no search index"):
        products.count()
    (index / "aside").rename(index / layout.CURRENT)
    assert products.count() == 2
    rebuilt = ensure(index / layout.generation_name("rebuilt"), COLUMNS)
    layout.point(index, rebuilt.path)
    shutil.rmtree(index / layout.FIRST)
    assert products.count() == 0


def test_an_index_that_is_damaged_is_told(products: Index, generation: Generation) -> None:
    (generation.path / "meta.json").write_text("{")
    with pytest.raises(StorageError, match="can't be read"), products:
        products.count()


def test_all_rows_can_be_read_at_once_or_in_pieces(generation: Generation) -> None:
    from headrace.search.embedded import EmbeddedIndex  # noqa: PLC0415 - only this test looks inside

    with EmbeddedIndex(generation.path) as index:
        for at_once in (1, 1000):
            assert sorted(json.loads(text)["id"] for text in index.texts(at_once)) == [1, 2]


def test_an_application_needs_neither_spark_nor_arrow(generation: Generation, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from headrace.search import open_index\n"
        f"with open_index({str(tmp_path)!r}, 'products') as index:\n"
        "    assert index.get(1)['name'] == 'Red running shoe'\n"
        "assert not {'pyspark', 'py4j', 'pyarrow'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
