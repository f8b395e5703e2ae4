"""SQL over topics, on Spark: up to now, live, and as views."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import SqlError
from headrace.streams.admin import ensure_topics
from headrace.streams.building import build_stream
from headrace.streams.source import Reader, read_stream
from headrace.streams.sql.bounded import Bounded, Refused, rows_of
from headrace.streams.sql.catalog import Catalog
from headrace.streams.sql.definitions import View, table_of
from headrace.streams.sql.live import Live
from headrace.streams.sql.statements import CreateTable, CreateView, parse_statements
from headrace.streams.sql.view_pipeline import pipeline_of
from headrace.streams.sql.view_rows import view_rows
from headrace.streams.sql.views import create_view, drop_view
from headrace.testing.pipelines import PipelineScript

pytestmark = pytest.mark.spark

ORDERS = """
CREATE TABLE orders (id string not null, city string, total double, at timestamp)
WITH (event_time = 'at', watermark = '30 seconds')
"""
PRODUCTS = (
    "CREATE TABLE products (pid bigint, name string, price double) WITH (format = 'upsert', key = 'pid')"
)


def order(number: int, city: str, total: float, minute: int = 0) -> str:
    at = f"2026-01-02T03:{minute:02}:00Z"
    return json.dumps({"id": f"o{number}", "city": city, "total": total, "at": at})


@pytest.fixture
def catalog(config: StreamsConfig) -> Catalog:
    made = Catalog(config=config)
    for text in (ORDERS, PRODUCTS):
        (statement,) = parse_statements(text)
        assert isinstance(statement, CreateTable)
        made.store.keep_table(table_of(statement))
    ensure_topics(config, {"orders": 1, "products": 1})
    return made


@pytest.fixture
def select(spark: SparkSession, catalog: Catalog) -> Callable[[str], list[Any]]:
    def run(sql: str) -> list[Any]:
        rows = Bounded(session=spark, catalog=catalog, sql=sql).rows()
        return [json.loads(row) for row in rows_of(rows, None)]

    return run


@pytest.fixture
def view(spark: SparkSession, catalog: Catalog) -> Callable[[str, str], View]:
    def make(name: str, query: str) -> View:
        return create_view(spark, catalog, CreateView(name=name, query=query))

    return make


@pytest.fixture
def script(spark: SparkSession, config: StreamsConfig, tmp_path: Path) -> Callable[[View], PipelineScript]:
    def of(made: View) -> PipelineScript:
        return PipelineScript(
            pipeline_of(made), session=spark, bootstrap=config.bootstrap, directory=tmp_path / "run"
        )

    return of


def test_a_query_reads_topics_and_current_rows_and_tells_what_is_no_row(
    spark: SparkSession, kafka: Any, catalog: Catalog, select: Callable[[str], list[Any]]
) -> None:
    kafka.produce("orders", [(None, order(1, "bonn", 1.5)), (None, order(2, "köln", 2)), (None, "bad")])
    products = [
        ("1", '{"pid": 1, "name": "tea", "price": 2}'),
        ("2", '{"pid": 2, "name": "oil", "price": 3}'),
    ]
    kafka.produce("products", [*products, ("1", '{"pid": 1, "name": "tea", "price": 5}'), ("2", None)])
    kafka.produce(
        "orders.dead-letters", [(None, "bad")], headers=[("headrace.cause", "no"), ("headrace.offset", "2")]
    )

    joined = (
        "SELECT o.*, p.price, o._kafka.offset FROM orders o, (SELECT * FROM products) p WHERE o.total < 2"
    )
    assert select(joined) == [
        {
            "id": "o1",
            "city": "bonn",
            "total": 1.5,
            "at": "2026-01-02T03:00:00.000000Z",
            "price": 5.0,
            "offset": 0,
        }
    ]
    assert select("SELECT cause, offset, value FROM `orders.dead-letters`") == [
        {"cause": "no", "offset": 2, "value": "bad"}
    ]
    query = Bounded(session=spark, catalog=catalog, sql="SELECT id, id FROM orders")
    assert query.rows().columns == ["id", "id_2"]
    assert list(query.refused()) == [Refused(table="orders", count=1, cause="the value is not one JSON text")]


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT * FROM ordrs", "there is no table ordrs at .*: did you mean orders?"),
        ("SELECT idd FROM orders", "line 1, column 8: .*`idd` cannot be resolved"),
        ("SELECT * FORM orders", "line 1, column 15: Syntax error"),
        ("SELECT * FROM orders.late", "in backticks: `orders.late`"),
        ("SELECT * FROM csv.`/etc/hostname`", "in backticks"),
    ],
)
def test_a_query_that_can_not_be_understood_is_refused_in_a_sentence(
    select: Callable[[str], list[Any]], sql: str, told: str
) -> None:
    with pytest.raises(SqlError, match=told) as refusal:
        select(sql)
    assert "\n" not in str(refusal.value)


def test_columns_of_a_topic_that_nobody_has_described_are_told_by_its_records(
    kafka: Any, config: StreamsConfig, catalog: Catalog, select: Callable[[str], list[Any]]
) -> None:
    said: list[str] = []
    catalog.say = said.append
    ensure_topics(config, {"seen": 2, "empty": 1})
    kafka.produce("seen", [("a", '{"n": 1, "at": "2026-01-02T03:04:05Z"}'), ("b", '{"n": 2.5}')])
    assert select("SELECT sum(n) s, max(year(at)) y FROM seen") == [{"s": 3.5, "y": 2026}]
    assert "the columns of seen were told by its last 2 records" in said[0]
    with pytest.raises(SqlError, match="topic empty has no records by which"):
        select("SELECT * FROM empty")


def live_rows(live: Live, until: int) -> Iterator[dict[str, Any]]:
    rows, gives = live.plan()
    found: list[dict[str, Any]] = []
    stop = threading.Event()

    def take(batch: Iterable[str]) -> None:
        found.extend(map(json.loads, batch))
        if len(found) >= until:
            stop.set()

    live.run(rows, gives, take, stop)
    return iter(found)


def test_a_live_query_gives_groups_as_they_change(
    spark: SparkSession, kafka: Any, catalog: Catalog, tmp_path: Path
) -> None:
    kafka.produce("orders", [(None, order(1, "bonn", 1)), (None, order(2, "bonn", 2))])

    def live(sql: str, name: str) -> Live:
        return Live(session=spark, catalog=catalog, sql=sql, work_dir=tmp_path / name)

    groups = live("SELECT city, count(*) AS n FROM orders GROUP BY city", "groups")
    assert list(live_rows(groups, 1)) == [{"city": "bonn", "n": 2}]
    by_key = live("SELECT pid, upper(name) AS name FROM products WHERE price < 5", "keys")
    planned, gives = by_key.plan()
    assert (gives, by_key.key, planned.columns) == ("keys", ("pid",), ["pid", "name", "_delete"])
    with pytest.raises(SqlError, match=r"can't be computed live: .*leave ORDER BY out"):
        live("SELECT city FROM orders ORDER BY city", "order").plan()


def test_a_view_of_groups_is_queried_by_its_current_rows(
    kafka: Any,
    catalog: Catalog,
    view: Callable[[str, str], View],
    script: Callable[[View], PipelineScript],
    select: Callable[[str], list[Any]],
    config: StreamsConfig,
) -> None:
    made = view("by_city", "SELECT city, at, sum(total) AS total FROM orders GROUP BY 1, at")
    assert catalog.store.views()["by_city"] == made
    run = script(made)
    orders = made.tables[0].topic
    run.add(orders, order(1, "bonn", 1, 9)).process()
    # The last one is late, and by an event time, and counts all the same.
    run.add(orders, order(1, "bonn", 2, 9), order(2, "köln", 4, 0)).process()
    assert select("SELECT * FROM by_city ORDER BY city") == [
        {"city": "bonn", "at": "2026-01-02T03:09:00.000000Z", "total": 3.0},
        {"city": "köln", "at": "2026-01-02T03:00:00.000000Z", "total": 4.0},
    ]
    with pytest.raises(SqlError, match="there is a view by_city already"):
        view("by_city", "SELECT id FROM orders")
    assert drop_view(config, catalog, "by_city")
    with pytest.raises(SqlError, match="the topic by_city has records already"):
        view("by_city", "SELECT id FROM orders")


def test_the_group_of_rows_without_a_value_is_a_row_as_others(
    view: Callable[[str, str], View],
    script: Callable[[View], PipelineScript],
    select: Callable[[str], list[Any]],
) -> None:
    made = view("cities", "SELECT city, count(*) AS n FROM orders GROUP BY city")
    nowhere = json.dumps({"id": "o2", "city": None})
    script(made).add(made.tables[0].topic, order(1, "bonn", 1), nowhere).process()
    assert select("SELECT * FROM cities ORDER BY n, city") == [
        {"city": None, "n": 1},
        {"city": "bonn", "n": 1},
    ]


def test_a_view_of_windows_gives_each_once_and_has_a_topic_for_late_rows(
    spark: SparkSession,
    config: StreamsConfig,
    view: Callable[[str, str], View],
    script: Callable[[View], PipelineScript],
) -> None:
    query = (
        "SELECT window.start AS minute, upper(o.city) AS place, count(*) AS n, max(o.total) AS top "
        "FROM orders o WHERE o.total > 0 GROUP BY window(at, '1 minute'), upper(o.city)"
    )
    made = view("minutes", query)
    run, orders = script(made), made.tables[0].topic
    run.add(orders, order(1, "bonn", 1, 0), order(2, "bonn", 3, 0), order(3, "bonn", 1, 5))
    minute = "2026-01-02T03:00:00.000000Z"
    run.expect({"minute": minute, "place": "BONN", "n": 2, "top": 3.0, "firing": "on_time"})
    frames = {"table_0": read_stream(spark, orders, Reader(name="minutes", config=config))}
    _rows, building = build_stream(pipeline_of(made), frames, config)
    assert [topic.name for topic in building.side_topics.values()] == ["minutes.late"]


def test_views_of_a_table_follow_its_changes(spark: SparkSession, view: Callable[[str, str], View]) -> None:
    cheap = view("cheap", "SELECT p.pid, upper(p.name) AS name FROM products p WHERE price < 4")
    names = view("names", "SELECT p.name, count(*) AS n, max(price) AS top FROM products p GROUP BY p.name")
    changed: list[dict[str, Any]] = [
        {"pid": 1, "name": "tea", "price": 2},
        {"pid": 2, "name": "tea", "price": 7},
        {"pid": 3, "name": "oil", "price": 1},
        {"pid": 1, "name": "tea", "price": 5},
        {"pid": 2, "_delete": True},
    ]

    def rows(made: View) -> list[Any]:
        frames = {"products": hr.static(spark, made.tables[0].topic, changed)}
        return sorted(tuple(row) for row in view_rows(made, frames).collect())

    assert rows(cheap) == [(3, "OIL", False)]
    assert rows(names) == [
        ("oil", 1, 1.0, False, '{"name":"oil"}'),
        ("tea", 1, 5.0, False, '{"name":"tea"}'),
    ]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT a.id FROM orders a JOIN orders b ON a.id = b.id", "use hr.join "),
        ("SELECT count(*) AS n FROM orders", "group them, in the outermost query"),
        ("SELECT id, row_number() OVER (ORDER BY at) AS n FROM orders", "because of Window: use hr.top"),
        (
            "SELECT city, count(*) n FROM (SELECT DISTINCT city FROM orders) GROUP BY city",
            "joins or orders before",
        ),
        ("SELECT 1 AS one", "reads no topic"),
        ("SELECT pid, now() AS seen FROM products", "has now, which gives another value each time"),
        ("SELECT pid FROM products WHERE price < rand()", "has rand, which"),
        ("SELECT name, max(current_date) AS d FROM products GROUP BY name", "has current_date, which"),
        ("SELECT city, count(*) n FROM orders WHERE at > now() GROUP BY city", "has now, which"),
        ("SELECT id FROM orders WHERE id IN (SELECT id FROM orders)", "not allowed in subquery expressions"),
        ("SELECT id FROM orders WHERE id IN (SELECT uuid())", "has a query in an expression"),
        ("SELECT upper(city) AS city, count(*) n FROM orders GROUP BY city", "or another alias"),
        ("SELECT id, at - at AS age FROM orders", "age is interval .* cast it"),
    ],
)
def test_what_can_not_stay_right_is_no_view(
    catalog: Catalog, view: Callable[[str, str], View], query: str, told: str
) -> None:
    with pytest.raises(SqlError, match=told):
        view("bad", query)
    assert catalog.store.views() == {}
