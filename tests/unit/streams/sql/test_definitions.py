"""Tables and views as statements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace.streams as hr
from headrace.errors import SqlError
from headrace.streams.sql.definitions import (
    Table,
    View,
    dead_letters_table,
    parse_definitions,
    split_columns,
    table_text,
    view_text,
)
from headrace.streams.sql.store import Store, load_views
from headrace.streams.topic import Topic

NAMES = st.text("abcXYZ0._-", min_size=1, max_size=20).filter(lambda name: name.strip("."))
TOPICS = st.one_of(
    st.builds(
        Topic,
        name=NAMES,
        schema=st.just("id string not null, at timestamp, m map<string, decimal(10,2)>"),
        event_time=st.just("at"),
        watermark=st.sampled_from(["30 seconds", hr.bounded("1 hour", idle_after="1 day"), hr.adaptive()]),
        max_ahead=st.sampled_from([None, "1 hour"]),
    ),
    st.builds(
        Topic,
        name=NAMES,
        schema=st.just("id string"),
        format=st.sampled_from(["upsert", "debezium"]),
        key=st.just(("id",)),
    ),
    st.builds(Topic, name=NAMES, format=st.sampled_from(["text", "bytes"])),
)
TABLES = st.one_of(st.builds(Table, name=NAMES, topic=TOPICS), st.builds(dead_letters_table, NAMES))


@given(TABLES)
def test_a_table_is_read_as_it_was_written(table: Table) -> None:
    tables, views = parse_definitions(table_text(table), "t.sql")
    assert (tables, views) == ([replace(table, origin="CREATE TABLE")], [])


@given(st.lists(TABLES, max_size=3), NAMES, st.sampled_from([None, "id"]), st.sampled_from([None, 3]))
def test_a_view_is_read_as_it_was_written(
    tables: list[Table], name: str, key: str | None, partitions: int | None
) -> None:
    view = View(
        name=name,
        query="SELECT id -- last;\nFROM t",
        tables=tuple(tables),
        columns="`id` string",
        key=key,
        partitions=partitions,
    )
    found, (read,) = parse_definitions(view_text(view), "v.sql")
    assert found == [replace(table, origin="CREATE TABLE") for table in tables]
    assert read == replace(view, tables=())


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("create table t (id string) with (topc = 'x')", "table t has no option 'topc': there are topic,"),
        ("create table t with (topic = 'x')", "a topic of json needs columns"),
        ("create table t (id string) with (format = 'avro')", "the format is 'avro'; use json,"),
        ("create table t (id string) with (watermark = '3 s')", "a watermark but no event_time"),
        ("create table t (id string) with (format = 'upsert')", "give it the key"),
        ("create view v with (partitions = 'x') as select 1", "partitions is 'x'; use at least 1"),
        ("select 1", "has a statement that describes nothing (Query)"),
    ],
)
def test_what_can_not_be_described_is_refused(statement: str, told: str) -> None:
    with pytest.raises(SqlError) as refusal:
        parse_definitions(statement, "f.sql")
    assert told in str(refusal.value)
    assert str(refusal.value).startswith("f.sql")


def test_columns_are_parted_outside_of_types() -> None:
    found = split_columns("`a b` string not null, m map<string, decimal(10,2)>, s: struct<x: int, y: int>")
    assert found == {
        "a b": "string not null",
        "m": "map<string, decimal(10,2)>",
        "s": "struct<x: int, y: int>",
    }


def test_a_store_keeps_tables_and_views_by_name(tmp_path: Path) -> None:
    store = Store(data_dir=tmp_path)
    table = Table(name="orders", topic=Topic(name="o", schema="id string"))
    store.keep_table(table)
    store.keep_view(View(name="v-1", query="select id from orders", tables=(table,)))
    assert store.tables() == {"orders": table}
    assert store.views()["v-1"].tables == (table,)
    assert store.forget_view("v-1")
    assert not store.forget_view("v-1")
    assert store.views() == {}


def test_a_name_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SqlError, match="can't name a table or view"):
        Store(data_dir=tmp_path).view_path("../x")


def test_a_view_of_a_file_has_the_tables_that_it_names(tmp_path: Path) -> None:
    path = tmp_path / "views.sql"
    path.write_text(
        "create table a (id string); create table `b-2` (id string); create table c (id string);"
        "create view v as select * from A, `b-2`; create view w as select id as c from a"
    )
    assert {view.name: [table.name for table in view.tables] for view in load_views(path)} == {
        "v": ["a", "b-2"],
        "w": ["a", "c"],
    }
