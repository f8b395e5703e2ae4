"""As what a view can run."""

from __future__ import annotations

import pytest

from headrace.errors import SqlError
from headrace.streams.sql.catalog import table_of_view
from headrace.streams.sql.definitions import Table, View
from headrace.streams.sql.shapes import Kind, check_aliases, shape_of
from headrace.streams.sql.view_pipeline import pipeline_of
from headrace.streams.topic import Topic

ORDERS = Table(
    name="orders",
    topic=Topic(
        name="orders",
        schema="id string not null, city string, at timestamp",
        event_time="at",
        watermark="1 minute",
    ),
)
PRODUCTS = Table(
    name="products", topic=Topic(name="products", format="upsert", key=("id",), schema="id string, price int")
)


def view(query: str, *tables: Table, key: str | None = None) -> View:
    return View(name="v", query=query, tables=tables or (ORDERS,), columns="`id` string", key=key)


@pytest.mark.parametrize(
    ("made", "kind", "key", "record_key"),
    [
        (view("select id from orders where id > 'a'"), "rows", (), None),
        (view("select id from orders union all select id from orders"), "rows", (), None),
        (view("select city, count(*) n from orders group by city"), "groups", ("city",), "_key"),
        (view("select id, count(*) n from orders group by id"), "groups", ("id",), "id"),
        (view("select o.Id, count(*) n from orders o group by 1"), "groups", ("Id",), "Id"),
        (view("select id, count(*) n from (select * from orders) group by id"), "groups", ("id",), "_key"),
        (view("select upper(city) c, count(*) n from orders group by 1"), "groups", ("c",), "_key"),
        (view("select city, id, count(*) n from orders group by city, id"), "groups", ("city", "id"), "_key"),
        (
            view("select city, window, count(*) from orders group by city, window(at, '1 day')"),
            "windows",
            (),
            None,
        ),
        (view("select window(at, '1 day') w, count(*) n from orders group by 1"), "windows", (), None),
        (view("select id, price from products", PRODUCTS), "table rows", ("id",), "id"),
        (
            view("select price, count(*) n from products group by price", PRODUCTS),
            "table groups",
            ("price",),
            "_key",
        ),
    ],
)
def test_a_view_has_the_shape_that_its_clauses_and_tables_give(
    made: View, kind: Kind, key: tuple[str, ...], record_key: str | None
) -> None:
    shape = shape_of(made)
    assert (shape.kind, shape.key, shape.record_key) == (kind, key, record_key)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (view("select distinct city from orders"), "has DISTINCT"),
        (view("select city from orders order by city"), "has ORDER"),
        (view("select city, count(*) from orders group by city having count(*) > 1"), "make a second view"),
        (view("select count(*) n from orders group by city"), "groups by city and does not select it"),
        (view("select city, count(*) n from orders group by city", key="city"), "leave the option key out"),
        (
            view("select window(at, interval 1 day) w, count(*) n from orders group by 1"),
            "write a window of time",
        ),
        (view("select * from orders, products", ORDERS, PRODUCTS), "use hr.join_tables"),
        (view("with x as (select 1) select * from products", PRODUCTS), "use hr.join_tables"),
        (
            view("select window(at, '1 day') w, count(*) n from products group by 1", PRODUCTS),
            "use hr.history",
        ),
    ],
)
def test_what_would_not_stay_right_is_refused_with_what_to_do(made: View, told: str) -> None:
    with pytest.raises(SqlError) as refusal:
        shape_of(made)
    assert told in str(refusal.value)


@pytest.mark.parametrize(
    ("query", "is_refused"),
    [
        ("select upper(city) as city, count(*) n from orders group by city", True),
        ("select upper(city) as city, count(*) n from orders group by `City`", True),
        ("select address.city, count(*) n from orders group by city", True),
        ("select upper(city) as city, count(*) n from orders group by upper(city)", False),
        ("select upper(city) as city, count(*) n from orders group by 1", False),
        ("select upper(city) as c, count(*) n from orders group by c", False),
        ("select o.city, count(*) n from orders o group by city", False),
        ("select `city`, count(*) n from orders group by city", False),
        ("select city as c, upper(city) as city, count(*) n from orders group by city", False),
    ],
)
def test_a_group_by_what_is_a_column_and_an_alias_of_something_else_is_refused(
    query: str, is_refused: bool
) -> None:
    made = view(query)
    clauses = shape_of(made).clauses
    assert clauses is not None
    if not is_refused:
        check_aliases(made, clauses, ["id", "city", "address"])
        return
    with pytest.raises(SqlError, match=r"write GROUP BY .*, or another alias"):
        check_aliases(made, clauses, ["id", "city", "address"])


def test_a_view_is_a_pipeline_of_its_name_into_a_topic_of_its_name() -> None:
    pipeline = pipeline_of(view("select city, count(*) n from orders group by city"))
    assert (pipeline.name, pipeline.outputs) == ("v", (Topic(name="v", key=("_key",)),))
    assert list(pipeline.sources().values()) == [ORDERS.topic]


def test_a_name_of_a_column_is_not_taken_apart_at_its_commas() -> None:
    by_call = view("select concat(id, city), count(*) n from orders group by concat(id, city)")
    assert shape_of(by_call).key == ("concat(id, city)",)
    assert pipeline_of(by_call).outputs == (Topic(name="v", key=("_key",)),)
    by_option = view("select id, city from orders", key="id, city")
    assert pipeline_of(by_option).outputs == (Topic(name="v", key=("id", "city")),)


def test_others_read_the_current_rows_of_a_view_by_key_and_the_rows_of_others() -> None:
    by_key = table_of_view(view("select id, count(*) n from orders group by id"))
    by_row = table_of_view(view("select id from orders"))
    assert by_key is not None
    assert by_row is not None
    assert (by_key.topic.format, by_key.topic.key) == ("upsert", ("id",))
    assert (by_row.topic.format, by_row.topic.key) == ("json", ())
