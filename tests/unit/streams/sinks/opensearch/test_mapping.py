"""How an index of a server is made."""

from __future__ import annotations

import pytest

from headrace.errors import PipelineError
from headrace.search.fields import Column, Columns
from headrace.search.served_columns import kept_columns
from headrace.streams.sinks.opensearch.mapping import check_names, index_body

COLUMNS = Columns(
    key=("id",),
    columns=(
        Column(name="id", type="bigint", kind="integer"),
        Column(name="name", type="string", kind="words"),
        Column(name="sku", type="string", kind="whole"),
        Column(name="price", type="double", kind="float"),
        Column(name="at", type="timestamp", kind="moment"),
        Column(name="ok", type="boolean", kind="boolean"),
        Column(name="attributes", type="map<string,string>", kind="json"),
        Column(name="anything", type="variant", kind="json"),
        Column(name="photo", type="binary", kind="none"),
    ),
)
WHOLE = {"type": "keyword", "ignore_above": 8191}


def test_each_column_that_is_searched_has_a_field_of_its_type_and_nothing_else_has_one() -> None:
    mappings = index_body(COLUMNS, "products", is_opensearch=True)["mappings"]
    assert mappings["dynamic"] is False
    assert mappings["properties"] == {
        "id": {"type": "long"},
        "name": {"type": "text", "fields": {"keyword": WHOLE}},
        "sku": WHOLE,
        "price": {"type": "double", "ignore_malformed": True},
        "at": {"type": "date", "ignore_malformed": True},
        "ok": {"type": "boolean"},
        "attributes": {"type": "flat_object"},
    }
    elastic = index_body(COLUMNS, "products", is_opensearch=False)["mappings"]["properties"]
    assert elastic["attributes"] == {"type": "flattened", "ignore_above": 8191}


def test_an_index_is_made_with_its_aliases_and_settings_at_once() -> None:
    body = index_body(COLUMNS, "products", is_opensearch=True)
    assert body["aliases"] == {"products": {}, "products-g000001-rows": {"is_write_index": True}}
    assert body["settings"] == {"index.gc_deletes": "1h", "index.query.default_field": ["name"]}
    without_text = Columns(key=("id",), columns=COLUMNS.columns[:1])
    assert index_body(without_text, "p", is_opensearch=True)["settings"]["index.query.default_field"] == ["*"]


def test_the_columns_are_kept_in_the_mapping() -> None:
    assert kept_columns(index_body(COLUMNS, "products", is_opensearch=True)["mappings"]) == COLUMNS
    assert kept_columns({}) is kept_columns({"_meta": {"headrace": {"version": 99}}}) is None


@pytest.mark.parametrize("name", ["_id", "_mine", "", ".", " "])
def test_names_that_servers_have_for_themselves_are_refused(name: str) -> None:
    columns = Columns(key=("id",), columns=(Column(name=name, type="string", kind="words"),))
    with pytest.raises(PipelineError, match="can't be the name of a field"):
        check_names(columns, pipeline="products")
